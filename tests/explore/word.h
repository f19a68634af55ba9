// lint: allow(orphan) A generated vhca/soft/shared_word.h includes it, see CMakeLists.txt.
// What takes the place of vhca/soft/shared_word.h in the explorer: the same names, each access a
// step of the present World.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/explore/world.h"

namespace braid::vhca::soft {

template <typename T>
class SharedWord {
 public:
  static constexpr bool is_always_lock_free = true;  // NOLINT: as std::atomic has it

  T load(std::memory_order order) const {
    (void)order;
    T value = value_;
    if (explore::World* const world = explore::World::current()) {
      world->load(&value_, &value, sizeof(value));
    }
    return value;
  }
  void store(T value, std::memory_order order) {
    explore::World* const world = explore::World::current();
    if (world == nullptr) {
      value_ = value;
      return;
    }
    const bool release = order == std::memory_order_release || order == std::memory_order_seq_cst;
    world->store(&value_, &value, sizeof(value), release);
  }

 private:
  T value_{};
};

inline void copy_to_shared(std::byte* to, const std::byte* from, size_t bytes) {
  if (explore::World* const world = explore::World::current()) {
    world->store(to, from, bytes, false);
    return;
  }
  for (size_t i = 0; i < bytes; ++i) to[i] = from[i];
}

inline void full_fence() {
  if (explore::World* const world = explore::World::current()) world->fence();
}

inline void light_fence(bool heavy_fence_exists) {
  if (!heavy_fence_exists) full_fence();
}

}  // namespace braid::vhca::soft
