// Turns of a simulated reactor that take as long as what was done in them.
//
// A turn of a simulated reactor costs the same however much it does (base/sim/world.h). Where that
// hides what is looked for, as when one client keeps a server's processor busy, the scenario says
// what the work of a turn is worth.
#pragma once

#include <cstdint>
#include <functional>

namespace braid::base {
class Reactor;
}

namespace braid::base::sim {

/// After each turn of this reactor, which must be one of a SimHost: for how much longer its thread
/// is busy with what that turn did. What the turn sent has left at its begin.
void charge_turns(Reactor& reactor, std::function<uint64_t()> work_ns);

}  // namespace braid::base::sim
