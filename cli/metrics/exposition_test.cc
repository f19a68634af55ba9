// The text that Prometheus reads, byte for byte.
#include "cli/metrics/exposition.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace braid::cli {
namespace {

std::string escaped(const std::string& value) {
  return Labels("l", value).text();
}

TEST(Labels, values_of_others_are_escaped) {
  EXPECT_EQ(escaped("plain name.1"), R"(l="plain name.1")");
  EXPECT_EQ(escaped("a\"b\\c\nd"), R"(l="a\"b\\c\nd")");
  EXPECT_EQ(escaped("\x1b[2J\t\r"), R"(l="\\x1b[2J\\x09\\x0d")");
  EXPECT_EQ(escaped(std::string("\0", 1)), R"(l="\\x00")");
  EXPECT_EQ(escaped("gr\xc3\xbc\xc3\x9f"), "l=\"gr\xc3\xbc\xc3\x9f\"");
  EXPECT_EQ(escaped("\xff\xc3"), R"(l="\\xff\\xc3")") << "no UTF-8";
  EXPECT_EQ(escaped("\xed\xa0\x80"), R"(l="\\xed\\xa0\\x80")") << "a surrogate";
  EXPECT_EQ(escaped(""), R"(l="")");
}

TEST(Labels, long_values_are_cut_off_and_stay_utf8) {
  EXPECT_EQ(escaped(std::string(5000, 'x')).size(), 256 + 4u);
  EXPECT_EQ(escaped(std::string(238, 'x') + "\xc3\xbc" + std::string(20, 'x')).substr(241, 6),
            "\\\\xc3#");
  EXPECT_EQ(escaped(std::string(256, 'x')), "l=\"" + std::string(256, 'x') + "\"") << "not long";
}

TEST(Labels, values_that_differ_behind_the_cut_differ) {
  const std::string common(300, 'x');
  EXPECT_NE(escaped(common + "a"), escaped(common + "b"));
  EXPECT_NE(escaped(common), escaped(common + "x"));
  EXPECT_EQ(escaped(common + "a"), escaped(common + "a"));
}

TEST(Labels, stand_in_their_order) {
  const Labels one("node", "a");
  EXPECT_EQ(one.with("device", "b").text(), R"(node="a",device="b")");
  EXPECT_EQ(one.text(), R"(node="a")");
}

TEST(SecondsText, has_no_zeroes_at_its_end) {
  EXPECT_EQ(seconds_text(1'024), "0.000001024");
  EXPECT_EQ(seconds_text(1'000), "0.000001");
  EXPECT_EQ(seconds_text(8'589'934'592), "8.589934592");
  EXPECT_EQ(seconds_text(10'000'000'000), "10");
}

TEST(Exposition, writes_families_and_their_samples) {
  Exposition text;
  text.family("braid_reads_total", MetricType::kCounter, "Reads.");
  text.sample(Labels("device", "d"), 0);
  text.sample(Labels("device", "e"), UINT64_MAX);
  text.family("braid_process_cpu_seconds_total", MetricType::kCounter, "Time.");
  text.sample_ns(Labels(), 12'000'000'345);
  text.sample_ns(Labels(), 1);
  EXPECT_EQ(text.take(),
            "# HELP braid_reads_total Reads.\n"
            "# TYPE braid_reads_total counter\n"
            "braid_reads_total{device=\"d\"} 0\n"
            "braid_reads_total{device=\"e\"} 18446744073709551615\n"
            "# HELP braid_process_cpu_seconds_total Time.\n"
            "# TYPE braid_process_cpu_seconds_total counter\n"
            "braid_process_cpu_seconds_total 12.000000345\n"
            "braid_process_cpu_seconds_total 0.000000001\n");
}

TEST(Exposition, writes_histograms) {
  Exposition text;
  text.family("braid_latency_seconds", MetricType::kHistogram, "Latency.");
  const std::array<CumulativeBucket, 2> below{{{"1e-06", 1}, {"2e-06", 3}}};
  text.histogram(Labels("device", "d"), below, 4, 5'000);
  text.histogram(Labels(), {}, 0, 0);
  EXPECT_EQ(text.take(),
            "# HELP braid_latency_seconds Latency.\n"
            "# TYPE braid_latency_seconds histogram\n"
            "braid_latency_seconds_bucket{device=\"d\",le=\"1e-06\"} 1\n"
            "braid_latency_seconds_bucket{device=\"d\",le=\"2e-06\"} 3\n"
            "braid_latency_seconds_bucket{device=\"d\",le=\"+Inf\"} 4\n"
            "braid_latency_seconds_sum{device=\"d\"} 0.000005000\n"
            "braid_latency_seconds_count{device=\"d\"} 4\n"
            "braid_latency_seconds_bucket{le=\"+Inf\"} 0\n"
            "braid_latency_seconds_sum 0.000000000\n"
            "braid_latency_seconds_count 0\n");
}

}  // namespace
}  // namespace braid::cli
