// Objects that are made as they are needed, and no others.
#include "base/lazy_array.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace braid::base {
namespace {

/// Counts those that live.
struct Counted {
  Counted() { ++living; }
  ~Counted() { --living; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  static inline int living = 0;
};

TEST(LazyArrayTest, ObjectsAreMadeOneAfterTheOtherUntilAllAreThere) {
  {
    LazyArray<Counted> array(3);
    EXPECT_EQ(array.begin(), array.end());
    for (size_t i = 0; i < 3; ++i) ASSERT_EQ(array.make(), array.begin() + i);
    EXPECT_EQ(array.make(), nullptr);
    EXPECT_EQ(Counted::living, 3);
  }
  EXPECT_EQ(Counted::living, 0);
}

TEST(ZeroedArrayTest, AllAreZeroAndAligned) {
  struct alignas(64) Line {
    uint64_t words[8];
  };
  const ZeroedArray<Line> lines(9);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(&lines[i]) % 64, 0u);
    for (const uint64_t word : lines[i].words) EXPECT_EQ(word, 0u);
  }
}

}  // namespace
}  // namespace braid::base
