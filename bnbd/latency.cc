#include "bnbd/latency.h"

#include <algorithm>
#include <cmath>

namespace braid::bnbd {

void LatencyHistogram::add(const LatencyHistogram& other) {
  // The count is that of the buckets, whatever is recorded there meanwhile.
  for (size_t i = 0; i < kBuckets; ++i) {
    const uint64_t here = base::read_shared(other.buckets_[i]);
    buckets_[i] += here;
    count_ += here;
  }
  sum_ns_ += base::read_shared(other.sum_ns_);
  max_ns_ = std::max(max_ns_, base::read_shared(other.max_ns_));
}

uint64_t LatencyHistogram::percentile_ns(double percent) const {
  if (count_ == 0) return 0;
  const double share = std::clamp(percent, 0.0, 100.0) / 100.0;
  const auto rank =
      std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(share * static_cast<double>(count_))));
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::min(upper_end_ns(i), max_ns_);
  }
  return max_ns_;
}

uint64_t LatencyHistogram::upper_end_ns(size_t index) {
  if (index < kSub) return index;
  const size_t shift = index / kSub - 1;
  const uint64_t low = (uint64_t{kSub} + index % kSub) << shift;
  return low + ((uint64_t{1} << shift) - 1);
}

}  // namespace braid::bnbd
