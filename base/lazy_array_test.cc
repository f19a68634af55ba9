// Objects that are made as they are needed, and no others.
#include "base/lazy_array.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

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

TEST(SparseArrayTest, ObjectsAreMadeInAnyOrderAndNoOthers) {
  {
    SparseArray<Counted> array(9);
    EXPECT_EQ(array.size(), 9u);
    for (const size_t index : {7, 0, 3}) {
      EXPECT_FALSE(array.has(index));
      Counted& made = array.make(index);
      EXPECT_EQ(&made, &array[index]);
      EXPECT_TRUE(array.has(index));
    }
    EXPECT_EQ(Counted::living, 3);
    EXPECT_FALSE(array.has(1));
  }
  EXPECT_EQ(Counted::living, 0);
}

TEST(SparseArrayTest, WhoSeesOneSeesAllOfIt) {
  struct Pair {
    uint64_t first = 17, second = 19;
  };
  for (int round = 0; round < 200; ++round) {
    SparseArray<Pair> array(2);
    std::thread maker([&array] { array.make(1); });
    if (array.has(1)) {
      EXPECT_EQ(array[1].first + array[1].second, 36u);
    }
    maker.join();
    EXPECT_TRUE(array.has(1));
    EXPECT_FALSE(array.has(0));
  }
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
