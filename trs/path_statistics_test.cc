// What connections count, at both ends, against what was sent by them; and percentiles.
#include <cerrno>

#include "trs/client/lane_statistics.h"
#include "trs/connection_statistics.h"
#include "trs/multipath_rig.h"

namespace braid::trs {
namespace {

using base::kMicrosecond;
using testing::Io;

constexpr size_t kCountedReactors = 2;
constexpr uint64_t kCountedReads = 37, kCountedWrites = 11, kRefused = 3;  // of each reactor
constexpr uint32_t kCountedReadBytes = 8192, kCountedWriteBytes = 4096;

/// Told to the client for whichever thread asks.
unsigned processor_now = 0;

class PathStatistics : public testing::MultipathRig {
 protected:
  PathStatistics() : MultipathRig(kCountedReactors) {}
  void run(Direction direction, uint32_t bytes, size_t reactor, uint32_t fail_errno = 0) {
    client->used = 0;
    const auto io = client->make_io(direction, 0, bytes);
    io->op.fail_errno = fail_errno;
    client->submit(*io, reactor);
    ASSERT_TRUE(until([&] { return io->done; }));
    EXPECT_EQ(io->status == base::Errc::kOk, fail_errno == 0);
  }
  void run_all() {
    for (size_t reactor = 0; reactor < kCountedReactors; ++reactor) {
      for (uint64_t i = 0; i < kCountedReads; ++i)
        run(Direction::kRead, kCountedReadBytes, reactor);
      for (uint64_t i = 0; i < kCountedWrites; ++i)
        run(Direction::kWrite, kCountedWriteBytes, reactor);
      for (uint64_t i = 0; i < kRefused; ++i)
        run(Direction::kRead, kCountedReadBytes, reactor, EIO);
    }
  }
  /// Client's or server's: both have these members.
  template <typename Counts>
  static void expect_all_of_it(const Counts& counts) {
    EXPECT_EQ(counts.reads, kCountedReads);
    EXPECT_EQ(counts.read_bytes, kCountedReads * kCountedReadBytes);
    EXPECT_EQ(counts.writes, kCountedWrites);
    EXPECT_EQ(counts.write_bytes, kCountedWrites * kCountedWriteBytes);
    EXPECT_EQ(counts.errors, kRefused);
  }
  template <typename Counts>
  static void expect_nothing(const Counts& counts) {
    EXPECT_EQ(counts.reads + counts.read_bytes + counts.writes + counts.write_bytes, 0u);
    EXPECT_EQ(counts.errors, 0u);
  }
};

TEST_F(PathStatistics, AreExactByPathAndConnectionAtBothEnds) {
  connect_both();
  ASSERT_TRUE(client->session->disconnect_path(1).ok());
  ASSERT_TRUE(until_up(1));
  run_all();
  ASSERT_TRUE(client->session->reconnect_path(1).ok());
  ASSERT_TRUE(until_up(2));

  const std::vector<PathStatus> ours = client->session->paths();
  const auto theirs = server->server->sessions()[0]->path_statistics();
  ASSERT_EQ(theirs.size(), 2u);
  for (size_t path = 0; path < 2; ++path) {
    ASSERT_EQ(ours[path].connections.size(), kCountedReactors + 1);
    ASSERT_EQ(theirs[path].size(), kCountedReactors + 1);
    for (size_t cid = 0; cid <= kCountedReactors; ++cid) {
      const ConnectionStatistics& counts = ours[path].connections[cid];
      EXPECT_EQ(counts.in_flight, 0u);
      if (path == 0 && cid > 0) {
        expect_all_of_it(counts);
        EXPECT_EQ(answers_counted(counts), kCountedReads + kCountedWrites + kRefused);
        expect_all_of_it(theirs[path][cid]);
      } else {
        expect_nothing(counts);
        EXPECT_EQ(answers_counted(counts), 0u);
        expect_nothing(theirs[path][cid]);
      }
    }
  }
}

TEST_F(PathStatistics, CountWhatIsAnsweredOnAnotherProcessorThanItWasSentFrom) {
  connect_both([](ClientOptions& options) { options.processor = [] { return processor_now; }; });
  const auto moved = [this] {
    uint64_t sum = 0;
    for (const PathStatus& path : client->session->paths())
      for (const ConnectionStatistics& connection : path.connections) sum += connection.moved;
    return sum;
  };
  for (const unsigned processor : {0U, 3U}) {
    processor_now = processor;
    for (uint64_t i = 0; i < kCountedReads; ++i)
      run(Direction::kRead, kCountedReadBytes, i % kCountedReactors);
  }
  EXPECT_EQ(moved(), 0u);
  for (uint64_t i = 0; i < kCountedReads; ++i) {
    client->used = 0;
    const auto io = client->make_io(Direction::kRead, 0, kCountedReadBytes);
    client->submit(*io, i % kCountedReactors);
    ++processor_now;
    ASSERT_TRUE(until([&] { return io->done; }));
    EXPECT_EQ(moved(), i + 1);
  }
}

TEST(LatencyBuckets, CountWhatTookLessThanTheirBoundAndNotLessThanHalfOfIt) {
  client::LaneStatistics lane;
  const auto counted = [&](uint64_t ns) {
    const ConnectionStatistics before = lane.read();
    lane.count_latency(ns);
    const ConnectionStatistics after = lane.read();
    EXPECT_EQ(answers_counted(after), answers_counted(before) + 1);
    EXPECT_EQ(after.latency_sum_ns, before.latency_sum_ns + ns);
    size_t bucket = 0;
    while (bucket < after.latency.size() && after.latency[bucket] == before.latency[bucket])
      ++bucket;
    return bucket;
  };
  EXPECT_EQ(counted(0), 0u);
  EXPECT_EQ(counted(kMicrosecond - 1), 0u);
  for (size_t i = 1; i < ConnectionStatistics::kLatencyBuckets; ++i) {
    const uint64_t half_ns = latency_bound_us(i) / 2 * kMicrosecond;
    EXPECT_EQ(counted(half_ns), i);
    EXPECT_EQ(counted(half_ns - 1), i - 1);
    EXPECT_EQ(counted(2 * half_ns - 1), i);
  }
  EXPECT_EQ(counted(~0ULL), ConnectionStatistics::kLatencyBuckets - 1) << "it has no bound";
}

TEST(LatencyPercentiles, AreTheBoundOfTheBucketInWhichTheyLie) {
  ConnectionStatistics s;
  EXPECT_EQ(latency_percentile_us(s, 50), 0u) << "nothing was answered yet";
  s.latency[3] = 1;
  for (const unsigned percent : {0u, 1u, 50u, 99u, 100u})
    EXPECT_EQ(latency_percentile_us(s, percent), 8u) << percent;
  s.latency = {};
  s.latency[4] = 50;  // less than 16 us
  s.latency[6] = 49;  // 64 us
  s.latency[10] = 1;  // 1024 us
  EXPECT_EQ(latency_percentile_us(s, 1), 16u);
  EXPECT_EQ(latency_percentile_us(s, 50), 16u);
  EXPECT_EQ(latency_percentile_us(s, 51), 64u);
  EXPECT_EQ(latency_percentile_us(s, 99), 64u);
  EXPECT_EQ(latency_percentile_us(s, 100), 1024u);
  s.latency[10] = 2;  // 99 of 101 are not yet 99 of a hundred
  EXPECT_EQ(latency_percentile_us(s, 99), 1024u);
  s.latency.back() = 1000;
  EXPECT_EQ(latency_percentile_us(s, 99), uint64_t{1} << 22) << "the last has a beginning only";
}

}  // namespace
}  // namespace braid::trs
