// What `braid map` takes as people use it: a command, a daemon, a front end of the kernel.
//
// Main thread. Root.
#pragma once

#include <memory>

#include "bench/rounds.h"

namespace braid::bench {

/// `braid map` of `count` exports of memory of one server, one after the other, to a daemon that
/// has just started, by FUSE + loop: how long the longest takes, from the start of the command to
/// its end, ms. Not counted, unless it is the only one: the first, which opens the session.
std::unique_ptr<Candidate> braid_map_command(unsigned count);

/// The same disks once they are mapped and nobody uses them: the CPU time of the daemon and the
/// server together, in percent of one core.
std::unique_ptr<Candidate> braid_mapped_idle(unsigned count);

/// The start and end of the same program without a daemon that it could ask: the floor.
std::unique_ptr<Candidate> braid_command_alone(unsigned count);

}  // namespace braid::bench
