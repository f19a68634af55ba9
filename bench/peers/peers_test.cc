#include <gtest/gtest.h>

#include "bench/peers/fio.h"
#include "bench/peers/ucx.h"

namespace braid::bench {
namespace {

constexpr const char* kFio =
    R"({"jobs": [{"jobname": "fill", "error": 0},
  {"jobname": "timed", "error": 0, "usr_cpu": 20.0, "sys_cpu": 30.0, "read": {"iops": 25000,
   "lat_ns": {"percentile": {"50.000000": 36000, "99.000000": 60000, "99.900000": 90000}}}}]})";

TEST(ParseFio, TakesIopsAndPercentiles) {
  const auto sample = parse_fio(kFio, {});
  ASSERT_TRUE(sample.ok()) << sample.error().message();
  EXPECT_DOUBLE_EQ(sample.value().value, 25000);
  EXPECT_DOUBLE_EQ(*sample.value().cpu_ns, 20000);
  EXPECT_EQ(sample.value().latencies->p50_ns, 36000u);
  EXPECT_EQ(sample.value().latencies->p999_ns, 90000u);
}

TEST(ParseFio, TakesWritesAndLargeBlocksInTheirUnit) {
  std::string writes = kFio;
  writes.replace(writes.find("read"), 4, "write");
  const auto sample = parse_fio(writes, {.write = true, .block_bytes = 2 << 20});
  ASSERT_TRUE(sample.ok()) << sample.error().message();
  EXPECT_DOUBLE_EQ(sample.value().value, 50000);
  EXPECT_DOUBLE_EQ(*sample.value().cpu_ns, 20000);
  EXPECT_FALSE(parse_fio(writes, {}).ok());
}

TEST(ParseFio, SkipsWarningsInFront) {
  EXPECT_TRUE(parse_fio(std::string("fio: a warning\n") + kFio, {}).ok());
}

TEST(ParseFio, RefusesAFailedJobAndOtherText) {
  std::string failed = kFio;
  failed.replace(failed.find("\"error\": 0"), 10, "\"error\": 5");
  EXPECT_FALSE(parse_fio(failed, {}).ok()) << "the fill has failed";
  std::string other = kFio;
  other.replace(other.find("timed"), 5, "other");
  EXPECT_FALSE(parse_fio(other, {}).ok());
  EXPECT_FALSE(parse_fio("", {}).ok());
  EXPECT_FALSE(parse_fio("{}", {}).ok());
}

TEST(ParseUcx, TakesTheOverallLatency) {
  const auto sample = parse_ucx(
      "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw\n20000,0.387,0.401,0.402,19.02\n");
  ASSERT_TRUE(sample.ok()) << sample.error().message();
  EXPECT_DOUBLE_EQ(sample.value().value, 402);
  EXPECT_EQ(sample.value().latencies->p50_ns, 387u);
}

TEST(ParseUcx, RefusesOtherText) {
  EXPECT_FALSE(parse_ucx("").ok());
  EXPECT_FALSE(parse_ucx("iterations,50.0_percentile_lat\n").ok());
  EXPECT_FALSE(parse_ucx("20000,0.3\n").ok());
  EXPECT_FALSE(parse_ucx("20000,0.387,0.401,0\n").ok());
}

}  // namespace
}  // namespace braid::bench
