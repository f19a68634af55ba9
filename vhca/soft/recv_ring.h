// Receive work requests as they lie in the queue of a QP or SRQ, each followed by its SGEs.
#pragma once

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "vhca/verbs.h"

namespace braid::vhca::soft {

struct RecvEntry {
  uint64_t wr_id = 0;
  uint64_t length = 0;  // sum of the SGEs
  uint32_t sge_count = 0;
  uint32_t reserved = 0;

  std::span<const Sge> sges() const { return {reinterpret_cast<const Sge*>(this + 1), sge_count}; }
};

/// A ring of entries by their number. Counts nothing itself.
class RecvRing {
 public:
  RecvRing(uint32_t capacity, uint32_t max_sge)
      : mask_(std::bit_ceil(capacity) - 1),
        stride_bytes_(static_cast<uint32_t>(sizeof(RecvEntry) + max_sge * sizeof(Sge))),
        bytes_(std::make_unique_for_overwrite<std::byte[]>((mask_ + 1ull) * stride_bytes_)) {}

  RecvEntry& at(uint64_t index) const { return *std::launder(place(index)); }
  RecvEntry& write(uint64_t index, const RecvWr& wr) const {
    auto* const entry = new (place(index)) RecvEntry;
    entry->wr_id = wr.wr_id;
    entry->sge_count = static_cast<uint32_t>(wr.num_sge);
    auto* const sges = reinterpret_cast<Sge*>(entry + 1);
    for (int i = 0; i < wr.num_sge; ++i) {
      new (sges + i) Sge(wr.sg_list[i]);
      entry->length += wr.sg_list[i].length;
    }
    return *entry;
  }
  /// Of a ring whose entries have no more SGEs than here.
  void copy(uint64_t index, const RecvEntry& from) const {
    std::memcpy(place(index), &from, sizeof(from) + from.sge_count * sizeof(Sge));
  }

 private:
  RecvEntry* place(uint64_t index) const {
    return reinterpret_cast<RecvEntry*>(bytes_.get() + (index & mask_) * stride_bytes_);
  }
  uint32_t mask_;
  uint32_t stride_bytes_;
  std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace braid::vhca::soft
