// What lies in the queues of a SoftQp.
#pragma once

#include <cstdint>

#include "vhca/soft/qp.h"

namespace braid::vhca::soft {

/// A send work request that could not be finished inside its post.
struct SoftQp::SqEntry {
  uint64_t wr_id = 0;
  uint64_t wire_sequence = 0;  // kSent: what names it in its answer
  uint64_t posted_ns = 0;      // if the link wants to know (Link::needs_post_times)
  uint64_t remote_address = 0;
  uint64_t compare_add = 0;  // of an atomic; of a BIND_MW the length
  uint64_t swap = 0;         // ...; of a BIND_MW its access flags and the MR's lkey
  uint32_t length = 0;
  uint32_t imm = 0;  // network byte order, as in the work request
  uint32_t rkey = 0;
  uint16_t piece_count = 0;
  uint8_t opcode = 0;  // ibv_wr_opcode
  bool signaled = false;
  bool solicited = false;
  bool fence = false;
  bool done = false;  // executed; completes when all before it have
  /// Not SUCCESS: fails with this when its turn comes.
  ibv_wc_status status = IBV_WC_SUCCESS;
};

inline SoftQp::SqEntry& SoftQp::sq_entry(uint64_t sequence) const {
  return sq_[sequence & sq_mask_];
}
inline Piece* SoftQp::sq_pieces(uint64_t sequence) const {
  return &pieces_[(sequence & sq_mask_) * cap_.max_send_sge];
}

}  // namespace braid::vhca::soft
