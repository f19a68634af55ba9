// Samples between processes: what goes over the control socket comes out, and nothing else does.
#include "cli/metrics/sample.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/metrics/test_sample.h"

namespace braid::cli {
namespace {

using base::Errc;
using nlohmann::json;
using testing::HasSubstr;

TEST(NodeSample, comes_out_of_json_as_it_went_in) {
  const json sent = to_json_of(full_sample());
  auto got = sample_of(json::parse(sent.dump()));
  ASSERT_TRUE(got.ok()) << got.error().message();
  EXPECT_EQ(to_json_of(*got), sent);
  EXPECT_EQ(got->devices[0].latency[0].buckets, full_sample().devices[0].latency[0].buckets);
}

TEST(NodeSample, members_that_another_version_does_not_tell_are_nought) {
  auto got = sample_of(json::parse(R"({"node": "a", "devices": [{"name": "d"}], "new": 1})"));
  ASSERT_TRUE(got.ok()) << got.error().message();
  EXPECT_EQ(got->node, "a");
  ASSERT_EQ(got->devices.size(), 1u);
  EXPECT_EQ(got->devices[0].io.reads, 0u);
}

void expect_sample_refused(const char* text, const char* words) {
  auto got = sample_of(json::parse(text));
  ASSERT_FALSE(got.ok()) << text;
  EXPECT_EQ(got.code(), Errc::kProtocol);
  EXPECT_THAT(got.error().message(), HasSubstr(words)) << text;
}

TEST(NodeSample, what_does_not_fit_is_refused_in_words) {
  expect_sample_refused("[]", "must be an object");
  expect_sample_refused(R"({"node": 5})", "another shape");
  expect_sample_refused(R"({"devices": {}})", "another shape");
  expect_sample_refused(R"({"at_ns": -1})", "below 0");
  expect_sample_refused(R"({"at_ns": 1e300})", "not whole");
  expect_sample_refused(R"({"devices": [{"latency": [{}, {}]}]})", "another shape");
  expect_sample_refused(R"({"devices": [{"latency": [{"buckets": [[5, 1], [5, 1]]}, {}, {}]}]})",
                        "bucket 5");
  expect_sample_refused(R"({"devices": [{"latency": [{"buckets": [[976, 1]]}, {}, {}]}]})",
                        "bucket 976");
}

TEST(HistogramSample, has_the_counts_and_percentiles_of_its_histogram) {
  bnbd::LatencyHistogram histogram;
  for (uint64_t us = 1; us <= 1000; ++us) histogram.record(us * 1000);
  const HistogramSample sample = sample_of(histogram);
  EXPECT_EQ(count_of(sample), 1000u);
  EXPECT_EQ(sample.sum_ns, 500'500'000u);
  for (const double percent : {0.0, 1.0, 50.0, 90.0})
    EXPECT_EQ(percentile_ns(sample, percent), histogram.percentile_ns(percent)) << percent;
  EXPECT_EQ(percentile_ns(HistogramSample(), 50), 0u);
}

TEST(ProcessSample, is_of_this_process) {
  const ProcessSample now = sample_process();
  EXPECT_EQ(now.pid, static_cast<uint64_t>(::getpid()));
  EXPECT_GT(now.resident_bytes, 100'000u);
  EXPECT_GE(now.threads, 1u);
  EXPECT_GT(now.started_s, 1'500'000'000u);
  EXPECT_GE(now.max_fds, now.open_fds);
  const int more = ::dup(0);
  ASSERT_GE(more, 0);
  EXPECT_EQ(sample_process().open_fds, now.open_fds + 1);
  ::close(more);
}

}  // namespace
}  // namespace braid::cli
