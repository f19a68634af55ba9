// The rings of the in-host wire, without the queue pairs around them.
//
// Main thread.
#pragma once

#include <vector>

#include "bench/rounds.h"

namespace braid::bench {

/// A message pushed and taken again by one thread, ns: no cache line moves.
void add_ring_rows(std::vector<RowPlan>& plans);

}  // namespace braid::bench
