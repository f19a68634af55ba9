// Waiting by looking: how the two sides of a floor measurement poll.
#pragma once

#include <sched.h>

#include <cstdint>

namespace braid::bench {

/// One wait. Looks without a pause at first, as any poller that wants the best latency; where two
/// pollers share a CPU (a loaded machine, or only one CPU) it lets the other run after a while.
class Spinner {
 public:
  void turn() {
    if (++turns_ % kTurnsBeforeYield == 0) sched_yield();
  }

 private:
  // Some 20 us of looking: far above any answer of a polling peer.
  static constexpr uint32_t kTurnsBeforeYield = 1 << 14;
  uint32_t turns_ = 0;
};

}  // namespace braid::bench
