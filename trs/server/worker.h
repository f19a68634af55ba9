// Worker: what the server has on one reactor: for each endpoint a thread domain and
// completion channels, and a poller over the connections that live there. What a turn costs grows
// with the clients that are busy, and with the connections that are not silent, but for each client
// that shares a turn no further than to three times kLooksMax: docs/sleeping-connections.md.
// Thread: its reactor.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/reactor.h"
#include "base/single_writer.h"
#include "trs/server/queue.h"
#include "vhca/device.h"

namespace braid::trs::server {

/// A client that has connections here. In the worker's list while there is anything to poll or to
/// give.
struct TurnClient : base::ListNode {
  std::shared_ptr<TurnShare> share;
  size_t queues = 0;
  base::IntrusiveList<Queue> awake;    // who was polled goes to the end
  base::IntrusiveList<Queue> closing;  // as awake, whatever is left for the client
  base::IntrusiveList<Queue> dozing;   // Queue::dozes(): polled seldom
  base::IntrusiveList<Queue> asleep;
  base::IntrusiveList<QueuePlace::WithData> with_data;  // that waits for its turn
  bool awake_was_first = false;                         // see next_is_awake()
  bool waits_for_budget = false;                        // TurnShare::wire has to be given more
  bool all_asleep() const {
    return awake.empty() && dozing.empty() && closing.empty() && !waits_for_budget;
  }
  bool busy() const { return !all_asleep() || !with_data.empty(); }
  bool only_dozes() const {
    const bool others = !awake.empty() || !closing.empty() || !with_data.empty();
    return !dozing.empty() && !others && !waits_for_budget;
  }
  /// Whether those that do not doze come first, in a turn in which both are polled: either may use
  /// up the client's part, so they take turns. Where it may take nothing nobody has had his turn.
  bool next_is_awake(bool may_take) {
    if (may_take) awake_was_first = !awake_was_first;
    return awake_was_first;
  }
};

class Worker final : private base::Poller {
 public:
  /// A wake-up may not say whose it is: it is looked for among the connections of its channel.
  static constexpr size_t kConnectionsPerChannel = 16;
  struct Channel {
    std::unique_ptr<vhca::CompChannel> channel;
    base::Watch watch;
  };
  /// What it has of one endpoint's device.
  struct Share {
    vhca::Device& device;
    std::unique_ptr<vhca::Td> td;
    std::vector<std::shared_ptr<Channel>> channels;  // never empty
  };

  /// `sessions`: how many there are at the server; outlives it.
  Worker(base::Reactor& reactor, size_t index, const std::atomic<size_t>& sessions)
      : reactor_(reactor), index_(index), sessions_(sessions) {}
  ~Worker() override;
  /// Before start().
  base::Status add_endpoint(vhca::Device& device);

  base::Reactor& reactor() { return reactor_; }
  size_t index() const { return index_; }
  vhca::Td& td(size_t endpoint) { return *shares_[endpoint].td; }
  /// For one more connection, which keeps it as long as its CQ.
  base::Result<std::shared_ptr<Channel>> channel(size_t endpoint);

  uint64_t polls() const { return base::read_shared(polls_); }         // any thread
  size_t clients() const { return base::read_shared(client_count_); }  // any thread
  /// Polls the queue from now on, as one of this client's; before it may have been another's.
  void join(Queue& queue, const std::shared_ptr<TurnShare>& share);
  void leave(Queue& queue);
  /// The queue does not sleep any more, or is Queue::closing() from now on.
  void woken(Queue& queue);
  /// The queue has data that waits for its turn, or has none any more.
  void data_waits(Queue& queue);
  void data_waits_no_more(Queue& queue);
  /// Whether so much data may be sent at once (turns.h).
  bool takes_bytes(size_t bytes) { return turns_.takes_bytes(bytes); }
  /// The same of data that is to be copied, which is written somewhere in the same turn.
  bool copies_bytes(size_t bytes) {
    return turns_.takes_bytes(bytes, with_data_ > 0 ? Queue::kPartBytes : 0);
  }
  /// From the home reactor. `stopped` runs here, when nothing of the worker is in use any more.
  void start();
  void stop(std::function<void()> stopped);

 private:
  /// How many connections of a client are polled in vain in one turn, while clients share it; as
  /// many of those that doze, when they are due, and where others leave some of the turn.
  static constexpr size_t kLooksMax = 16;

  bool poll() override;
  void begin_arm() override;
  bool arm() override;
  bool waits_for_budget();
  bool may_sleep();
  static base::Result<std::shared_ptr<Channel>> make_channel(vhca::Device& device);
  TurnClient& client_of(const std::shared_ptr<TurnShare>& share);
  void has_work(TurnClient& client);
  void let_rest(TurnClient& client);
  void bound_budgets();
  size_t resume_streams(TurnClient& client);
  template <typename Left>
  size_t poll_queues(base::IntrusiveList<Queue>& queues, size_t looks, Left left);
  size_t poll_its_part(TurnClient& client);
  size_t looks_max() const;
  void found_nothing(Queue& queue);
  bool are_dozers_due();
  bool polls_dozers(TurnClient& client) const;
  size_t use_rest();
  Queue* next_with_part(TurnClient& client);
  size_t do_part();
  void unwatch();
  static void channel_ready(base::Watch& watch);

  base::Reactor& reactor_;
  const size_t index_;
  const std::atomic<size_t>& sessions_;
  std::vector<Share> shares_;  // by endpoint
  bool watching_ = false;
  std::vector<std::unique_ptr<TurnClient>> clients_;
  size_t client_count_ = 0;  // of clients_; single_writer.h
  base::IntrusiveList<TurnClient> busy_;
  Turns turns_;
  uint64_t rounds_ = 0;        // of polls of a client's queues
  uint64_t dozers_ns_ = 0;     // when those that doze were polled last
  bool dozers_due_ = false;    // in this turn
  uint64_t polls_ = 0;         // of queues; single_writer.h
  size_t with_data_ = 0;       // queues with data that waits
  Queue* polled_ = nullptr;    // in the midst of its poll(), unless that made it leave
  bool several_ = false;       // clients shared the last turn
  bool before_sleep_ = false;  // nobody is waiting for the turn to end
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace braid::trs::server
