#include "bench/machine.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace braid::bench {
namespace {

TEST(CpuTimes, CountsWaitingForDisksAsIdle) {
  const auto times = parse_cpu_times("cpu  1 1 1 1 1 1 1 1\ncpu0 10 1 5 100 20 2 3 7 4 0\n", {{0}});
  ASSERT_TRUE(times.ok()) << times.error().message();
  EXPECT_EQ(times.value().idle, 120u);
  EXPECT_EQ(times.value().total, 148u);
  EXPECT_EQ(times.value().stolen, 7u);
}

TEST(CpuTimes, AreThoseOfTheCpusAskedFor) {
  const std::string_view busy_elsewhere =
      "cpu  0 0 0 0 0 0 0 0\ncpu0 1 0 0 10 0 0 0 0\ncpu1 90 0 0 0 0 0 0 0\ncpu10 2 0 0 20 0 0 0 "
      "0\n";
  const auto times = parse_cpu_times(busy_elsewhere, {{0, 10}});
  ASSERT_TRUE(times.ok()) << times.error().message();
  EXPECT_EQ(times.value().idle, 30u);
  EXPECT_EQ(times.value().total, 33u);
}

TEST(CpuTimes, RefusesOtherText) {
  EXPECT_FALSE(parse_cpu_times("", {{0}}).ok());
  EXPECT_FALSE(parse_cpu_times("cpu  1 2 3 4 5 6 7 8\n", {{0}}).ok());
  EXPECT_FALSE(parse_cpu_times("\ncpu0 1 2 3\n4 5 6 7 8\n", {{0}}).ok());
  EXPECT_FALSE(parse_cpu_times("\ncpu0 1 2 x 4 5 6 7 8\n", {{0}}).ok());
}

TEST(CpuList, IsTheKernels) {
  EXPECT_EQ(parse_cpu_list("3\n").value(), std::vector<int>{3});
  EXPECT_EQ(parse_cpu_list("0-2,5,8-9\n").value(), (std::vector<int>{0, 1, 2, 5, 8, 9}));
  for (const char* wrong : {"", "\n", "a", "1,", ",1", "1-", "2-1", "1 2", "-1", "0-99999999"}) {
    EXPECT_FALSE(parse_cpu_list(wrong).ok()) << wrong;
  }
}

TEST(Cpus, AreWatchedWithTheirSiblings) {
  const Cpus cpus = choose_cpus();
  const std::vector<int> watched = cpus_to_watch(cpus);
  for (const int cpu : {cpus.client, cpus.server}) {
    EXPECT_NE(std::find(watched.begin(), watched.end(), cpu), watched.end());
  }
  EXPECT_EQ(share_a_core({.client = cpus.client, .server = cpus.client}), true);
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
  EXPECT_FALSE(quiet({.idle = true, .cache_line_ns = 0}, options));
}

TEST(CacheLine, TakesSomeTimeAndLeavesTheAffinityAlone) {
  const Cpus cpus = choose_cpus();
  EXPECT_GT(measure_cache_line_ns(cpus, 20), 0);
  const Cpus after = choose_cpus();
  EXPECT_EQ(after.client, cpus.client);
  EXPECT_EQ(after.server, cpus.server);
}

TEST(Observe, LooksAtTheLineOfAnIdleMachineOnly) {
  const Interrupts interrupts;
  GateOptions options{.idle_min = 1.1, .window_ms = 1, .round_trips = 20};
  const auto busy = observe(interrupts, choose_cpus(), options);
  ASSERT_TRUE(busy.ok());
  EXPECT_FALSE(busy.value().idle);
  EXPECT_EQ(busy.value().cache_line_ns, 0);
  options.idle_min = 0;
  EXPECT_GT(observe(interrupts, choose_cpus(), options).value().cache_line_ns, 0);
}

TEST(MachineFacts, NameKernelAndCpus) {
  const auto facts = machine_facts(choose_cpus());
  EXPECT_FALSE(facts["kernel"].get<std::string>().empty());
  EXPECT_GE(facts["cpus"].get<long>(), 1);
}

}  // namespace
}  // namespace braid::bench
