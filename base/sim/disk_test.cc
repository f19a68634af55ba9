// The simulated disk keeps what was flushed and may lose, keep or tear the rest.
#include "base/sim/disk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace braid::base::sim {
namespace {

constexpr uint64_t kSize = 64 * kSectorBytes;

SimDisk make_disk(uint64_t seed, bool lying = false) {
  SimDiskOptions options;
  options.size_bytes = kSize;
  options.lying = lying;
  return SimDisk("disk", options, SimRandom(seed));
}

void write(SimDisk& disk, uint64_t sector, uint64_t sectors, int value, bool fua = false) {
  std::vector<std::byte> data(sectors * kSectorBytes, static_cast<std::byte>(value));
  ASSERT_EQ(disk.execute(IoOpcode::kWrite, fua, sector * kSectorBytes, data.size(), data.data()),
            Errc::kOk);
}

/// The one value of a sector; a sector is never torn inside.
int value_of(const SimDisk& disk, uint64_t sector) {
  const auto bytes = disk.current().subspan(sector * kSectorBytes, kSectorBytes);
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [&](auto b) { return b == bytes[0]; }));
  return static_cast<int>(bytes[0]);
}

TEST(SimDisk, AFlushThatFailsForgetsWhatItCouldNotWrite) {
  unsigned lost = 0, kept = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SimDisk disk = make_disk(seed);
    write(disk, 0, 8, 1);
    ASSERT_EQ(disk.execute(IoOpcode::kFlush, false, 0, 0, nullptr), Errc::kOk);
    write(disk, 0, 4, 2);
    disk.faults.errors_per_million = 1'000'000;
    EXPECT_EQ(disk.execute(IoOpcode::kFlush, false, 0, 0, nullptr), Errc::kIo);
    disk.faults = {};
    EXPECT_EQ(value_of(disk, 0), 2) << "it is in the cache";
    write(disk, 3, 1, 3);
    ASSERT_EQ(disk.execute(IoOpcode::kFlush, false, 0, 0, nullptr), Errc::kOk);
    const auto dropped = disk.counters().sectors_dropped;
    disk.power_loss();
    for (uint64_t sector = 0; sector < 3; ++sector) ++(value_of(disk, sector) == 1 ? lost : kept);
    EXPECT_EQ(value_of(disk, 3), 3) << "it was written anew";
    EXPECT_EQ(value_of(disk, 4), 1);
    EXPECT_LE(dropped, 4u);
  }
  EXPECT_GT(lost, 0u);
  EXPECT_GT(kept, 0u);
}

TEST(SimDisk, FlushedAndFuaWritesSurviveEveryPowerLoss) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SimDisk disk = make_disk(seed);
    write(disk, 0, 8, 1);
    write(disk, 0, 8, 2);
    ASSERT_EQ(disk.execute(IoOpcode::kFlush, false, 0, 0, nullptr), Errc::kOk);
    write(disk, 8, 8, 3);
    write(disk, 8, 8, 4, true);
    disk.power_loss();
    for (uint64_t s = 0; s < 16; ++s) EXPECT_EQ(value_of(disk, s), s < 8 ? 2 : 4);
  }
}

TEST(SimDisk, AFlushCoversWhatWasWrittenWhenItWasHandedOver) {
  bool later_lost = false, later_kept = false;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SimDisk disk = make_disk(seed);
    write(disk, 0, 2, 1);
    const uint64_t covers = disk.begin_flush();
    write(disk, 1, 2, 2);  // over a covered sector, and beside
    ASSERT_EQ(disk.execute(IoOpcode::kFlush, false, 0, 0, nullptr, covers), Errc::kOk);
    disk.power_loss();
    EXPECT_EQ(value_of(disk, 0), 1);
    EXPECT_NE(value_of(disk, 1), 0);
    later_lost |= value_of(disk, 1) == 1 && value_of(disk, 2) == 0;
    later_kept |= value_of(disk, 1) == 2 && value_of(disk, 2) == 2;
  }
  EXPECT_TRUE(later_lost);
  EXPECT_TRUE(later_kept);
}

TEST(SimDisk, UnflushedWritesAreLostKeptAndTorn) {
  std::set<std::vector<int>> outcomes;
  bool middle_version = false;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SimDisk disk = make_disk(seed);
    write(disk, 0, 4, 1);
    write(disk, 0, 4, 2);
    EXPECT_EQ(value_of(disk, 0), 2) << "reads see the cache";
    disk.power_loss();
    std::vector<int> outcome;
    for (uint64_t s = 0; s < 4; ++s) {
      outcome.push_back(value_of(disk, s));
      ASSERT_LE(outcome.back(), 2);
      middle_version |= outcome.back() == 1;
    }
    outcomes.insert(outcome);
  }
  EXPECT_TRUE(outcomes.contains({0, 0, 0, 0}));
  EXPECT_TRUE(outcomes.contains({2, 2, 2, 2}));
  EXPECT_TRUE(middle_version) << "a cache may have written an older version back";
  EXPECT_GT(outcomes.size(), 10u);
}

