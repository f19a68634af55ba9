#include "base/spsc_ring.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <memory>
#include <thread>

namespace braid::base {
namespace {

TEST(SpscRing, IsBoundedAndKeepsOrder) {
  SpscRing<int> ring(4);
  int out = -1;
  EXPECT_TRUE(ring.empty());
  EXPECT_FALSE(ring.pop(out));
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(ring.push(round * 10 + i));
    EXPECT_FALSE(ring.push(99));
    EXPECT_FALSE(ring.empty());
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(ring.pop(out));
      EXPECT_EQ(out, round * 10 + i);
    }
    EXPECT_FALSE(ring.pop(out));
  }
}

TEST(SpscRing, AValueThatFoundNoRoomIsLeftAsItWas) {
  SpscRing<std::unique_ptr<int>> ring(1);
  EXPECT_TRUE(ring.push(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(ring.push(second));
  ASSERT_NE(second, nullptr);
  std::unique_ptr<int> out;
  EXPECT_TRUE(ring.pop(out));
  EXPECT_TRUE(ring.push(second));
  EXPECT_EQ(second, nullptr);
}

TEST(SpscRing, TwoThreadsMoveEveryValueOnceInOrder) {
  static constexpr uint64_t kCount = 200'000;
  SpscRing<std::pair<uint64_t, uint64_t>> ring(64);
  std::thread producer([&] {
    for (uint64_t i = 0; i < kCount; ++i) {
      while (!ring.push({i, ~i})) ::sched_yield();
    }
  });
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    std::pair<uint64_t, uint64_t> value;
    while (!ring.pop(value)) ::sched_yield();
    wrong += value.first != i || value.second != ~i;
  }
  producer.join();
  EXPECT_EQ(wrong, 0u);
}

TEST(SpscRingDeathTest, ACapacityThatIsNoPowerOfTwoIsABug) {
  EXPECT_DEATH(SpscRing<int>(3), "has_single_bit");
}

}  // namespace
}  // namespace braid::base
