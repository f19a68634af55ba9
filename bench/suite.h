// The suites: lists of rows, and the run that measures and writes them.
//
// Main thread.
#pragma once

#include <string>
#include <vector>

#include "bench/rounds.h"

namespace braid::bench {

std::vector<RowPlan> block_suite();
std::vector<RowPlan> micro_suite();
/// Few, without peers: what CI holds against recorded figures (bench/gate.h).
std::vector<RowPlan> gate_suite();

/// Plans of a suite by name, "block", "micro" or "gate". kInvalid naming the suites that there are.
base::Result<std::vector<RowPlan>> suite_named(const std::string& name);

struct SuiteResult {
  std::vector<Row> rows;
  nlohmann::json document;   // passes check_document()
  bool interrupted = false;  // by a signal: the rows are those before it
};

/// Measures the rows that the filter lets pass. kCanceled: by a signal in the first of them;
/// kNotFound: the filter leaves none.
base::Result<SuiteResult> run_suite(const std::string& name, Bench& bench);

}  // namespace braid::bench
