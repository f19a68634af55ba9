// Round: one world from one seed, from start to verdict.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/sim.h"
#include "tests/sim/faults.h"

namespace braid::sim {

struct RoundOptions {
  uint64_t seed = 1;
  uint64_t fault_phase_ns = 15 * base::kSecond;
  std::vector<std::string> mutants;
  /// Prints log lines of the product, faults and operations (kDebug) to stderr, with simulated
  /// time.
  base::LogLevel log_level = base::LogLevel::kOff;
  std::function<void(const base::sim::EventQueue::Due& event)> trace;
};

struct RoundReport {
  std::vector<std::string> violations;  // the first ones, in words
  uint64_t violation_count = 0;
  uint64_t trace_hash = 0;
  uint64_t simulated_ns = 0;
  uint64_t completed = 0;
  uint64_t failed = 0;  // completed with an error that was to be expected
  uint64_t losses_reported = 0;
  uint64_t rest_after_ns = 0;  // from the end of the faults until all was open and at rest
  uint64_t events = 0, turns = 0;
  FaultCounts faults{};
  /// What processes could not have for want of memory or descriptors, and how often:
  /// "client: no memory for a queue pair: Cannot allocate memory".
  std::map<std::string, uint64_t> refused;
};

RoundReport run_round(const RoundOptions& options);

}  // namespace braid::sim
