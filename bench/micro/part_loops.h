// Single-threaded loops over small parts that stand on the way of every request.
//
// Main thread.
#pragma once

#include <vector>

#include "bench/rounds.h"

namespace braid::bench {

/// Rows without a peer: what each part costs, ns, and the least that its work takes.
void add_part_loops(std::vector<RowPlan>& plans);

}  // namespace braid::bench
