// Words and bytes in memory that another process has mapped. Each word has one writer.
//
// The rings and tables touch such memory by these names only, so that the interleaving explorer
// (tests/explore) can run their code with names of its own, each access a step.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>

namespace braid::vhca::soft {

template <typename T>
using SharedWord = std::atomic<T>;

/// Stores in no particular order; a word stored with release publishes them.
inline void copy_to_shared(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

/// Orders the stores before it and the loads behind it, without anybody's help.
inline void full_fence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

/// Keeps the compiler from moving memory accesses; with membarrier on the other side this orders
/// them. Without membarrier the fast side needs the real fence.
inline void light_fence(bool heavy_fence_exists) {
  if (heavy_fence_exists) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    full_fence();
  }
}

}  // namespace braid::vhca::soft
