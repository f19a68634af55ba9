// Two reactors that send messages to each other, and the turn of one alone.
#pragma once

#include <vector>

#include "bench/rounds.h"

namespace braid::bench {

void add_reactor_rows(std::vector<RowPlan>& plans);

}  // namespace braid::bench
