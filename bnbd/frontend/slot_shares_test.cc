#include "bnbd/frontend/slot_shares.h"

#include <gtest/gtest.h>

namespace braid::bnbd {
namespace {

/// A pool of so many slots and the connections that hold them.
struct Pool {
  explicit Pool(unsigned slots, unsigned connections) : free(slots), shares(slots, connections) {}
  bool take(unsigned& held) {
    if (!shares.may_take(held, free)) return false;
    shares.take(held++);
    --free;
    return true;
  }
  void give_back(unsigned& held) {
    shares.give_back(--held);
    ++free;
  }
  unsigned free;
  SlotShares shares;
};

TEST(SlotSharesTest, WhoTakesAllItCanLeavesEachOtherItsPart) {
  Pool pool(64, 8);
  unsigned greedy = 0;
  while (pool.take(greedy)) {
  }
  EXPECT_EQ(greedy, 64U - 7 * 4) << "half is divided among eight, the other half is free to take";
  unsigned others[7] = {};
  for (unsigned& held : others) {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(pool.take(held));
    EXPECT_FALSE(pool.take(held));
  }
  EXPECT_EQ(pool.free, 0U);
  pool.give_back(others[0]);
  EXPECT_FALSE(pool.take(greedy)) << "it is owed to whom it was given before";
  EXPECT_TRUE(pool.take(others[0]));
}

TEST(SlotSharesTest, WhatAConnectionLeavesBehindAtTheDeviceIsNoLossForTheNext) {
  Pool pool(8, 2);
  unsigned gone = 0;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.take(gone));
  pool.shares.end(gone);
  EXPECT_EQ(pool.shares.owed(), 4U);
  unsigned next = 0;
  EXPECT_TRUE(pool.take(next));
}

TEST(SlotSharesTest, WithoutConnectionsEverybodyTakesWhatThereIs) {
  Pool pool(3, 0);
  unsigned held = 0;
  while (pool.take(held)) {
  }
  EXPECT_EQ(held, 3U);
}

}  // namespace
}  // namespace braid::bnbd
