// PermitPool: which chunks of the server one client reactor may use right now.
//
// The pool owns the indexes {first, first + stride, ...} from `reserved` to below queue_depth (the
// lowest belong to admin requests). A bitmap, fixed at construction; a bit set is a free permit.
// One thread; acquire and release neither allocate nor search more than the words.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"

namespace braid::trs {

class PermitPool {
 public:
  struct Options {
    uint32_t first = 0;
    uint32_t stride = 1;
    uint32_t queue_depth = 0;
    uint32_t reserved = 1;  // indexes below belong to another pool
  };
  explicit PermitPool(const Options& options)
      : options_(options),
        slots_(options.first < options.queue_depth
                   ? (options.queue_depth - options.first - 1) / options.stride + 1
                   : 0),
        free_bits_((slots_ + 63) / 64, 0) {
    for (uint32_t slot = 0; slot < slots_; ++slot) {
      if (index_of(slot) >= options.reserved) set_free(slot);
    }
    size_ = free_;
  }

  /// The lowest free permit: few chunks in use stay in the caches of both sides.
  std::optional<uint32_t> acquire() {
    for (uint32_t word = 0; word < free_bits_.size(); ++word) {
      if (free_bits_[word] == 0) continue;
      const auto bit = static_cast<uint32_t>(std::countr_zero(free_bits_[word]));
      free_bits_[word] &= free_bits_[word] - 1;
      --free_;
      return index_of(word * 64 + bit);
    }
    return std::nullopt;
  }
  /// Giving back what is not out is a bug of the caller.
  void release(uint32_t index) {
    BRAID_ASSERT(owns(index) && !is_free(index));
    set_free(slot_of(index));
  }

  bool owns(uint32_t index) const {
    return index >= options_.first && index < options_.queue_depth &&
           (index - options_.first) % options_.stride == 0 && index >= options_.reserved;
  }
  bool is_free(uint32_t index) const {
    const uint32_t slot = slot_of(index);
    return (free_bits_[slot / 64] >> slot % 64 & 1) != 0;
  }
  uint32_t free_count() const { return free_; }
  uint32_t size() const { return size_; }
  /// Dense numbers of the indexes, for tables: slot_of(index) < slots().
  uint32_t slots() const { return slots_; }
  uint32_t slot_of(uint32_t index) const { return (index - options_.first) / options_.stride; }
  uint32_t index_of(uint32_t slot) const { return options_.first + slot * options_.stride; }

 private:
  void set_free(uint32_t slot) {
    free_bits_[slot / 64] |= uint64_t{1} << slot % 64;
    ++free_;
  }

  const Options options_;
  const uint32_t slots_;
  std::vector<uint64_t> free_bits_;  // slot s is bit s % 64 of word s / 64
  uint32_t free_ = 0;
  uint32_t size_ = 0;
};

}  // namespace braid::trs
