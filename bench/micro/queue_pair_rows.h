// Post and poll of each software HCA: two queue pairs of one process that one thread polls.
//
// Main thread.
#pragma once

#include <vector>

#include "bench/rounds.h"

namespace braid::bench {

/// One message at a time, from its post to its completions at both ends, ns. No other CPU takes
/// part: what the instructions and system calls of the device take.
void add_queue_pair_rows(std::vector<RowPlan>& plans);

}  // namespace braid::bench
