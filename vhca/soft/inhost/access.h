// How an initiator comes to memory of its peer, and how the owner takes that back: the steps whose
// order keeps the two apart. Links do them by these functions, and so does the interleaving
// explorer (tests/explore).
//
//      initiator: visit()            owner: withdraw()
//      says that it is at work       closes the gate, or removes the key
//      gate, then the key's entry    heavy fence
//      touches memory                looks who is at work
//      says that it is not           waits for those
//
// Either the initiator finds the gate closed, or the key gone; or the owner finds it at work.
//
// The keys of windows go with each request of some programs (LOCAL_INV), too often for a system
// call: there either side pays for a fence of its own, and who resolved such a key looks again.
// Private to vhca/soft/inhost.
#pragma once

#include <cstdint>
#include <optional>

#include "vhca/soft/atomic.h"
#include "vhca/soft/inhost/outbound_ring.h"
#include "vhca/soft/mr_table.h"
#include "vhca/soft/remote_check.h"

namespace braid::vhca::soft::inhost {

/// `touch(gate)` may use what the gate and the entry of `rkey` allow. Gives the gate.
template <typename Touch>
Gate visit(OutboundRing& ring, uint32_t rkey, Touch&& touch) {
  ring.begin_copy(rkey);
  const Gate gate = ring.gate();
  touch(gate);
  ring.end_copy();
  return gate;
}

/// In a visit: what the peer's entry says, if it allows the request. `pd` is the gate's.
inline ibv_wc_status look_up(const MrEntry& entry, const Request& request, uint32_t pd,
                             uint32_t peer_qp_number, MrView& mr) {
  if (!read_mr(entry, request.rkey, mr)) return IBV_WC_REM_ACCESS_ERR;
  if ((mr.pd & kWindowScope) != 0) {
    full_fence();  // behind begin_copy(); pairs with that of fence_window()
    if (!read_mr(entry, request.rkey, mr)) return IBV_WC_REM_ACCESS_ERR;
  }
  return check_mr_access(request.opcode, mr, pd, peer_qp_number, request.remote_address,
                         request.length);
}

/// Where the request's memory begins in the mapping of its segment. Nothing if it does not lie
/// inside: the table may have been scribbled on, or the segment be another by now.
inline std::optional<uint64_t> offset_in_mapping(const MrView& mr, const Request& request,
                                                 uint64_t mapped_bytes) {
  const uint64_t offset = mr.place.offset + (request.remote_address - mr.address);
  if (offset < mr.place.offset || offset > mapped_bytes) return std::nullopt;
  if (request.length > mapped_bytes - offset) return std::nullopt;
  return offset;
}

/// Gives what `look()` finds at work, once nobody new can be. What peers do from then on they begin
/// after `take_back()`.
template <typename TakeBack, typename HeavyFence, typename Look>
auto withdraw(TakeBack&& take_back, HeavyFence&& heavy_fence, Look&& look) {
  take_back();
  heavy_fence();
  return look();
}

/// The same for a window, which only the peer of one QP can have resolved: its key has gone. Gives
/// the copy that this peer may be at by it, or 0.
template <typename Copies>
uint64_t fence_window(const Copies& copies, uint32_t key) {
  full_fence();
  return copies.under_way(key);
}

/// In a visit: an atomic on a word that is reached by system calls. `word.claim()` keeps others
/// away that claim it until `word` goes, or the process dies; kFull if one of them is at it.
template <typename Word>
Execution change_claimed(const Request& request, Word& word, uint64_t& before) {
  const Execution claimed = word.claim();
  if (claimed.outcome != Outcome::kDone) return claimed;
  const Execution read = word.read(before);
  if (read.outcome != Outcome::kDone) return read;
  const uint64_t after = atomic_after(request, before);
  return after == before ? read : word.write(after);
}

}  // namespace braid::vhca::soft::inhost
