// What one queue lends another: the rule alone.
#include <gtest/gtest.h>

#include "trs/client/lending.h"

namespace braid::trs::client {
namespace {

TEST(Lending, AnIdleQueueLendsHalfOfWhatIsFree) {
  EXPECT_EQ(spare({.size = 20, .free = 20}, 20), 10u);
  EXPECT_EQ(spare({.size = 20, .free = 5}, 20), 3u);
  EXPECT_EQ(spare({.size = 500, .free = 500}, 500), kLoanMax);
  EXPECT_EQ(spare({.size = 20, .free = 0}, 20), 0u);
}

TEST(Lending, WhoHasUsersWaitingLendsNothingThatIsFree) {
  EXPECT_EQ(spare({.size = 20, .free = 2, .waiting = 1}, 20), 0u);
}

TEST(Lending, AnEighthIsKeptAndOneAtLeast) {
  EXPECT_EQ(spare({.size = 5, .free = 5}, 32), 1u);
  EXPECT_EQ(spare({.size = 4, .free = 4}, 32), 0u);
  EXPECT_EQ(spare({.size = 1, .free = 1}, 3), 0u);
  EXPECT_FALSE(owes({.size = 4, .waiting = 0}, {.size = 1, .waiting = 100}, 32));
}

TEST(Lending, ABusyQueueOwesUntilItHasNoMorePerUserThanTheAsker) {
  EXPECT_TRUE(owes({.size = 32, .waiting = 1}, {.size = 32, .waiting = 3}, 32));
  EXPECT_TRUE(owes({.size = 17, .waiting = 1}, {.size = 47, .waiting = 3}, 32));
  EXPECT_FALSE(owes({.size = 16, .waiting = 1}, {.size = 48, .waiting = 3}, 32));
}

/// Else permits would go to and fro for ever.
TEST(Lending, NeverDoBothOweEachOther) {
  for (uint32_t size = 1; size < 64; ++size) {
    for (uint32_t here = 1; here < 9; ++here) {
      for (uint32_t there = 1; there < 9; ++there) {
        const PermitHolding lender{size, 0, here};
        const PermitHolding asker{64 - size, 0, there};
        if (!owes(lender, asker, 8)) continue;
        const PermitHolding after{asker.size + 1, 0, there};
        const PermitHolding rest{size - 1, 0, here};
        EXPECT_FALSE(owes(after, rest, 8)) << size << ' ' << here << ' ' << there;
      }
    }
  }
}

}  // namespace
}  // namespace braid::trs::client
