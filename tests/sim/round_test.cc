// The product under fifty seeds of faults, the replay of a seed, and planted bugs that must be
// found.
#include "tests/sim/round.h"

#include <gtest/gtest.h>

#include "tests/sim/campaign.h"

namespace braid::sim {
namespace {

using base::kSecond;

// Short rounds: with sanitizers, fifty of them take about half a minute of one core.
constexpr uint64_t kFaultPhaseNs = 10 * kSecond;
constexpr uint64_t kSeeds = 50;
constexpr uint64_t kGroups = 5;  // so that ctest runs them side by side

RoundReport run(uint64_t seed, const std::string& mutant = "") {
  RoundOptions options;
  options.seed = seed;
  options.fault_phase_ns = kFaultPhaseNs;
  if (!mutant.empty()) options.mutants.push_back(mutant);
  return run_round(options);
}

std::string text(const RoundReport& report) {
  std::string all;
  for (const std::string& violation : report.violations) all += violation + "\n";
  return all;
}

class FiftySeeds : public ::testing::TestWithParam<uint64_t> {};

TEST_P(FiftySeeds, HoldEveryPromise) {
  CampaignReport sum;
  for (uint64_t i = 1; i <= kSeeds / kGroups; ++i) {
    const uint64_t seed = GetParam() * kSeeds / kGroups + i;
    const RoundReport report = run(seed);
    sum.add(seed, report);
    EXPECT_EQ(report.violation_count, 0u)
        << text(report) << "replay: ./run sim --round-seconds 10 --seed " << seed;
    EXPECT_GT(report.completed, 20u) << "seed " << seed;
  }
  // The rare kinds need more rounds than these.
  EXPECT_LE(sum.missing_faults().size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Groups, FiftySeeds, ::testing::Range(uint64_t{0}, kGroups));

TEST(Simulation, OneSeedReplaysBitForBit) {
  const RoundReport once = run(3);
  const RoundReport again = run(3);
  EXPECT_EQ(once.trace_hash, again.trace_hash);
  EXPECT_EQ(once.completed, again.completed);
  EXPECT_NE(once.trace_hash, run(4).trace_hash);
}

class PlantedBug : public ::testing::TestWithParam<const char*> {};

TEST_P(PlantedBug, IsFoundWithinFiftySeeds) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    if (run(seed, GetParam()).violation_count == 0) continue;
    EXPECT_EQ(run(seed).violation_count, 0u) << "it must be the planted bug that was found";
    return;
  }
  FAIL() << GetParam() << " was not found";
}

INSTANTIATE_TEST_SUITE_P(Mutants, PlantedBug,
                         ::testing::Values("double-completion", "lost-flush", "permit-leak"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace braid::sim
