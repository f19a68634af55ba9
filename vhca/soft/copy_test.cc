// What is copied is all of it, and who sees the last byte sees the rest.
#include "vhca/soft/copy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace braid::vhca::soft {
namespace {

TEST(CopyTest, EveryLengthAtEveryAlignmentIsCopiedAndNothingElse) {
  std::vector<std::byte> from(256);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i + 1);
  for (size_t offset = 0; offset < 16; ++offset) {
    for (size_t bytes = 0; bytes <= 130; ++bytes) {
      alignas(16) std::byte to[192] = {};
      copy_last_word_last(to + 16 + offset, from.data(), bytes);
      ASSERT_EQ(std::memcmp(to + 16 + offset, from.data(), bytes), 0);
      ASSERT_EQ(to[15 + offset], std::byte{0});
      ASSERT_EQ(to[16 + offset + bytes], std::byte{0});
    }
  }
}

TEST(CopyTest, TheLastWordIsSeenLast) {
  // A reader that spins on the last word, as ib_write_lat does on the last byte. The others are
  // read through atomics so that the thread sanitizer has nothing to object to but their order.
  constexpr size_t kWords = 16;
  alignas(64) uint64_t target[kWords] = {};
  constexpr uint64_t kRounds = 20'000;
  std::atomic<uint64_t> seen{0};
  std::thread writer([&] {
    uint64_t source[kWords];
    for (uint64_t round = 1; round <= kRounds; ++round) {
      for (uint64_t& word : source) word = round;
      copy_last_word_last(reinterpret_cast<std::byte*>(target),
                          reinterpret_cast<const std::byte*>(source), sizeof(target));
      while (seen.load(std::memory_order_acquire) != round) std::this_thread::yield();
    }
  });
  for (uint64_t round = 1; round <= kRounds; ++round) {
    while (__atomic_load_n(&target[kWords - 1], __ATOMIC_ACQUIRE) != round) {
      std::this_thread::yield();
    }
    for (size_t i = 0; i < kWords; ++i) ASSERT_EQ(target[i], round);
    seen.store(round, std::memory_order_release);
  }
  writer.join();
}

}  // namespace
}  // namespace braid::vhca::soft
