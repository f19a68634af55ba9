// What many mapped devices cost while nobody uses them.
//
// Main thread.
#pragma once

#include <memory>

#include "bench/rounds.h"

namespace braid::bench {

/// So many remote devices of one server, in-host, after the polling budget: the CPU time of client
/// and server together, in percent of one core.
std::unique_ptr<Candidate> braid_idle(unsigned devices);

}  // namespace braid::bench
