// FETCH_ADD and CMP_SWP on an aligned word of 8 bytes, in host byte order at both ends.
//
// In memory that this process has mapped they are the processor's own atomic operations, so that
// whoever else reaches the word, by a wire or by itself, sees each of them whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "vhca/soft/copy.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft {

/// What the word becomes if it was `before`.
constexpr uint64_t atomic_after(const Request& request, uint64_t before) {
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) return before + request.compare_add;
  return before == request.compare_add ? request.swap : before;
}

/// Executes on `word`, aligned to 8 bytes; gives what it was before. Everything before it in
/// program order is seen by who sees it.
inline uint64_t apply_atomic(const Request& request, std::byte* word) {
  auto* const target = reinterpret_cast<uint64_t*>(word);
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    return __atomic_fetch_add(target, request.compare_add, __ATOMIC_SEQ_CST);
  }
  uint64_t before = request.compare_add;
  __atomic_compare_exchange_n(target, &before, request.swap, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
  return before;
}

/// Gives the initiator what the word was before. The pieces are 8 bytes in all.
inline void land_atomic(std::span<const Piece> pieces, uint64_t before) {
  const std::byte* from = reinterpret_cast<const std::byte*>(&before);
  for (const Piece& piece : pieces) {
    copy_last_word_last(piece.address, from, piece.length);
    from += piece.length;
  }
}

}  // namespace braid::vhca::soft
