// Which of a client's connections come first in its turn.
#include <gtest/gtest.h>

#include "trs/server/worker.h"

namespace braid::trs::server {
namespace {

TEST(TurnClient, ThoseThatDozeAndThoseThatDoNotTakeTurns) {
  TurnClient client;
  bool before = client.next_is_awake(true);
  for (int i = 0; i < 10; ++i) {
    const bool now = client.next_is_awake(true);
    EXPECT_NE(now, before);
    before = now;
  }
}

/// One that owes in each second turn, or in two of three, lets both take something.
TEST(TurnClient, ATurnInWhichItMayTakeNothingDoesNotCount) {
  for (const int every : {2, 3}) {
    TurnClient client;
    int awake = 0, dozing = 0;
    for (int turn = 0; turn < 10 * every; ++turn) {
      const bool may_take = turn % every == 0;
      const bool awake_first = client.next_is_awake(may_take);
      if (may_take) ++(awake_first ? awake : dozing);
    }
    EXPECT_EQ(awake, 5);
    EXPECT_EQ(dozing, 5);
  }
}

TEST(TurnClient, OneOfWhomNothingIsLeftDoesNotDoze) {
  TurnClient client;
  EXPECT_FALSE(client.only_dozes());
  EXPECT_FALSE(client.busy());
}

}  // namespace
}  // namespace braid::trs::server
