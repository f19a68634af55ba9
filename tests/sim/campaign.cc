#include "tests/sim/campaign.h"

#include <algorithm>

#include "base/sim.h"

namespace braid::sim {

void CampaignReport::add(uint64_t seed, const RoundReport& round) {
  ++rounds;
  simulated_ns += round.simulated_ns;
  completed += round.completed;
  failed += round.failed;
  losses_reported += round.losses_reported;
  rest_after_max_ns = std::max(rest_after_max_ns, round.rest_after_ns);
  events += round.events;
  turns += round.turns;
  trace_hash = trace_hash * 0x9e3779b97f4a7c15 + round.trace_hash;
  for (size_t i = 0; i < kFaultKinds; ++i) faults[i] += round.faults[i];
  for (const auto& [what, times] : round.refused) refused[what] += times;
  if (round.violation_count != 0) failing_seeds.push_back(seed);
}

std::vector<FaultKind> CampaignReport::missing_faults() const {
  std::vector<FaultKind> missing;
  for (size_t i = 0; i < kFaultKinds; ++i)
    if (faults[i] == 0) missing.push_back(static_cast<FaultKind>(i));
  return missing;
}

uint64_t round_seed(uint64_t seed, uint64_t index) {
  // 48 bits, to be typed by people.
  return index == 0 ? seed : base::sim::SimRandom(seed + (index << 32)).next() >> 16;
}

}  // namespace braid::sim