TEST(SimDisk, ALyingDiskLosesWhatItAcknowledged) {
  bool lost = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SimDisk disk = make_disk(seed, true);
    write(disk, 0, 1, 1, true);
    EXPECT_EQ(disk.execute(IoOpcode::kFlush, false, 0, 0, nullptr), Errc::kOk);
    disk.power_loss();
    lost |= value_of(disk, 0) == 0;
  }
  EXPECT_TRUE(lost);
}

TEST(SimDisk, ARevertingDiskComesBackAsItWasAtAFlush) {
  unsigned older = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SimDiskOptions options;
    options.size_bytes = kSize;
    options.reverting = true;
    SimDisk disk("disk", options, SimRandom(seed));
    for (int i = 1; i <= 100; ++i) {
      write(disk, 0, 8, i);
      ASSERT_EQ(disk.execute(IoOpcode::kFlush, false, 0, 0, nullptr), Errc::kOk);
    }
    disk.power_loss();
    const int kept = value_of(disk, 0);
    for (uint64_t sector = 1; sector < 8; ++sector) EXPECT_EQ(value_of(disk, sector), kept);
    EXPECT_GT(kept, 0);
    older += kept < 100;
  }
  EXPECT_GT(older, 50u) << "at times it was the last one";
}

TEST(SimDisk, DiscardAndWriteZeroesReadAsZero) {
  SimDisk disk = make_disk(1);
  write(disk, 0, 4, 9);
  ASSERT_EQ(disk.execute(IoOpcode::kDiscard, false, 0, 512, nullptr), Errc::kOk);
  ASSERT_EQ(disk.execute(IoOpcode::kWriteZeroes, true, 512, 512, nullptr), Errc::kOk);
  EXPECT_EQ(value_of(disk, 0), 0);
  EXPECT_EQ(value_of(disk, 1), 0);
  EXPECT_EQ(value_of(disk, 2), 9);
  EXPECT_EQ(static_cast<int>(disk.durable()[512]), 0);
}

TEST(SimDisk, FaultsFailSlowDownAndStall) {
  SimDisk disk = make_disk(3);
  const uint64_t max_ns = disk.options().latency_max_ns;
  EXPECT_LE(disk.completion_time(0), max_ns);
  disk.faults.slow_factor = 100;
  EXPECT_GE(disk.completion_time(0), 100 * disk.options().latency_min_ns);
  disk.faults = {.stalled_until_ns = kSecond};
  EXPECT_GE(disk.completion_time(0), kSecond);
  EXPECT_LE(disk.completion_time(2 * kSecond), 2 * kSecond + max_ns);
  disk.faults = {.errors_per_million = 1'000'000};
  std::vector<std::byte> data(kSectorBytes);
  for (const IoOpcode opcode : {IoOpcode::kRead, IoOpcode::kWrite, IoOpcode::kFlush})
    EXPECT_EQ(disk.execute(opcode, false, 0, kSectorBytes, data.data()), Errc::kIo);
  EXPECT_EQ(disk.counters().errors, 3u);
  EXPECT_EQ(disk.counters().slow, 1u);
  EXPECT_EQ(disk.counters().stalled, 1u);
}

TEST(SimDisk, ANoteIsDurableAtOnceAndBlockDevicesHaveNone) {
  SimDisk disk("d", {}, SimRandom(1));
  EXPECT_EQ(disk.note().value(), 0u);
  ASSERT_TRUE(disk.set_note(7).ok());
  disk.power_loss();
  EXPECT_EQ(disk.note().value(), 7u);
  disk.faults = {.errors_per_million = 1'000'000};
  EXPECT_EQ(disk.set_note(8).code(), Errc::kIo);
  EXPECT_EQ(disk.note().value(), 7u);
  disk.faults.sets_undurably = true;
  EXPECT_EQ(disk.set_note(8).code(), Errc::kIo);
  EXPECT_EQ(disk.note().value(), 8u);
  SimDisk raw("d", {.block_device = true}, SimRandom(1));
  EXPECT_EQ(raw.set_note(1).code(), Errc::kNotSupported);
}

TEST(SimDisk, AStallMayHoldUpSomeOperationsOnly) {
  SimDisk disk("d", {}, SimRandom(1));
  disk.faults = {.stalled_until_ns = kSecond, .stalls_some = true};
  int stalled = 0;
  for (int i = 0; i < 100; ++i) stalled += disk.completion_time(0) >= kSecond;
  EXPECT_GT(stalled, 20);
  EXPECT_LT(stalled, 80);
}

}  // namespace
}  // namespace braid::base::sim
