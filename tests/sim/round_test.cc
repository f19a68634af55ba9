// The product under two hundred seeds of faults, the replay of a seed, and planted bugs that must
// be found.
#include "tests/sim/round.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "tests/sim/campaign.h"
#include "tests/sim/mutants.h"
#include "tests/sim/replay_note.h"

namespace braid::sim {
namespace {

using base::kSecond;

// Short rounds: many of them must do for a test.
constexpr uint64_t kFaultPhaseNs = 4 * kSecond;
constexpr uint64_t kSeeds = 200;
constexpr uint64_t kShards = 2;  // each a test of its own, to be run beside the others
constexpr uint64_t kSeedsForMutant = 200;
// Of one round: with fewer it shows nothing. Seed 11 has one client and a server that is away.
constexpr uint64_t kCompletedMin = 9;

RoundReport run(uint64_t seed, const std::string& mutant = "",
                uint64_t fault_phase_ns = kFaultPhaseNs) {
  RoundOptions options;
  options.seed = seed;
  options.fault_phase_ns = fault_phase_ns;
  std::string command =
      fmt::format("./run sim --round-seconds {} --seed {}", fault_phase_ns / kSecond, seed);
  if (!mutant.empty()) {
    options.mutants.push_back(mutant);
    command += " --mutant " + mutant;
  }
  const ReplayNote note(command);
  return run_round(options);
}

std::string text(const RoundReport& report) {
  std::string all;
  for (const std::string& violation : report.violations) all += violation + "\n";
  return all;
}

/// What a path is made of, at both ends, for want of either: each has to be refused somewhere.
constexpr std::array<std::string_view, 10> kPartsOfPaths = {
    "client: cannot create memory for trs headers: Cannot allocate memory",
    "client: cannot create memory for trs headers: Too many open files",
    "client: no memory for a completion queue",
    "client: no memory for a queue pair",
    "client: no memory for a registration of memory",
    "server: cannot accept a TCP connection",
    "server: cannot create memory for trs chunks",
    "server: no memory for a protection domain",
    "server: no memory for a queue pair",
    "server: no memory for a registration of memory",
};

class TwoHundredSeeds : public ::testing::TestWithParam<uint64_t> {};

TEST_P(TwoHundredSeeds, HoldEveryPromiseUnderEveryKindOfFault) {
  CampaignReport sum;
  constexpr uint64_t kEach = kSeeds / kShards;
  for (uint64_t seed = 1 + GetParam() * kEach; seed <= (GetParam() + 1) * kEach; ++seed) {
    const RoundReport report = run(seed);
    sum.add(seed, report);
    EXPECT_EQ(report.violation_count, 0u)
        << text(report) << "replay: ./run sim --round-seconds 4 --seed " << seed;
    EXPECT_GT(report.completed, kCompletedMin) << "seed " << seed << ": too few to show anything";
  }
  EXPECT_GT(sum.completed, 500 * kEach) << "too few to show anything";
  for (const FaultKind kind : sum.missing_faults())
    ADD_FAILURE() << "no " << to_string(kind) << " had an effect in " << kEach << " rounds";
  for (const std::string_view what : kPartsOfPaths)
    EXPECT_TRUE(std::ranges::any_of(
        sum.refused, [what](const auto& each) { return each.first.starts_with(what); }))
        << "nobody was told: " << what;
}

INSTANTIATE_TEST_SUITE_P(Shards, TwoHundredSeeds, ::testing::Range<uint64_t>(0, kShards));

class LongRounds : public ::testing::TestWithParam<uint64_t> {};

TEST_P(LongRounds, HoldEveryPromiseToo) {
  const RoundReport report = run(GetParam(), "", 15 * kSecond);
  EXPECT_EQ(report.violation_count, 0u)
      << text(report) << "replay: ./run sim --round-seconds 15 --seed " << GetParam();
  EXPECT_GT(report.completed, kCompletedMin);
}

INSTANTIATE_TEST_SUITE_P(Seeds, LongRounds, ::testing::Range<uint64_t>(201, 209));

TEST(Campaign, TellsWhichFaultsNeverHadAnEffect) {
  RoundReport round;
  round.faults.fill(1);
  round.faults[static_cast<size_t>(FaultKind::kDiskStall)] = 0;
  CampaignReport sum;
  sum.add(1, round);
  EXPECT_EQ(sum.missing_faults(), std::vector{FaultKind::kDiskStall});
  round.faults.fill(1);
  sum.add(2, round);
  EXPECT_TRUE(sum.missing_faults().empty());
}

TEST(Simulation, OneSeedReplaysBitForBit) {
  uint64_t other = 0;
  for (const uint64_t seed : {3, 4, 5}) {
    const RoundReport once = run(seed);
    const RoundReport again = run(seed);
    EXPECT_EQ(once.trace_hash, again.trace_hash);
    EXPECT_EQ(once.completed, again.completed);
    EXPECT_NE(once.trace_hash, std::exchange(other, once.trace_hash));
  }
}

TEST(SimulationDeathTest, ACrashSaysHowToReplayIt) {
  EXPECT_DEATH((void)run(7, std::string(kCrashMutant)),
               "replay: ./run sim --round-seconds 4 --seed 7 --mutant crash");
}

class PlantedBug : public ::testing::TestWithParam<Mutant> {};

TEST_P(PlantedBug, IsFoundByItsChecker) {
  const Mutant& mutant = GetParam();
  for (uint64_t seed = mutant.seed; seed < mutant.seed + kSeedsForMutant; ++seed) {
    if (text(run(seed, std::string(mutant.name))).find(mutant.seen_as) == std::string::npos)
      continue;
    EXPECT_EQ(run(seed).violation_count, 0u) << "it must be the planted bug that was found";
    return;
  }
  FAIL() << mutant.name << " was not seen as: " << mutant.seen_as;
}

INSTANTIATE_TEST_SUITE_P(Mutants, PlantedBug, ::testing::ValuesIn(kMutants),
                         [](const auto& instance) {
                           std::string name(instance.param.name);
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace braid::sim
