// Campaign: many rounds, one after the other, and their sum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/round.h"

namespace braid::sim {

struct CampaignReport {
  uint64_t rounds = 0;
  uint64_t simulated_ns = 0;
  uint64_t completed = 0, failed = 0, losses_reported = 0;
  uint64_t rest_after_max_ns = 0;
  uint64_t events = 0, turns = 0;
  FaultCounts faults{};
  std::map<std::string, uint64_t> refused;  // see RoundReport
  uint64_t trace_hash = 0;                  // of all rounds
  std::vector<uint64_t> failing_seeds;

  void add(uint64_t seed, const RoundReport& round);
  /// Fault kinds that never had an effect.
  std::vector<FaultKind> missing_faults() const;
};

/// The seed of round `index` of a campaign: `seed` itself first, then others derived from it.
uint64_t round_seed(uint64_t seed, uint64_t index);

}  // namespace braid::sim
