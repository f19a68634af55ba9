// What happened between two samples.
#include "cli/top/rates.h"

#include <gtest/gtest.h>

#include "cli/metrics/test_sample.h"

namespace braid::cli {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

const TopRow& row_of(const std::vector<TopRow>& rows, RowKind kind) {
  static const TopRow kNone;
  for (const TopRow& row : rows)
    if (row.kind == kind) return row;
  ADD_FAILURE() << "no row of a " << to_string(kind);
  return kNone;
}

/// Two seconds later: 10 reads of 100 us each, 6 writes.
NodeSample later(NodeSample sample) {
  sample.at_ns += 2 * kSecondNs;
  DeviceSample& device = sample.devices[0];
  device.io.reads += 10;
  device.io.read_bytes += 10 * 4096;
  device.io.writes += 6;
  device.io.errors += 1;
  bnbd::LatencyHistogram reads;
  for (uint64_t us = 1; us <= 40; ++us) reads.record(us * 1000);
  for (int i = 0; i < 10; ++i) reads.record(100'000);
  device.latency[0] = sample_of(reads);
  trs::ConnectionStatistics& io = sample.sessions[0].paths[0].connections[1];
  io.reads += 10;
  io.latency[7] += 10;
  io.latency_sum_ns += 10 * 90'000;
  sample.exports[0].io.writes += 4;
  return sample;
}

std::vector<TopRow> rows(const NodeSample& before, const NodeSample& after) {
  return rows_between({&before, 1}, {&after, 1});
}

TEST(Rates, are_differences_by_the_nodes_own_clock) {
  const NodeSample before = full_sample();
  const std::vector<TopRow> all = rows(before, later(before));
  ASSERT_EQ(all.size(), 3u);
  const TopRow& device = row_of(all, RowKind::kDevice);
  ASSERT_TRUE(device.rates);
  EXPECT_EQ(device.name, "disk");
  EXPECT_EQ(device.state, "open");
  EXPECT_EQ(device.rates->reads, 5);
  EXPECT_EQ(device.rates->read_bytes, 5 * 4096);
  EXPECT_EQ(device.rates->writes, 3);
  EXPECT_EQ(device.rates->errors, 0.5);
  EXPECT_DOUBLE_EQ(*device.rates->queue, 0.0005) << "10 times 100 us of two seconds";
  EXPECT_NEAR(*device.rates->p50_us, 100, 6.5) << "what ended before does not count";
  EXPECT_NEAR(*device.rates->p99_us, 100, 6.5);
  const TopRow& path = row_of(all, RowKind::kPath);
  ASSERT_TRUE(path.rates);
  EXPECT_EQ(path.rates->reads, 5);
  EXPECT_EQ(*path.rates->p50_us, 128);
  EXPECT_DOUBLE_EQ(*path.rates->queue, 0.00045);
  EXPECT_EQ(path.state, "reconnecting");
  const TopRow& exported = row_of(all, RowKind::kExport);
  ASSERT_TRUE(exported.rates);
  EXPECT_EQ(exported.rates->writes, 2);
  EXPECT_FALSE(exported.rates->p50_us) << "a server measures none";
  EXPECT_EQ(exported.state, "open by 1");
}

TEST(Rates, of_an_idle_device_are_nought_and_it_has_no_latency) {
  const NodeSample before = full_sample();
  NodeSample after = before;
  after.at_ns += kSecondNs;
  const std::vector<TopRow> all = rows(before, after);
  const TopRow& device = row_of(all, RowKind::kDevice);
  ASSERT_TRUE(device.rates);
  EXPECT_EQ(device.rates->reads, 0);
  EXPECT_FALSE(device.rates->p99_us);
  EXPECT_FALSE(device.rates->queue);
}

TEST(Rates, of_a_device_tell_what_its_filters_did_to_it) {
  const NodeSample before = full_sample();
  NodeSample after = later(before);
  after.devices[0].filters[0].done.failed += 1;
  after.devices[0].filters[0].done.mismatches += 2;
  const std::vector<TopRow> all = rows(before, after);
  const TopRow& device = row_of(all, RowKind::kDevice);
  EXPECT_EQ(device.state, "open (wrong data)");
  ASSERT_TRUE(device.rates);
  EXPECT_EQ(device.rates->errors, 1) << "one of the device, one of its filter, in two seconds";
}

void expect_none(const NodeSample& before, const NodeSample& after, RowKind kind) {
  const std::vector<TopRow> all = rows(before, after);
  EXPECT_FALSE(row_of(all, kind).rates);
}

TEST(Rates, begin_anew_with_a_node_that_has_restarted) {
  const NodeSample before = full_sample();
  NodeSample after = later(before);
  after.process.pid += 1;
  for (const RowKind kind : {RowKind::kDevice, RowKind::kPath, RowKind::kExport})
    expect_none(before, after, kind);
}

TEST(Rates, begin_anew_with_counters_that_have_gone_back) {
  const NodeSample before = full_sample();
  NodeSample after = later(before);
  after.devices[0].io.reads = 1;
  after.sessions[0].paths[0].connections[1].reads = 1;
  after.exports[0].io.writes = 1;
  for (const RowKind kind : {RowKind::kDevice, RowKind::kPath, RowKind::kExport})
    expect_none(before, after, kind);
  after = later(before);
  after.devices[0].latency[0] = {{{500, 1}}, before.devices[0].latency[0].sum_ns};
  expect_none(before, after, RowKind::kDevice);
}

TEST(Rates, begin_anew_with_a_device_that_was_mapped_anew) {
  const NodeSample before = full_sample();
  NodeSample after = later(before);
  after.devices[0].session = 2;
  expect_none(before, after, RowKind::kDevice);
  after = later(before);
  after.sessions[0].number = 2;
  expect_none(before, after, RowKind::kPath);
}

TEST(Rates, without_an_earlier_sample_there_are_none) {
  const NodeSample only = full_sample();
  for (const TopRow& row : rows_between({}, {&only, 1})) EXPECT_FALSE(row.rates);
  expect_none(only, only, RowKind::kDevice);
}

TEST(HistogramDifference, is_what_was_added) {
  const HistogramSample before{{{1, 5}, {7, 2}}, 100};
  const HistogramSample after{{{1, 5}, {3, 4}, {7, 3}, {9, 1}}, 150};
  const auto grown = difference(before, after);
  ASSERT_TRUE(grown);
  EXPECT_EQ(grown->sum_ns, 50u);
  const HistogramSample wanted{{{3, 4}, {7, 1}, {9, 1}}, 50};
  EXPECT_EQ(grown->buckets, wanted.buckets);
  EXPECT_FALSE(difference(after, before));
  EXPECT_FALSE(difference({{{2, 1}}, 0}, {{{3, 1}}, 0})) << "a bucket is gone";
  EXPECT_FALSE(difference({{{9, 1}}, 0}, {{}, 0}));
  EXPECT_TRUE(difference({}, {})->buckets.empty());
}

TEST(SortRows, puts_the_busiest_first_and_kinds_apart) {
  const auto row = [](RowKind kind, const char* name, double reads, double bytes) {
    TopRow made{kind, "n", name, "open", Rates()};
    made.rates->reads = reads;
    made.rates->read_bytes = bytes;
    return made;
  };
  std::vector<TopRow> all = {row(RowKind::kExport, "e", 99, 99), row(RowKind::kDevice, "b", 1, 50),
                             row(RowKind::kDevice, "a", 9, 10), row(RowKind::kDevice, "c", 9, 10)};
  all.push_back({RowKind::kDevice, "n", "0", "mapping", std::nullopt});
  const auto names = [&](TopOrder order) {
    sort_rows(all, order);
    std::string text;
    for (const TopRow& one : all) text += one.name;
    return text;
  };
  EXPECT_EQ(names(TopOrder::kBytes), "bac0e");
  EXPECT_EQ(names(TopOrder::kOperations), "acb0e");
  EXPECT_EQ(names(TopOrder::kName), "0abce");
  EXPECT_EQ(next_order(TopOrder::kName), TopOrder::kBytes);
}

}  // namespace
}  // namespace braid::cli
