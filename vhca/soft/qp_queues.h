// What lies in the queues of a SoftQp.
#pragma once

#include <cstdint>

#include "vhca/soft/qp.h"

namespace braid::vhca::soft {

/// A send work request that could not be finished inside its post. Nothing is there before it is
/// stored: a queue takes memory as it is used.
struct SoftQp::SqEntry {
  uint64_t wr_id;
  uint64_t wire_sequence;  // kSent: what names it in its answer
  uint64_t posted_ns;      // if the link wants to know (Link::needs_post_times)
  uint64_t remote_address;
  uint64_t compare_add;  // of an atomic; of a BIND_MW the length
  uint64_t swap;         // ...; of a BIND_MW its access flags and the MR's lkey
  uint32_t length;
  uint32_t imm;  // network byte order, as in the work request
  uint32_t rkey;
  uint16_t piece_count;
  uint8_t opcode;  // ibv_wr_opcode
  bool signaled;
  bool solicited;
  bool fence;
  bool done;  // executed; completes when all before it have
  /// Not SUCCESS: fails with this when its turn comes.
  ibv_wc_status status;
};

inline size_t SoftQp::sq_stride_bytes(const QpCap& cap) {
  static_assert(sizeof(SqEntry) % alignof(Piece) == 0);
  constexpr size_t kAlignment = alignof(SqEntry);
  const size_t used = sizeof(SqEntry) + cap.max_send_sge * sizeof(Piece) + cap.max_inline_data;
  return (used + kAlignment - 1) / kAlignment * kAlignment;
}
inline SoftQp::SqEntry& SoftQp::sq_entry(uint64_t sequence) const {
  return *reinterpret_cast<SqEntry*>(&sq_[(sequence & sq_mask_) * sq_stride_bytes_]);
}
inline Piece* SoftQp::sq_pieces(uint64_t sequence) const {
  return reinterpret_cast<Piece*>(&sq_entry(sequence) + 1);
}
inline std::byte* SoftQp::sq_inline_data(uint64_t sequence) const {
  return reinterpret_cast<std::byte*>(sq_pieces(sequence) + cap_.max_send_sge);
}

}  // namespace braid::vhca::soft
