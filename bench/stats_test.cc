#include "bench/stats.h"

#include <gtest/gtest.h>

namespace braid::bench {
namespace {

TEST(Summarise, MedianOfAnOddNumberIsTheMiddleOne) {
  const std::vector<double> values{5, 1, 9};
  const auto summary = summarise(values);
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->median, 5);
  EXPECT_EQ(summary->min, 1);
  EXPECT_EQ(summary->max, 9);
  EXPECT_EQ(summary->count, 3u);
}

TEST(Summarise, MedianOfAnEvenNumberLiesBetweenTheMiddleTwo) {
  const std::vector<double> values{4, 1, 100, 2};
  EXPECT_EQ(summarise(values)->median, 3);
}

TEST(Summarise, NothingGivesNothing) {
  EXPECT_FALSE(summarise({}));
}

TEST(Percentile, IsAlwaysOneOfTheValues) {
  const std::vector<uint64_t> values{10, 20, 30, 40};
  EXPECT_EQ(percentile(values, 0), 10u);
  EXPECT_EQ(percentile(values, 0.25), 10u);
  EXPECT_EQ(percentile(values, 0.5), 20u);
  EXPECT_EQ(percentile(values, 0.51), 30u);
  EXPECT_EQ(percentile(values, 0.99), 40u);
  EXPECT_EQ(percentile(values, 1), 40u);
}

TEST(Latencies, SortsFirst) {
  std::vector<uint64_t> values;
  for (uint64_t i = 1000; i > 0; --i) values.push_back(i);
  const Latencies found = latencies(values);
  EXPECT_EQ(found.p50_ns, 500u);
  EXPECT_EQ(found.p99_ns, 990u);
  EXPECT_EQ(found.p999_ns, 999u);
}

TEST(Ratio, NeedsBothAndAPeerAboveZero) {
  EXPECT_EQ(ratio(6, 3), 2);
  EXPECT_FALSE(ratio(6, 0));
  EXPECT_FALSE(ratio(std::nullopt, 3));
  EXPECT_FALSE(ratio(6, std::nullopt));
}

TEST(Reaches, TakesTheDirectionThatIsGood) {
  EXPECT_EQ(reaches(12, 12, Better::kHigher), true);
  EXPECT_EQ(reaches(11.9, 12, Better::kHigher), false);
  EXPECT_EQ(reaches(1.4, 1.4, Better::kLower), true);
  EXPECT_EQ(reaches(1.5, 1.4, Better::kLower), false);
  EXPECT_FALSE(reaches(1.5, std::nullopt, Better::kLower));
  EXPECT_FALSE(reaches(std::nullopt, 1.4, Better::kLower));
}

}  // namespace
}  // namespace braid::bench
