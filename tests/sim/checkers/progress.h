// Checker: once the faults have stopped, everything ends within a bounded simulated time.
#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/checkers/violations.h"

namespace braid::sim {

class ProgressChecker {
 public:
  ProgressChecker(Violations& violations, uint64_t bound_ns)
      : violations_(violations), bound_ns_(bound_ns) {}

  void faults_stopped(uint64_t now_ns) { since_ns_ = now_ns; }
  /// How long to wait at most.
  uint64_t bound_ns() const { return bound_ns_; }
  void ended(uint64_t now_ns, uint64_t still_outstanding, const std::string& explanation) {
    if (still_outstanding == 0 && now_ns - since_ns_ <= bound_ns_) return;
    violations_.add("{} posts outstanding {:.1f} s after the faults stopped (bound {:.1f} s): {}",
                    still_outstanding, static_cast<double>(now_ns - since_ns_) / 1e9,
                    static_cast<double>(bound_ns_) / 1e9, explanation);
  }

 private:
  Violations& violations_;
  const uint64_t bound_ns_;
  uint64_t since_ns_ = 0;
};

}  // namespace braid::sim
