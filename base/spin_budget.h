// How long a thread that has nothing to do looks for work before it sleeps.
//
//   nothing is owed to it     the budget
//   an answer is owed to it   kAwaitedLeast budgets, and up to kAwaitedMost where that is how long
//                             answers take: who sleeps just before one pays for a wake-up, and so
//                             does the other end, which has fallen asleep meanwhile
//
// How long they take is learned: each sleep that ended within kAwaitedMost budgets of the last work
// doubles the time, each that took longer halves it. So a disk that tells of its requests half a
// millisecond apart finds both ends awake, and one that takes ten costs a fiftieth of a processor.
//
// Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/timer.h"

namespace braid::base {

class SpinBudget {
 public:
  static constexpr uint64_t kAwaitedLeast = 4;
  static constexpr uint64_t kAwaitedMost = 20;

  /// 0: sleeps at once; kNever: never.
  explicit SpinBudget(uint64_t budget_ns)
      : budget_ns_(std::min(budget_ns, kNever / kAwaitedMost)),
        awaited_ns_(kAwaitedLeast * budget_ns_) {}

  /// After a turn that did something.
  void worked(uint64_t now_ns) {
    if (slept_ && awaits_) learn(now_ns - idle_since_ns_);
    begin();
  }
  /// As if work had been done just now, of which nothing is to be learned.
  void begin() {
    idle_since_ns_ = kNever;
    slept_ = asked_ = awaits_ = false;
  }
  /// After a turn that did nothing: whether it is time to sleep. `awaits()` says whether an answer
  /// is owed to this thread; asked when the budget is over, once until there is work.
  template <typename Awaits>
  bool spent(uint64_t now_ns, Awaits awaits) {
    if (idle_since_ns_ == kNever) idle_since_ns_ = now_ns;
    const uint64_t idle_ns = now_ns - idle_since_ns_;
    if (idle_ns < budget_ns_) return false;
    if (!asked_) {
      asked_ = true;
      awaits_ = awaits();
    }
    return !awaits_ || idle_ns >= awaited_ns_;
  }
  /// A sleep follows.
  void sleeps() { slept_ = true; }

 private:
  void learn(uint64_t idle_ns) {
    const uint64_t most_ns = kAwaitedMost * budget_ns_;
    awaited_ns_ = idle_ns <= most_ns ? std::min(2 * awaited_ns_, most_ns)
                                     : std::max(awaited_ns_ / 2, kAwaitedLeast * budget_ns_);
  }

  const uint64_t budget_ns_;
  uint64_t awaited_ns_;
  uint64_t idle_since_ns_ = kNever;  // the first of the present row of empty turns
  bool slept_ = false;               // in it
  bool asked_ = false;
  bool awaits_ = false;
};

}  // namespace braid::base
