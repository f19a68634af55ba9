// InHostLink: FETCH_ADD and CMP_SWP on the peer's memory.
//
// In a segment they are the processor's, on the mapping that both share. Foreign memory is read and
// written by system calls; whoever changes a word of it first claims it (word_claim.h).
#include <array>

#include "vhca/soft/atomic.h"
#include "vhca/soft/inhost/access.h"
#include "vhca/soft/inhost/link.h"
#include "vhca/soft/inhost/word_claim.h"
#include "vhca/soft/remote_check.h"

namespace braid::vhca::soft::inhost {
namespace {

using base::Errc;

constexpr Execution failed_atomic(ibv_wc_status status) {
  return {.outcome = Outcome::kFailed, .status = status};
}

/// A word of the peer's memory, by system calls.
class ForeignWord {
 public:
  ForeignWord(base::Host& host, PeerDevice& peer, uint64_t address, std::atomic<bool>& claims_wait)
      : host_(host), peer_(peer), address_(address), claims_wait_(claims_wait) {}

  Execution claim() {
    claim_ = claim_word(host_, peer_.mr_table(), address_, claims_wait_);
    // Who is at it lets go in microseconds, a descriptor comes some day: so does the request.
    if (claim_.claimed) return {.outcome = Outcome::kFull};
    return claim_.lock != nullptr ? Execution{} : failed_atomic(IBV_WC_LOC_QP_OP_ERR);
  }
  Execution read(uint64_t& value) {
    const std::array<std::span<std::byte>, 1> into = {std::as_writable_bytes(std::span(&value, 1))};
    return result_of(peer_.process().read(address_, into));
  }
  Execution write(uint64_t value) {
    const std::array<std::span<const std::byte>, 1> from = {std::as_bytes(std::span(&value, 1))};
    return result_of(peer_.process().write(address_, from));
  }

 private:
  static Execution result_of(Errc result) {
    if (result == Errc::kOk) return {};
    return failed_atomic(result == Errc::kDisconnected ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_OP_ERR);
  }

  base::Host& host_;
  PeerDevice& peer_;
  const uint64_t address_;
  std::atomic<bool>& claims_wait_;
  WordClaim claim_;
};

}  // namespace

Execution InHostLink::execute_atomic(const Request& request) {
  // As for a copy: close and deregistration at the owner wait until we have let go of the word.
  Execution execution;
  uint64_t before = 0;
  const Gate gate = visit(outbound_, request.rkey, [&](const Gate& seen) {
    if (!passes(seen)) return;
    const ibv_wc_status status = check_qp_access(request.opcode, seen.access);
    execution =
        status == IBV_WC_SUCCESS ? change_word(request, seen.pd, before) : failed_atomic(status);
  });
  if (!passes(gate)) return not_open(request, gate);
  if (execution.outcome == Outcome::kDone) land_atomic(request.pieces, before);
  if (execution.outcome != Outcome::kFailed) return execution;
  // The peer is told of what it refused, not of what we failed in.
  if (execution.status == IBV_WC_LOC_QP_OP_ERR) return execution;
  return refuse(execution.status, IBV_WC_SUCCESS);
}

Execution InHostLink::change_word(const Request& request, uint32_t pd, uint64_t& before) {
  std::byte* word = nullptr;
  const Execution resolved = resolve(request, pd, word);
  if (resolved.outcome != Outcome::kDone) return resolved;
  if (word == nullptr) {
    ForeignWord foreign(host_, *peer_, request.remote_address, claims_wait_);
    return change_claimed(request, foreign, before);
  }
  // The address is aligned; a table that was scribbled on may still lead elsewhere.
  if (reinterpret_cast<uintptr_t>(word) % kAtomicBytes != 0)
    return failed_atomic(IBV_WC_REM_ACCESS_ERR);
  before = apply_atomic(request, word);
  return {};
}

}  // namespace braid::vhca::soft::inhost
