// Queue: one reactor's part of a group.
//
// Where a request is, in the order of its life:
//   waiting_      lacks permits; only the first one is gathering them
//   at its legs   each part at its session, and in Leg::parts
//   ending_       all parts have ended; `done` runs in the next poll
//
// Permits are gathered in the order of the sessions' ids, and held meanwhile. So whoever holds some
// waits for one of a higher session, and the one that holds the highest waits for none. A permit of
// a leg that has no path may take for ever: nothing is held while one waits for it. One of a leg
// that has a path may, too (a disk that hangs): what is held is given back after kHoldNs, and
// gathered anew when that permit is there, with twice the time each time.
//
// Threads: the reactor's, apart from the section "from the home reactor", whose calls post
// themselves over.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include "trs/group.h"

namespace braid::trs::group {

class Queue final : public GroupQueue, private base::Poller {
 public:
  explicit Queue(base::Reactor& reactor);
  ~Queue() override;

  // --- from the home reactor; `done` runs on the queue's
  using Done = std::function<void()>;
  void start();
  void attach(size_t slot, ClientQueue& queue, const SessionId& session, LegPolicy policy,
              Done done);
  /// `done` when nothing of the leg is in flight here.
  void detach(size_t slot, Done done);
  /// For good; no legs are left.
  void stop(Done done);

  // --- GroupQueue
  void submit(GroupRequest& request) override;
  GroupStatistics statistics() const override;

 private:
  struct Leg {
    ClientQueue* queue = nullptr;  // null: none in this slot
    SessionId session{};
    LegPolicy policy = LegPolicy::kWait;
    Done detached;                         // set: it is being removed
    base::IntrusiveList<GroupPart> parts;  // at its session
    bool sends() const { return queue != nullptr && !detached; }
  };
  template <typename Function>
  void run_here(Function function);
  void sort();
  bool serve();
  bool gather(GroupRequest& request);
  void let_go(GroupRequest& request);
  void hold(GroupRequest& request);
  static void held_long_enough(base::Timer& timer);
  void wait_at(Leg& leg);
  void stop_waiting();
  void send(GroupRequest& request);
  void send_part(GroupRequest& request, size_t slot);
  void part_over(GroupRequest& request);
  static void part_done(ClientRequest& request, base::Errc status);
  static void permit_free(PermitWaiter& waiter);
  bool check_wait();
  bool take_back(Leg& leg);
  bool end_requests();
  bool poll() override;
  bool arm() override { return !poll(); }

  base::Reactor& reactor_;
  std::array<Leg, kLegsMax> legs_;
  std::array<size_t, kLegsMax> order_{};  // slots in use, by their sessions' ids
  size_t order_count_ = 0;
  PermitWaiter waiter_;
  Leg* waits_at_ = nullptr;  // whose permit the first of waiting_ lacks
  base::Timer hold_;         // runs while it waits with others in hand
  uint64_t hold_ns_;
  base::IntrusiveList<GroupRequest> waiting_;
  base::IntrusiveList<GroupRequest> ending_;
  GroupStatistics statistics_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace braid::trs::group
