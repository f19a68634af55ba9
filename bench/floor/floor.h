// Floors: the least that the machine lets two polling processes do. No protocol, no checks.
//
// Main thread.
#pragma once

#include "bench/rounds.h"
#include "bench/workload.h"

namespace braid::bench {

/// Operations in unit_of(work): a request in one cache line, one copy between the store and memory
/// of both, an answer in one cache line.
std::unique_ptr<Candidate> shared_memory_io(const BlockWork& work);

/// A cache line, one way, ns.
std::unique_ptr<Candidate> cache_line_one_way();

/// Waking a process that sleeps on an eventfd and being woken by it, ns.
std::unique_ptr<Candidate> eventfd_round_trip();
/// The same as operations a second.
std::unique_ptr<Candidate> eventfd_round_trips();

}  // namespace braid::bench
