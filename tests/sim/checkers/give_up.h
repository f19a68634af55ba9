// Checker: a device with a limit (RemoteDeviceOptions::give_up_after_ns) fails its requests when it
// has been away for so long, neither before nor much later.
//
// What a client believes of its device proves nothing. But the device was there when it was opened
// and when a request succeeded, and it cannot be while its server is dead.
#pragma once

#include <cstdint>

#include "base/host.h"
#include "tests/sim/checkers/violations.h"

namespace braid::sim {

class GiveUpChecker {
 public:
  /// Until a loss is noticed: docs/trs.md; then requests end with the next turns.
  static constexpr uint64_t kSlackNs = base::kSecond;
  /// What a request that is submitted to a device that gave up may take.
  static constexpr uint64_t kAtOnceNs = 100 * base::kMillisecond;

  explicit GiveUpChecker(Violations& violations) : violations_(violations) {}

  /// A request failed with kTimedOut. `there_ns`: when the device was last known to be there.
  void gave_up(uint64_t device, uint64_t limit_ns, uint64_t there_ns, uint64_t now_ns) {
    ++count_;
    if (limit_ns == base::kNever) {
      violations_.add("device {}: a request failed by giving up, and the device has no limit",
                      device);
    } else if (now_ns - there_ns < limit_ns) {
      violations_.add("device {}: gave up {} ms after it was there, its limit is {} ms", device,
                      (now_ns - there_ns) / base::kMillisecond, limit_ns / base::kMillisecond);
    }
  }
  /// The server is dead since limit and slack; a request that began then is still under way.
  void still_held(uint64_t device, uint64_t limit_ns, uint64_t begin_ns, uint64_t now_ns) {
    if (now_ns - begin_ns <= kAtOnceNs) return;
    violations_.add("device {}: has not given up, its server is dead for {} ms, its limit is {} ms",
                    device, (limit_ns + kSlackNs) / base::kMillisecond,
                    limit_ns / base::kMillisecond);
  }
  uint64_t count() const { return count_; }

 private:
  Violations& violations_;
  uint64_t count_ = 0;
};

}  // namespace braid::sim
