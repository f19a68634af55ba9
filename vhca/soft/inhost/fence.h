// Waiting until a copy that may be under way has ended.
#pragma once

#include <cstdint>

#include "base/host.h"

namespace braid::vhca::soft::inhost {

/// Waits until `activity()`, odd during a copy, is even or another than it was at first. `gone()`
/// says that nobody is left who copies. False: neither came within `bound_ns`. Spins: the rest of a
/// copy is short, and whoever waits (close, deregister) is on a control path.
template <typename Activity, typename Gone>
bool wait_for_copy(base::Host& host, uint64_t bound_ns, Activity activity, Gone gone) {
  constexpr unsigned kSpins = 100;
  const uint64_t first = activity();
  if ((first & 1) == 0) return true;
  uint64_t deadline_ns = 0;
  for (unsigned round = 0; activity() == first; ++round) {
    if (round < kSpins) continue;
    if (gone()) return true;
    const uint64_t now_ns = host.now_ns();
    if (deadline_ns == 0) deadline_ns = now_ns + bound_ns;
    if (now_ns >= deadline_ns) return false;
    host.yield();
  }
  return true;
}

}  // namespace braid::vhca::soft::inhost
