#include "vhca/wire_budget.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace braid::vhca {
namespace {

TEST(WireBudgetTest, WithoutABoundEverybodyReceives) {
  WireBudget budget;
  WireTurn its;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(budget.begin(its));
    EXPECT_EQ(budget.most(1 << 30), 1u << 30);
    budget.moved(1 << 30);
  }
}

TEST(WireBudgetTest, WhatIsNotUsedIsNotKeptAndWhatIsOwedIsTakenOff) {
  WireBudget budget;
  budget.give(10'000);
  budget.give(10'000);
  EXPECT_EQ(budget.most(1 << 20), 10'000u);
  budget.moved(9'000);
  EXPECT_EQ(budget.most(1 << 20), 4096u) << "a call for less is not worth it";
  budget.moved(4096);
  EXPECT_TRUE(budget.used_up());
  budget.give(10'000);
  EXPECT_EQ(budget.most(1 << 20), 6'904u);
  for (int i = 0; i < 20; ++i) budget.handled_frame();
  budget.give(10'000);
  EXPECT_EQ(budget.most(1 << 20), 0u);
  budget.give_all();
  EXPECT_EQ(budget.most(1 << 20), 1u << 20);
}

/// Answers to what it asked for while it was alone are sent whole, and all at once.
TEST(WireBudgetTest, WhoOwesVeryMuchIsHeardAgainBeforeLong) {
  WireBudget budget;
  budget.give(8192);
  budget.moved(1 << 30);
  int turns = 0;
  for (; budget.most(1) == 0 && turns < 10'000; ++turns) budget.give(8192);
  EXPECT_GT(turns, 1000) << "it pays";
  EXPECT_LT(turns, 2500) << "but not for ever";
}

TEST(WireBudgetTest, WhoIsNotInAnybodysWayMayComeAgain) {
  WireBudget budget;
  WireTurn its;
  budget.give(10'000);
  EXPECT_TRUE(budget.begin(its));
  budget.moved(100);
  EXPECT_TRUE(budget.begin(its));
}

/// Each takes all there is, and they always ask in one order.
TEST(WireBudgetTest, AllThatAskReceiveOneAfterTheOther) {
  WireBudget budget;
  std::array<WireTurn, 5> all;
  std::vector<size_t> received;
  for (int turn = 0; turn < 20; ++turn) {
    budget.give(4096);
    for (size_t i = 0; i < all.size(); ++i) {
      if (!budget.begin(all[i])) continue;
      budget.moved(4096);
      received.push_back(i);
    }
  }
  ASSERT_EQ(received.size(), 20u);
  for (size_t i = 0; i < received.size(); ++i) EXPECT_EQ(received[i], i % all.size()) << i;
}

TEST(WireBudgetTest, WhoIsAloneIsRefusedOnlyWhileItIsUsedUp) {
  WireBudget budget;
  WireTurn its;
  for (int turn = 0; turn < 3; ++turn) {
    budget.give(4096);
    EXPECT_TRUE(budget.begin(its));
    budget.moved(4096);
    EXPECT_FALSE(budget.begin(its));
  }
}

TEST(WireBudgetTest, WhoGoesAwayAfterItWasRefusedKeepsNobodyWaiting) {
  WireBudget budget;
  WireTurn first, second;
  budget.give(4096);
  EXPECT_TRUE(budget.begin(first));
  budget.moved(4096);
  EXPECT_FALSE(budget.begin(second));
  budget.give(4096);
  EXPECT_FALSE(budget.begin(first)) << "the other goes first";
  budget.give(4096);
  EXPECT_TRUE(budget.begin(first));
}

}  // namespace
}  // namespace braid::vhca
