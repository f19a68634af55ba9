#include "bnbd/latency.h"

#include <gtest/gtest.h>

namespace braid::bnbd {
namespace {

TEST(LatencyHistogram, is_empty_at_first) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.percentile_ns(99), 0u);
  EXPECT_EQ(histogram.mean_ns(), 0u);
}

TEST(LatencyHistogram, percentiles_are_at_most_a_sixteenth_too_high) {
  LatencyHistogram histogram;
  for (uint64_t us = 1; us <= 1000; ++us) histogram.record(us * 1000);
  for (double percent : {1.0, 50.0, 90.0, 99.0, 99.9}) {
    const double truth = percent * 10 * 1000;
    const auto found = static_cast<double>(histogram.percentile_ns(percent));
    EXPECT_GE(found, truth) << percent;
    EXPECT_LE(found, truth * 1.0625) << percent;
  }
  EXPECT_EQ(histogram.percentile_ns(100), 1'000'000u);
  EXPECT_EQ(histogram.mean_ns(), 500'500u);
}

TEST(LatencyHistogram, holds_the_smallest_and_the_largest_value) {
  LatencyHistogram histogram;
  histogram.record(0);
  histogram.record(UINT64_MAX);
  EXPECT_EQ(histogram.percentile_ns(50), 0u);
  EXPECT_EQ(histogram.percentile_ns(100), UINT64_MAX);
}

TEST(LatencyHistogram, every_value_lies_in_a_bucket_that_reaches_up_to_it) {
  for (unsigned bit = 0; bit < 64; ++bit) {
    for (uint64_t value :
         {(uint64_t{1} << bit) - 1, uint64_t{1} << bit, (uint64_t{1} << bit) + 1}) {
      LatencyHistogram histogram;
      histogram.record(value);
      histogram.record(UINT64_MAX);
      const uint64_t found = histogram.percentile_ns(50);
      EXPECT_GE(found, value);
      EXPECT_LE(found, value + value / 16);
    }
  }
}

TEST(LatencyHistogram, two_can_be_added) {
  LatencyHistogram a;
  LatencyHistogram b;
  a.record(10);
  b.record(1000);
  a.add(b);
  EXPECT_EQ(a.count(), 2u);
  EXPECT_EQ(a.max_ns(), 1000u);
  EXPECT_EQ(a.percentile_ns(50), 10u);
}

}  // namespace
}  // namespace braid::bnbd
