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

inline SoftQp::SqEntry& SoftQp::sq_entry(uint64_t sequence) const {
  return sq_[sequence & sq_mask_];
}
inline Piece* SoftQp::sq_pieces(uint64_t sequence) const {
  return &pieces_[(sequence & sq_mask_) * cap_.max_send_sge];
}

}  // namespace braid::vhca::soft
