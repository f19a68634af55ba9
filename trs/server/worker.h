// Worker: what the server has on one reactor: for each endpoint a thread domain and a completion
// channel, and a poller over the connections that live there. Thread: its reactor.
#pragma once

#include <atomic>
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

  /// `sessions`: how many there are at the server; outlives it.
  Worker(base::Reactor& reactor, size_t index, const std::atomic<size_t>& sessions)
      : reactor_(reactor), index_(index), sessions_(sessions) {}
  ~Worker() override;
  /// Before start().
  base::Status add_endpoint(vhca::Device& device);

  base::Reactor& reactor() { return reactor_; }
  size_t index() const { return index_; }
  Share& share(size_t endpoint) { return *shares_[endpoint]; }

  void add(Queue& queue) { queues_.push_back(queue); }
  /// Whether so much data may be sent at once (turns.h).
  bool takes_bytes(size_t bytes) { return turns_.takes_bytes(bytes); }
  /// The same of data that is to be copied, which is written somewhere in the same turn.
  bool copies_bytes(size_t bytes) {
    return turns_.takes_bytes(bytes, long_ > 0 ? Queue::kPartBytes : 0);
  }
  /// A queue has one request more whose data waits for its turn, or one less.
  void long_begins() { ++long_; }
  void long_ends() { --long_; }
  /// From the home reactor. `stopped` runs here, when nothing of the worker is in use any more.
  void start();
  void stop(std::function<void()> stopped);

 private:
  bool poll() override;
  bool arm() override;
  size_t poll_its_part(Queue& queue);
  size_t use_rest();
  size_t do_part();
  void to_the_end(Queue& queue);
  void unwatch();
  static void channel_ready(base::Watch& watch);

  base::Reactor& reactor_;
  const size_t index_;
  const std::atomic<size_t>& sessions_;
  std::vector<std::unique_ptr<Share>> shares_;  // by endpoint
  bool watching_ = false;
  base::IntrusiveList<Queue> queues_;  // who has had its part of a turn goes to the end
  Turns turns_;
  size_t long_ = 0;  // requests with data that waits
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace braid::trs::server
