// Checker: at rest, every permit of a session is back with its queue.
#pragma once

#include <cstdint>
#include <string_view>

#include "tests/sim/checkers/violations.h"

namespace braid::sim {

/// `granted`: permits of the session; `free`: those that could be acquired now.
inline void check_permits_at_rest(Violations& violations, std::string_view session,
                                  uint64_t granted, uint64_t free) {
  if (free != granted)
    violations.add("session {}: {} of {} permits are free at rest", session, free, granted);
}

}  // namespace braid::sim
