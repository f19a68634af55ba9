// What a device tells by itself (IBV_EVENT_*), for the log: a port without its link, a device that
// is gone. Nothing waits for it: paths miss their peers by heartbeats and by errors of requests.
//
// Threads: all on the reactor, or before it runs.
#pragma once

#include "base/reactor.h"
#include "vhca/device.h"

namespace braid::reach {

class DeviceEvents {
 public:
  /// Logs the device's events under the reactor's name until it is destroyed, before the device.
  DeviceEvents(base::Reactor& reactor, vhca::Device& device);
  ~DeviceEvents();
  DeviceEvents(const DeviceEvents&) = delete;
  DeviceEvents& operator=(const DeviceEvents&) = delete;

 private:
  static void ready(base::Watch& watch);
  void tell(const vhca::AsyncEvent& event);

  base::Reactor& reactor_;
  vhca::Device& device_;
  base::Logger log_;
  base::Watch watch_;
};

}  // namespace braid::reach
