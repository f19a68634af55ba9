// PermitPool: which chunks of the server one client reactor may use right now.
//
// Permits come (add) and go (lend) while they are free; those in use are acquired. Two bitmaps over
// all indexes of the session. One thread, but for the two counts; acquire and release neither
// allocate nor search more than the words.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/single_writer.h"

namespace braid::trs {

class PermitPool {
 public:
  /// Of indexes below `queue_depth`; it has none yet.
  explicit PermitPool(uint32_t queue_depth)
      : queue_depth_(queue_depth), owned_((queue_depth + 63) / 64, 0), free_bits_(owned_) {}

  /// A permit that becomes this pool's own, and is free.
  void add(uint32_t index) {
    BRAID_ASSERT(index < queue_depth_ && !owns(index));
    owned_[index / 64] |= bit(index);
    base::add_shared(size_, 1);
    set_free(index);
  }
  /// {first, first + stride, ...} from `reserved` to below the queue depth.
  void add_every(uint32_t first, uint32_t stride, uint32_t reserved) {
    for (uint32_t index = first; index < queue_depth_; index += stride) {
      if (index >= reserved) add(index);
    }
  }
  /// The lowest free permit: few chunks in use stay in the caches of both sides.
  std::optional<uint32_t> acquire() {
    for (uint32_t word = 0; word < free_bits_.size(); ++word) {
      if (free_bits_[word] == 0) continue;
      const auto at = static_cast<uint32_t>(std::countr_zero(free_bits_[word]));
      free_bits_[word] &= free_bits_[word] - 1;
      base::subtract_shared(free_, 1);
      return word * 64 + at;
    }
    return std::nullopt;
  }
  /// Giving back what is not out is a bug of the caller.
  void release(uint32_t index) {
    BRAID_ASSERT(owns(index) && !is_free(index));
    set_free(index);
  }
  /// The highest free permit is this pool's no longer.
  std::optional<uint32_t> lend() {
    for (size_t word = free_bits_.size(); word-- > 0;) {
      if (free_bits_[word] == 0) continue;
      const auto index = static_cast<uint32_t>(word * 64 + 63) - std::countl_zero(free_bits_[word]);
      free_bits_[word] &= ~bit(index);
      owned_[word] &= ~bit(index);
      base::subtract_shared(free_, 1);
      base::subtract_shared(size_, 1);
      return index;
    }
    return std::nullopt;
  }

  bool owns(uint32_t index) const {
    return index < queue_depth_ && (owned_[index / 64] & bit(index)) != 0;
  }
  bool is_free(uint32_t index) const { return (free_bits_[index / 64] & bit(index)) != 0; }
  uint32_t free_count() const { return base::read_shared(free_); }
  uint32_t size() const { return base::read_shared(size_); }

 private:
  static constexpr uint64_t bit(uint32_t index) { return uint64_t{1} << index % 64; }
  void set_free(uint32_t index) {
    free_bits_[index / 64] |= bit(index);
    base::add_shared(free_, 1);
  }

  const uint32_t queue_depth_;
  std::vector<uint64_t> owned_;      // index i is bit i % 64 of word i / 64
  std::vector<uint64_t> free_bits_;  // a subset
  uint32_t free_ = 0;
  uint32_t size_ = 0;
};

}  // namespace braid::trs
