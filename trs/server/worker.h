// Worker: what the server has on one reactor: a thread domain, a completion channel, and a poller
// over the connections that live there. Thread: its reactor.
#pragma once

#include <functional>
#include <memory>

#include "base/reactor.h"
#include "trs/server/queue.h"
#include "vhca/device.h"

namespace braid::trs::server {

class Worker final : private base::Poller {
 public:
  Worker(vhca::Device& device, base::Reactor& reactor, std::unique_ptr<vhca::CompChannel> channel);
  ~Worker() override;

  base::Reactor& reactor() { return reactor_; }
  vhca::CompChannel& channel() { return *channel_; }
  vhca::Td& td() { return *td_; }

  void add(Queue& queue) { queues_.push_back(queue); }
  /// From the home reactor. `stopped` runs here, when nothing of the worker is in use any more.
  void start();
  void stop(std::function<void()> stopped);

 private:
  bool poll() override;
  bool arm() override;
  static void channel_ready(base::Watch& watch);

  base::Reactor& reactor_;
  std::unique_ptr<vhca::Td> td_;
  std::unique_ptr<vhca::CompChannel> channel_;
  base::Watch watch_;
  bool watching_ = false;
  base::IntrusiveList<Queue> queues_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace braid::trs::server
