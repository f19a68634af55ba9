// A histogram of latencies with fixed buckets: each power of two of nanoseconds is cut into 16, so
// a percentile is at most 6.25 % above the truth. Recording costs a few instructions and never
// allocates; one thread writes. Another may add it to one of its own meanwhile.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/single_writer.h"
#include "bnbd/block.h"

namespace braid::bnbd {

enum class LatencyKind : uint8_t { kRead, kWrite, kOther };  // from submit() to `done`
inline constexpr size_t kLatencyKinds = 3;
inline LatencyKind latency_kind(BlockOp op) {
  if (op == BlockOp::kRead) return LatencyKind::kRead;
  return op == BlockOp::kWrite ? LatencyKind::kWrite : LatencyKind::kOther;
}

class LatencyHistogram {
 public:
  void record(uint64_t latency_ns) {
    base::add_shared(buckets_[index_of(latency_ns)], 1);
    base::add_shared(count_, 1);
    base::add_shared(sum_ns_, latency_ns);
    if (latency_ns > max_ns_) base::write_shared(max_ns_, latency_ns);
  }
  void add(const LatencyHistogram& other);
  void reset() { *this = LatencyHistogram(); }

  uint64_t count() const { return count_; }
  uint64_t sum_ns() const { return sum_ns_; }
  uint64_t max_ns() const { return max_ns_; }
  uint64_t mean_ns() const { return count_ == 0 ? 0 : sum_ns_ / count_; }
  /// The latency that `percent` of all are not above, as the upper end of its bucket; 0 if empty.
  uint64_t percentile_ns(double percent) const;

  static constexpr unsigned kSubBits = 4;
  static constexpr unsigned kSub = 1u << kSubBits;
  static constexpr size_t kBuckets = (64 - kSubBits + 1) * kSub;
  /// How many each bucket counts. Bucket i ends where upper_end_ns(i) says, that included.
  const std::array<uint64_t, kBuckets>& buckets() const { return buckets_; }
  static uint64_t upper_end_ns(size_t index);

 private:
  static size_t index_of(uint64_t ns) {
    if (ns < kSub) return static_cast<size_t>(ns);
    const unsigned shift = static_cast<unsigned>(std::bit_width(ns)) - 1 - kSubBits;
    return (size_t{shift} + 1) * kSub + static_cast<size_t>((ns >> shift) & (kSub - 1));
  }

  std::array<uint64_t, kBuckets> buckets_{};
  uint64_t count_ = 0;
  uint64_t sum_ns_ = 0;
  uint64_t max_ns_ = 0;
};

}  // namespace braid::bnbd
