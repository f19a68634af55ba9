// What the latency histogram of a connection says (ConnectionStatistics::latency). Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "trs/client.h"

namespace braid::trs {

/// What a bucket counts took less than this. The last one has no such bound.
constexpr uint64_t latency_bound_us(size_t bucket) {
  return uint64_t{1} << bucket;
}

/// What all buckets count together.
inline uint64_t answers_counted(const ConnectionStatistics& s) {
  return std::accumulate(s.latency.begin(), s.latency.end(), uint64_t{0});
}

/// The bound of the bucket in which the percentile lies: what so many of a hundred took less than.
/// In the last bucket its beginning, as it has no bound. 0: nothing was answered yet.
inline uint64_t latency_percentile_us(const ConnectionStatistics& s, unsigned percent) {
  const uint64_t all = answers_counted(s);
  const uint64_t wanted = all / 100 * percent + (all % 100 * percent + 99) / 100;
  uint64_t seen = 0;
  for (size_t i = 0; all > 0 && i < s.latency.size(); ++i) {
    seen += s.latency[i];
    if (seen > 0 && seen >= wanted) return latency_bound_us(std::min(i, s.latency.size() - 2));
  }
  return 0;
}

}  // namespace braid::trs
