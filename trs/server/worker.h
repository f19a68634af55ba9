// Worker: what the server has on one reactor: for each endpoint a thread domain and a completion
// channel, and a poller over the connections that live there. Thread: its reactor.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/reactor.h"
#include "trs/server/queue.h"
#include "vhca/device.h"

namespace braid::trs::server {

class Worker final : private base::Poller {
 public:
  /// What it has of one endpoint's device.
  struct Share {
    std::unique_ptr<vhca::Td> td;
    std::unique_ptr<vhca::CompChannel> channel;
    base::Watch watch;
  };

  explicit Worker(base::Reactor& reactor) : reactor_(reactor) {}
  ~Worker() override;
  /// Before start().
  base::Status add_endpoint(vhca::Device& device);

  base::Reactor& reactor() { return reactor_; }
  Share& share(size_t endpoint) { return *shares_[endpoint]; }

  void add(Queue& queue) { queues_.push_back(queue); }
  /// From the home reactor. `stopped` runs here, when nothing of the worker is in use any more.
  void start();
  void stop(std::function<void()> stopped);

 private:
  bool poll() override;
  bool arm() override;
  void unwatch();
  static void channel_ready(base::Watch& watch);

  base::Reactor& reactor_;
  std::vector<std::unique_ptr<Share>> shares_;  // by endpoint
  bool watching_ = false;
  base::IntrusiveList<Queue> queues_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace braid::trs::server
