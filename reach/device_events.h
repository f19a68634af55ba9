// What a device tells by itself (IBV_EVENT_*): a port without its link, a device that is gone. It
// is logged, and who wants to know hears of links that are down. Nothing has to wait for it: paths
// miss their peers by heartbeats and by errors of requests.
//
// Threads: all on the reactor, or before it runs.
#pragma once

#include <functional>

#include "base/reactor.h"
#include "vhca/device.h"

namespace braid::reach {

class DeviceEvents {
 public:
  using LinkDown = std::function<void(vhca::Device& device, uint8_t port)>;
  /// Logs the device's events under the reactor's name until it is destroyed, before the device,
  /// and calls `link_down`, if given, when a port has lost its link.
  DeviceEvents(base::Reactor& reactor, vhca::Device& device, LinkDown link_down = nullptr);
  ~DeviceEvents();
  DeviceEvents(const DeviceEvents&) = delete;
  DeviceEvents& operator=(const DeviceEvents&) = delete;

 private:
  static void ready(base::Watch& watch);
  void tell(const vhca::AsyncEvent& event);

  base::Reactor& reactor_;
  vhca::Device& device_;
  const LinkDown link_down_;
  base::Logger log_;
  base::Watch watch_;
};

}  // namespace braid::reach
