// A Google Benchmark loop as one side of a row.
//
// Main thread; the loop itself runs in a child process, pinned to the client's CPU.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>

#include "bench/rounds.h"

namespace braid::bench {

/// The time of one iteration, ns.
std::unique_ptr<Candidate> benchmark_loop(std::string name,
                                          std::function<void(benchmark::State&)> loop);

}  // namespace braid::bench
