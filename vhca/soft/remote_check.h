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
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}
constexpr bool is_read(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ;
}
/// True if the request uses up a receive work request of the peer.
constexpr bool needs_receive(ibv_wr_opcode opcode) {
  return is_send(opcode) || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/// The first check: is the operation enabled by the responder's qp_access_flags? What the requester
/// reports if not: REM_INV_REQ_ERR.
constexpr ibv_wc_status check_qp_access(ibv_wr_opcode opcode, uint32_t qp_access) {
  if (is_write(opcode) && (qp_access & IBV_ACCESS_REMOTE_WRITE) == 0) return IBV_WC_REM_INV_REQ_ERR;
  if (is_read(opcode) && (qp_access & IBV_ACCESS_REMOTE_READ) == 0) return IBV_WC_REM_INV_REQ_ERR;
  return IBV_WC_SUCCESS;
}

/// The last check, for reads and writes of length > 0 (a zero-length one needs no valid rkey). `mr`
/// is what the rkey resolved to. What the requester reports if refused: REM_ACCESS_ERR.
inline ibv_wc_status check_mr_access(ibv_wr_opcode opcode, const MrView& mr, uint32_t qp_pd,
                                     uint64_t remote_address, uint32_t length) {
  const uint32_t needed = is_read(opcode) ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  if (mr.pd != qp_pd || (mr.access & needed) == 0 || !mr.holds(remote_address, length)) {
    return IBV_WC_REM_ACCESS_ERR;
  }
  return IBV_WC_SUCCESS;
}

}  // namespace braid::vhca::soft
