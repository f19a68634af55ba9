// The peer of messages into memory that no segment holds: the kernel's own call for it.
//
// Main thread.
#pragma once

#include "bench/rounds.h"

namespace braid::bench {

/// 8 bytes written with process_vm_writev into memory that the other process looks at; one way
/// (half of a ping-pong), ns.
std::unique_ptr<Candidate> process_vm_ping();

}  // namespace braid::bench
