// What a responder checks before it touches memory for a peer. One function for both families of
// links: message links call it at the responder, direct links at the initiator with what the
// responder published.
//
// Order of checks (as rxe, vhca reference 4.2): sequence, QP access flags, receive work request or
// RNR, length, rkey / PD / access / range, execute, complete.
#pragma once

#include <cstdint>

#include "vhca/soft/mr_table.h"
#include "vhca/verbs.h"

namespace braid::vhca::soft {

constexpr bool is_write(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
constexpr bool is_send(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}
constexpr bool has_imm(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
/// True of what the device does to its own table of keys.
constexpr bool is_local(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
}
constexpr bool is_read(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ;
}
constexpr bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}
inline constexpr uint32_t kAtomicBytes = 8;  // of the word, which is aligned to as much
/// True if the answer brings data: what initiator depth and responder resources are about, and what
/// a fence waits for.
constexpr bool returns_data(ibv_wr_opcode opcode) {
  return is_read(opcode) || is_atomic(opcode);
}
/// True if the request uses up a receive work request of the peer.
constexpr bool needs_receive(ibv_wr_opcode opcode) {
  return is_send(opcode) || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/// The flag that QP and MR must have for it; 0 for a SEND.
constexpr uint32_t needed_access(ibv_wr_opcode opcode) {
  if (is_write(opcode)) return IBV_ACCESS_REMOTE_WRITE;
  if (is_read(opcode)) return IBV_ACCESS_REMOTE_READ;
  return is_atomic(opcode) ? uint32_t{IBV_ACCESS_REMOTE_ATOMIC} : 0;
}

/// The first check: is the operation enabled by the responder's QP? What the requester reports if
/// not: REM_INV_REQ_ERR. `qp_access`: its access flags, without those for reads and atomics if it
/// has no responder resources.
constexpr ibv_wc_status check_qp_access(ibv_wr_opcode opcode, uint32_t qp_access) {
  const uint32_t needed = needed_access(opcode);
  return (qp_access & needed) == needed ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR;
}

/// The last checks, for what has a length (a zero-length read or write needs no valid rkey). `mr`
/// is what the rkey resolved to; `qp_pd` and `qp` are of the responder. What the requester reports
/// if refused: REM_ACCESS_ERR; for an atomic on a word that is not aligned REM_INV_REQ_ERR.
inline ibv_wc_status check_mr_access(ibv_wr_opcode opcode, const MrView& mr, uint32_t qp_pd,
                                     uint32_t qp, uint64_t remote_address, uint32_t length) {
  if ((mr.pd != qp_pd && mr.pd != window_scope(qp)) || (mr.access & needed_access(opcode)) == 0 ||
      !mr.holds(remote_address, length)) {
    return IBV_WC_REM_ACCESS_ERR;
  }
  if (is_atomic(opcode) && remote_address % kAtomicBytes != 0) return IBV_WC_REM_INV_REQ_ERR;
  return IBV_WC_SUCCESS;
}

}  // namespace braid::vhca::soft
