// Filters over a device that does nothing: what a request costs that each lets pass.
//
// Main thread.
#pragma once

#include <vector>

#include "bench/rounds.h"

namespace braid::bench {

/// 4 KiB reads, ns; the floor is the device alone, and for checksums the hash of the block as well.
void add_filter_rows(std::vector<RowPlan>& plans);

}  // namespace braid::bench
