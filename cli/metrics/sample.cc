#include "cli/metrics/sample.h"

#include <algorithm>
#include <cmath>

namespace braid::cli {

HistogramSample sample_of(const bnbd::LatencyHistogram& histogram) {
  HistogramSample sample;
  const auto& buckets = histogram.buckets();
  for (uint32_t i = 0; i < buckets.size(); ++i)
    if (buckets[i] != 0) sample.buckets.emplace_back(i, buckets[i]);
  sample.sum_ns = histogram.sum_ns();
  return sample;
}

uint64_t count_of(const HistogramSample& histogram) {
  uint64_t count = 0;
  for (const auto& [index, here] : histogram.buckets) count += here;
  return count;
}

uint64_t percentile_ns(const HistogramSample& histogram, double percent) {
  const uint64_t count = count_of(histogram);
  const double share = std::clamp(percent, 0.0, 100.0) / 100.0;
  const double wanted = std::max(1.0, std::ceil(share * static_cast<double>(count)));
  // Not by a cast where it is all of them: that may be more than fits.
  const uint64_t rank =
      wanted >= static_cast<double>(count) ? count : static_cast<uint64_t>(wanted);
  uint64_t seen = 0;
  for (const auto& [index, here] : histogram.buckets) {
    seen += here;
    if (seen >= rank) return bnbd::LatencyHistogram::upper_end_ns(index);
  }
  return 0;
}

trs::ConnectionStatistics io_of(const PathSample& path) {
  trs::ConnectionStatistics sum;
  for (size_t cid = 1; cid < path.connections.size(); ++cid) {
    const trs::ConnectionStatistics& one = path.connections[cid];
    sum.reads += one.reads;
    sum.read_bytes += one.read_bytes;
    sum.writes += one.writes;
    sum.write_bytes += one.write_bytes;
    sum.in_flight += one.in_flight;
    sum.messages_sent += one.messages_sent;
    sum.messages_received += one.messages_received;
    sum.errors += one.errors;
    sum.moved += one.moved;
    sum.latency_sum_ns += one.latency_sum_ns;
    for (size_t i = 0; i < one.latency.size(); ++i) sum.latency[i] += one.latency[i];
  }
  return sum;
}

}  // namespace braid::cli
