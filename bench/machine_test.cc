#include "bench/machine.h"

#include <gtest/gtest.h>

namespace braid::bench {
namespace {

TEST(CpuTimes, CountsWaitingForDisksAsIdle) {
  const auto times = parse_cpu_times("cpu  1 1\ncpu1 9\ncpu10 10 1 5 100 20 2 3 7 4 0\n", 10);
  ASSERT_TRUE(times.ok()) << times.error().message();
  EXPECT_EQ(times.value().idle, 120u);
  EXPECT_EQ(times.value().total, 148u);
  EXPECT_EQ(times.value().stolen, 7u);
}

TEST(CpuTimes, RefusesOtherText) {
  EXPECT_FALSE(parse_cpu_times("", 0).ok());
  EXPECT_FALSE(parse_cpu_times("cpu  1 2 3 4 5 6 7 8\n", 0).ok());
  EXPECT_FALSE(parse_cpu_times("cpu  1\ncpu0 1 2 3\n4 5 6 7 8\n", 0).ok());
  EXPECT_FALSE(parse_cpu_times("cpu  1\ncpu0 1 2 x 4 5 6 7 8\n", 0).ok());
}

TEST(IdleFraction, IsTheShareOfTheTimeBetween) {
  EXPECT_DOUBLE_EQ(idle_fraction({.idle = 100, .total = 200}, {.idle = 146, .total = 250}), 0.92);
  EXPECT_EQ(idle_fraction({.idle = 100, .total = 200}, {.idle = 100, .total = 200}), 1);
}

TEST(Quiet, NeedsAnIdleMachineAndAFastCacheLine) {
  const GateOptions options;
  EXPECT_TRUE(quiet({.idle = true, .cache_line_ns = 150}, options));
  EXPECT_FALSE(quiet({.idle = true, .cache_line_ns = 151}, options));
  EXPECT_FALSE(quiet({.idle = false, .cache_line_ns = 110}, options));
}

TEST(CacheLine, TakesSomeTimeAndLeavesTheAffinityAlone) {
  const Cpus cpus = choose_cpus();
  EXPECT_GT(measure_cache_line_ns(cpus, 20), 0);
  const Cpus after = choose_cpus();
  EXPECT_EQ(after.client, cpus.client);
  EXPECT_EQ(after.server, cpus.server);
}

TEST(Observe, SaysBusyAfterItsBound) {
  Interrupts interrupts;
  const GateOptions impossible{
      .idle_min = 1.1, .window_ms = 1, .wait_max_ms = 5, .round_trips = 20};
  const auto seen = observe(interrupts, choose_cpus(), impossible);
  ASSERT_TRUE(seen.ok());
  EXPECT_FALSE(seen.value().idle);
  EXPECT_GT(seen.value().cache_line_ns, 0);
}

TEST(MachineFacts, NameKernelAndCpus) {
  const auto facts = machine_facts(choose_cpus());
  EXPECT_FALSE(facts["kernel"].get<std::string>().empty());
  EXPECT_GE(facts["cpus"].get<long>(), 1);
}

}  // namespace
}  // namespace braid::bench
