// InHostLink: FETCH_ADD and CMP_SWP on the peer's memory.
//
// In a segment they are the processor's, on the mapping that both share. Foreign memory is read and
// written by system calls; whoever changes a word of it first claims it (word_claim.h).
#include <array>

#include "vhca/soft/atomic.h"
#include "vhca/soft/inhost/link.h"
#include "vhca/soft/inhost/word_claim.h"
#include "vhca/soft/remote_check.h"

namespace braid::vhca::soft::inhost {
namespace {

using base::Errc;

constexpr Execution failed(ibv_wc_status status) {
  return {.outcome = Outcome::kFailed, .status = status};
}

}  // namespace

Execution InHostLink::execute_atomic(const Request& request) {
  // As for a copy: close and deregistration at the owner wait until we have let go of the word.
  outbound_.begin_copy(request.rkey);
  const Gate gate = outbound_.gate();
  Execution execution;
  uint64_t before = 0;
  if (passes(gate)) {
    const ibv_wc_status status = check_qp_access(request.opcode, gate.access);
    execution = status == IBV_WC_SUCCESS ? change_word(request, gate.pd, before) : failed(status);
  }
  outbound_.end_copy();
  if (!passes(gate)) return not_open(request, gate);
  if (execution.outcome == Outcome::kDone) land_atomic(request.pieces, before);
  if (execution.outcome != Outcome::kFailed) return execution;
  // The peer is told of what it refused, not of what we failed in.
  if (execution.status == IBV_WC_LOC_QP_OP_ERR) return execution;
  return refuse(execution.status, IBV_WC_SUCCESS);
}

Execution InHostLink::change_word(const Request& request, uint32_t pd, uint64_t& before) {
  std::byte* word = nullptr;
  const ibv_wc_status status = resolve(request, pd, word);
  if (status != IBV_WC_SUCCESS) return failed(status);
  if (word == nullptr) return change_foreign(request, before);
  // The address is aligned; a table that was scribbled on may still lead elsewhere.
  if (reinterpret_cast<uintptr_t>(word) % kAtomicBytes != 0) return failed(IBV_WC_REM_ACCESS_ERR);
  before = apply_atomic(request, word);
  return {};
}

/// A word that another peer of the owner is at comes again later: kFull.
Execution InHostLink::change_foreign(const Request& request, uint64_t& before) {
  const WordClaim claim = claim_word(host_, peer_->device(), request.remote_address);
  if (claim.claimed) return {.outcome = Outcome::kFull};
  if (claim.name == nullptr) return failed(IBV_WC_LOC_QP_OP_ERR);
  const auto result_of = [](Errc result) {
    if (result == Errc::kOk) return Execution{};
    return failed(result == Errc::kDisconnected ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_OP_ERR);
  };
  const std::array<std::span<std::byte>, 1> into = {std::as_writable_bytes(std::span(&before, 1))};
  const Execution read = result_of(peer_->process().read(request.remote_address, into));
  const uint64_t after = atomic_after(request, before);
  if (read.outcome != Outcome::kDone || after == before) return read;
  const std::array<std::span<const std::byte>, 1> from = {std::as_bytes(std::span(&after, 1))};
  return result_of(peer_->process().write(request.remote_address, from));
}

}  // namespace braid::vhca::soft::inhost
