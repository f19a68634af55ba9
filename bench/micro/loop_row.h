// A row of two loops in one thread: a part of Braid, and the least that its work takes.
//
// Main thread.
#pragma once

#include <string>
#include <vector>

#include "bench/micro/google.h"

namespace braid::bench {

struct Loop {
  std::string name;
  std::function<void(benchmark::State&)> run;
};

/// Costs in ns, without a peer.
inline void add_loop_row(std::vector<RowPlan>& plans, std::string name, Loop ours, Loop floor) {
  RowPlan plan{.name = std::move(name), .unit = "ns"};
  plan.ours = benchmark_loop(std::move(ours.name), std::move(ours.run));
  plan.floor = benchmark_loop(std::move(floor.name), std::move(floor.run));
  plans.push_back(std::move(plan));
}

}  // namespace braid::bench
