// Checker: once the faults have stopped, everything ends within a bounded simulated time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/sim/checkers/violations.h"

namespace braid::sim {

class ProgressChecker {
 public:
  ProgressChecker(Violations& violations, uint64_t bound_ns)
      : violations_(violations), bound_ns_(bound_ns) {}

  /// How long to wait at most.
  uint64_t bound_ns() const { return bound_ns_; }
  /// `what` was waited for; `explanation`: what the product says that it waits for.
  void waited(std::string_view what, bool reached, uint64_t waited_ns, uint64_t outstanding,
              const std::string& explanation) {
    if (reached && waited_ns <= bound_ns_) return;
    violations_.add("{}: not within {:.1f} s after the faults stopped, {} requests outstanding: {}",
                    what, static_cast<double>(bound_ns_) / 1e9, outstanding, explanation);
  }

 private:
  Violations& violations_;
  const uint64_t bound_ns_;
};

}  // namespace braid::sim
