#include "bench/workload.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

namespace braid::bench {
namespace {

TEST(Random, StaysBelowItsBoundAndReachesAllOfASmallOne) {
  Random random(7);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random.below(8));
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_EQ(*seen.rbegin(), 7u);
}

TEST(BlockWork, IsSaidAndCountedByItsLength) {
  const BlockWork small,
      large{.write = true, .sequential = true, .block_bytes = 2 << 20, .depth = 8};
  EXPECT_EQ(to_string(small), "4 KiB random read, depth 1");
  EXPECT_EQ(unit_of(small), "IOPS");
  EXPECT_EQ(in_unit_of(small, 7), 7);
  EXPECT_EQ(to_string(large), "2 MiB sequential write, depth 8");
  EXPECT_EQ(unit_of(large), "MiB/s");
  EXPECT_EQ(in_unit_of(large, 7), 14);
}

TEST(FillRandom, LeavesNoPageOfZeroes) {
  std::vector<std::byte> bytes(4 * kBlockBytes);
  fill_random(bytes, 3);
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    EXPECT_NE(std::vector<std::byte>(8), std::vector<std::byte>(&bytes[at], &bytes[at] + 8));
  }
}

TEST(IsOfStore, TellsBlocksOfTheStoreFromOthers) {
  std::vector<std::byte> piece(kFillBytes);
  fill_random(piece, 3 * kFillBytes);
  std::span<std::byte> block(&piece[5 * kBlockBytes], kBlockBytes);
  const uint64_t at = 3 * kFillBytes + 5 * kBlockBytes;
  EXPECT_TRUE(is_of_store(block, at));
  EXPECT_FALSE(is_of_store(block, at + kBlockBytes));
  EXPECT_FALSE(is_of_store(block, at + kFillBytes));
  block.back() ^= std::byte{1};
  EXPECT_FALSE(is_of_store(block, at));
}

TEST(OneWay, IsHalfOfARoundTrip) {
  const Sample sample =
      one_way({.value = 1e6, .latencies = Latencies{1000, 2000, 4000}, .cpu_ns = 600});
  EXPECT_DOUBLE_EQ(sample.value, 500);
  EXPECT_EQ(sample.latencies->p50_ns, 500u);
  EXPECT_EQ(sample.latencies->p999_ns, 2000u);
  EXPECT_EQ(sample.cpu_ns, 300);
}

TEST(ReserveTouched, GivesAnEmptyListThatDoesNotMove) {
  std::vector<uint64_t> values;
  reserve_touched(values, 1000);
  EXPECT_TRUE(values.empty());
  EXPECT_GE(values.capacity(), 1000u);
}

TEST(Pass, CountsAndTimesOperations) {
  uint64_t calls = 0;
  EXPECT_GT(Pass::count(1, [&] { ++calls; }), 0);
  EXPECT_GE(calls, 64u);
  EXPECT_GT(Pass::time(1, [] {}).p999_ns, 0u);
}

TEST(CpuMeter, CountsTheTimeThatThisProcessUses) {
  // Named twice, its time counts twice; the one that begins last has seen least.
  const CpuMeter twice({getpid()});
  const CpuMeter once;
  while (once.used_ns() < 1'000'000) {
  }
  EXPECT_GE(twice.used_ns(), 1'900'000u);
}

TEST(SampleJson, ComesBackAsItWas) {
  const Sample sample{.value = 1.5, .latencies = Latencies{1, 2, 3}, .cpu_ns = 7};
  const auto back = sample_from_json(to_json(sample));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value().value, 1.5);
  EXPECT_EQ(back.value().latencies->p999_ns, 3u);
  EXPECT_EQ(back.value().cpu_ns, 7);
  EXPECT_FALSE(sample_from_json({{"other", 1}}).ok());
  EXPECT_FALSE(sample_from_json(nullptr).ok());
}

}  // namespace
}  // namespace braid::bench
