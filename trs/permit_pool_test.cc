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

TEST(PermitPool, ReactorsShareAllButPermitZero) {
  std::set<uint32_t> all;
  for (uint32_t reactor = 0; reactor < 3; ++reactor) {
    PermitPool pool({.first = reactor, .stride = 3, .queue_depth = 128});
    const std::set<uint32_t> mine = take_all(pool);
    EXPECT_EQ(mine.size(), pool.size());
    for (const uint32_t index : mine) {
      EXPECT_EQ(index % 3, reactor);
      EXPECT_TRUE(all.insert(index).second);
      EXPECT_LT(pool.slot_of(index), pool.slots());
    }
  }
  EXPECT_EQ(all.size(), 127u);
  EXPECT_FALSE(all.contains(0));
}

TEST(PermitPool, AdminPermitsAreTheLowestAndNobodyElses) {
  PermitPool admin({.first = 0, .stride = 1, .queue_depth = 4, .reserved = 0});
  EXPECT_EQ(take_all(admin), (std::set<uint32_t>{0, 1, 2, 3}));
  EXPECT_FALSE(admin.owns(4));
  std::set<uint32_t> rest;
  for (uint32_t reactor = 0; reactor < 3; ++reactor) {
    PermitPool pool({.first = reactor, .stride = 3, .queue_depth = 128, .reserved = 4});
    EXPECT_FALSE(pool.owns(reactor));
    rest.merge(take_all(pool));
  }
  EXPECT_EQ(rest.size(), 124u);
  EXPECT_EQ(*rest.begin(), 4u);
}

TEST(PermitPool, GivesTheLowestFreeOne) {
  PermitPool pool({.first = 0, .stride = 1, .queue_depth = 200});
  take_all(pool);
  EXPECT_EQ(pool.free_count(), 0u);
  pool.release(150);
  pool.release(64);
  EXPECT_EQ(pool.acquire(), 64u);
  EXPECT_EQ(pool.acquire(), 150u);
  EXPECT_EQ(pool.acquire(), std::nullopt);
}

TEST(PermitPool, OwnsOnlyItsOwn) {
  PermitPool pool({.first = 1, .stride = 2, .queue_depth = 10});
  EXPECT_TRUE(pool.owns(9));
  EXPECT_FALSE(pool.owns(8));
  EXPECT_FALSE(pool.owns(11));
  EXPECT_FALSE(pool.owns(0));
}

TEST(PermitPoolDeathTest, GivingBackTwiceIsABug) {
  PermitPool pool({.first = 0, .stride = 1, .queue_depth = 4});
  EXPECT_DEATH(pool.release(1), "");
}

}  // namespace
}  // namespace braid::trs
