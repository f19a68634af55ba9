#include "vhca/soft/copy.h"

#include <atomic>
#include <cstdint>
#include <cstring>

namespace braid::vhca::soft {
namespace {

/// Stores one byte so that it cannot move before the stores ahead of it (and none is torn).
void store_last_byte(std::byte* to, std::byte value) {
  __atomic_store_n(reinterpret_cast<uint8_t*>(to), static_cast<uint8_t>(value), __ATOMIC_RELEASE);
}

}  // namespace

void copy_last_word_last(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0) return;
  const size_t past_aligned = reinterpret_cast<uintptr_t>(to + bytes) % sizeof(uint64_t);
  if (past_aligned == 0 && bytes >= sizeof(uint64_t)) {
    const size_t head = bytes - sizeof(uint64_t);
    uint64_t last = 0;
    std::memcpy(&last, from + head, sizeof(last));
    if (head > 0) std::memcpy(to, from, head);
    __atomic_store_n(reinterpret_cast<uint64_t*>(to + head), last, __ATOMIC_RELEASE);
    return;
  }
  const std::byte last = from[bytes - 1];
  if (bytes > 1) std::memcpy(to, from, bytes - 1);
  store_last_byte(to + bytes - 1, last);
}

}  // namespace braid::vhca::soft
