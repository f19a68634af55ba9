// How long a thread that has nothing to do looks for work before it sleeps.
//
//   nothing is owed to it     the budget
//   an answer is owed to it   kAwaitedLeast budgets, and up to kAwaitedMost where that is how long
//                             answers take, but no longer than kAwaitedMostNs, unless that is less
//                             than the budget: who sleeps just before an answer pays for a wake-up,
//                             and so does the other end, which has fallen asleep meanwhile
//
// How long they take is learned. Each answer that ended a sleep within the longest time doubles the
// time; an answer that took longer, and whatever else came when the least was over, halves it. So a
// disk that tells of its requests half a millisecond apart finds both ends awake, and one that
// takes ten, or hangs, costs a fiftieth of a processor.
//
// Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/host.h"

namespace braid::base {

class SpinBudget {
 public:
  static constexpr uint64_t kAwaitedLeast = 4;
  static constexpr uint64_t kAwaitedMost = 20;
  /// A TRS connection that is silent for so long asks for wake-ups, which costs its peer a call.
  static constexpr uint64_t kAwaitedMostNs = kMillisecond;

  /// 0: sleeps at once; kNever: never.
  explicit SpinBudget(uint64_t budget_ns)
      : budget_ns_(std::min(budget_ns, kNever / kAwaitedMost)),
        most_ns_(std::max(budget_ns_, std::min(kAwaitedMost * budget_ns_, kAwaitedMostNs))),
        least_ns_(std::min(kAwaitedLeast * budget_ns_, most_ns_)),
        awaited_ns_(least_ns_) {}

  /// A new row of empty turns begins, of which nothing is known yet.
  void begin() {
    idle_since_ns_ = kNever;
    slept_ = asked_ = awaits_ = false;
  }
  /// After a turn that did something. `source`: awaits(), whether an answer is owed, which is asked
  /// when the budget is over, once until there is work; answers(), how many have come so far.
  template <typename Source>
  void worked(uint64_t now_ns, Source& source) {
    if (awaits_) learn(now_ns - idle_since_ns_, source.answers() != answers_);
    begin();
  }
  /// Nobody waits any longer, and nothing has come.
  void gave_up(uint64_t now_ns) {
    if (awaits_) learn(now_ns - idle_since_ns_, false);
    begin();
  }
  /// After a turn that did nothing: whether it is time to sleep.
  template <typename Source>
  bool spent(uint64_t now_ns, Source& source) {
    if (idle_since_ns_ == kNever) idle_since_ns_ = now_ns;
    const uint64_t idle_ns = now_ns - idle_since_ns_;
    if (idle_ns < budget_ns_) return false;
    if (!asked_) {
      asked_ = true;
      awaits_ = source.awaits();
      answers_ = source.answers();
    }
    return !awaits_ || idle_ns >= awaited_ns_;
  }
  /// A sleep follows.
  void sleeps() { slept_ = true; }

 private:
  void learn(uint64_t idle_ns, bool answered) {
    if (answered && idle_ns <= most_ns_) {
      if (slept_) awaited_ns_ = std::min(2 * awaited_ns_, most_ns_);
    } else if (idle_ns >= least_ns_) {
      awaited_ns_ = std::max(awaited_ns_ / 2, least_ns_);
    }
  }

  const uint64_t budget_ns_;
  const uint64_t most_ns_;
  const uint64_t least_ns_;
  uint64_t awaited_ns_;
  uint64_t idle_since_ns_ = kNever;  // the first of the present row of empty turns
  uint64_t answers_ = 0;             // when that was asked
  bool slept_ = false;               // in it
  bool asked_ = false;
  bool awaits_ = false;
};

}  // namespace braid::base
