// What it takes to set up a session with a server, and to map one device of it.
//
// Main thread.
#pragma once

#include <vector>

#include "bench/rounds.h"

namespace braid::bench {

/// The median one, us. The floor is a bare connection of the same kind.
void add_session_rows(std::vector<RowPlan>& plans);

}  // namespace braid::bench
