#include "trs/permit_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace braid::trs {
namespace {

std::set<uint32_t> take_all(PermitPool& pool) {
  std::set<uint32_t> taken;
  while (const auto index = pool.acquire()) EXPECT_TRUE(taken.insert(*index).second);
  return taken;
}

TEST(PermitPool, ReactorsShareAllButTheReservedOnes) {
  std::set<uint32_t> all;
  for (uint32_t reactor = 0; reactor < 3; ++reactor) {
    PermitPool pool(128);
    pool.add_every(reactor, 3, 4);
    const std::set<uint32_t> mine = take_all(pool);
    EXPECT_EQ(mine.size(), pool.size());
    for (const uint32_t index : mine) {
      EXPECT_EQ(index % 3, reactor);
      EXPECT_TRUE(all.insert(index).second);
    }
  }
  EXPECT_EQ(all.size(), 124u);
  EXPECT_EQ(*all.begin(), 4u);
}

TEST(PermitPool, GivesTheLowestFreeOne) {
  PermitPool pool(200);
  pool.add_every(0, 1, 0);
  take_all(pool);
  EXPECT_EQ(pool.free_count(), 0u);
  pool.release(150);
  pool.release(64);
  EXPECT_EQ(pool.acquire(), 64u);
  EXPECT_EQ(pool.acquire(), 150u);
  EXPECT_EQ(pool.acquire(), std::nullopt);
}

TEST(PermitPool, OwnsOnlyItsOwn) {
  PermitPool pool(10);
  pool.add_every(1, 2, 1);
  EXPECT_TRUE(pool.owns(9));
  EXPECT_FALSE(pool.owns(8));
  EXPECT_FALSE(pool.owns(11));
  EXPECT_FALSE(pool.owns(0));
}

TEST(PermitPool, LendsTheHighestFreeOneAndHasItNoMore) {
  PermitPool pool(200);
  pool.add_every(0, 1, 0);
  EXPECT_EQ(pool.lend(), 199u);
  EXPECT_EQ(pool.size(), 199u);
  EXPECT_FALSE(pool.owns(199));
  take_all(pool);
  EXPECT_EQ(pool.lend(), std::nullopt);
  pool.release(63);
  EXPECT_EQ(pool.lend(), 63u);
  EXPECT_EQ(pool.free_count(), 0u);
  EXPECT_EQ(pool.size(), 198u);
  pool.add(63);
  EXPECT_EQ(pool.acquire(), 63u);
}

TEST(PermitPoolDeathTest, GivingBackTwiceIsABug) {
  PermitPool pool(4);
  pool.add_every(0, 1, 0);
  EXPECT_DEATH(pool.release(1), "");
}

TEST(PermitPoolDeathTest, AddingWhatIsThereIsABug) {
  PermitPool pool(4);
  pool.add(2);
  EXPECT_DEATH(pool.add(2), "");
}

}  // namespace
}  // namespace braid::trs
