#include "trs/server/lent.h"

#include <gtest/gtest.h>

#include <optional>

namespace braid::trs::server {
namespace {

constexpr bool kFresh = false, kAnswered = true;  // whether the session answers from the memory

void fill(LentTable& table, uint32_t count, bool answered = kFresh) {
  for (uint32_t slot = 0; slot < count; ++slot) {
    ASSERT_TRUE(table.room(answered));
    table.put(slot, answered, std::make_unique<vhca::Mr>());
  }
  table.whole();
}

TEST(LentShares, keep_what_a_lost_path_had_for_the_one_that_comes_back) {
  LentQuota quota{.max = 10};
  LentShare of_one(quota), of_another(quota);
  std::optional<LentTable> lost(of_one);
  fill(*lost, 6);
  LentTable greedy(of_another);
  fill(greedy, 4);
  lost.reset();
  EXPECT_FALSE(greedy.room(kAnswered)) << "it would take what the lost path needs to come back";
  LentTable back(of_one);
  fill(back, 6, kAnswered);
  EXPECT_FALSE(back.room(kAnswered));
  back.take_back(0);
  EXPECT_TRUE(greedy.room(kFresh)) << "nobody answers from it any more";
}

TEST(LentShares, keep_it_from_the_paths_that_stay) {
  LentQuota quota{.max = 10};
  LentShare share(quota);
  LentTable stays(share);
  std::optional<LentTable> lost(share);
  fill(stays, 5);
  fill(*lost, 5);
  lost.reset();
  EXPECT_FALSE(stays.room(kFresh));
  EXPECT_FALSE(share.reserve()) << "the path that is away would have no room for one more";
  LentTable back(share);
  fill(back, 5, kAnswered);
  EXPECT_EQ(quota.used, 10U);
}

TEST(LentShares, have_room_for_the_path_that_is_away_when_memory_is_begun_to_be_used) {
  LentQuota quota{.max = 10};
  LentShare share(quota);
  LentTable stays(share);
  std::optional<LentTable> lost(share);
  fill(stays, 2);
  fill(*lost, 2);
  lost.reset();
  stays.put(2, kFresh, std::make_unique<vhca::Mr>());
  ASSERT_TRUE(share.reserve());
  LentShare of_another(quota);
  LentTable greedy(of_another);
  fill(greedy, 4);
  LentTable back(share);
  fill(back, 3, kAnswered);
}

TEST(LentShares, keep_no_more_than_is_answered_from) {
  LentQuota quota{.max = 10};
  LentShare share(quota);
  std::optional<LentTable> lost(share);
  fill(*lost, 1);
  lost.reset();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(share.reserve());
    share.release();
  }
  EXPECT_EQ(quota.used, 1U);
  LentTable back(share);
  back.whole();  // what it had is not used any more
  EXPECT_EQ(quota.used, 0U);
}

TEST(LentShares, are_right_when_memory_goes_while_a_path_comes_back) {
  LentQuota quota{.max = 2};
  LentShare share(quota);
  std::optional<LentTable> lost(share);
  fill(*lost, 2);
  lost.reset();
  LentTable back(share);
  back.put(0, kAnswered, std::make_unique<vhca::Mr>());
  back.take_back(0);  // it is answered from no more
  share.release();
  EXPECT_EQ(quota.used, 1U) << "what the other memory needs";
  LentShare of_another(quota);
  LentTable greedy(of_another);
  fill(greedy, 1);
  ASSERT_TRUE(back.room(kAnswered)) << "or the path could not come back";
  back.put(1, kAnswered, std::make_unique<vhca::Mr>());
  back.whole();
  EXPECT_EQ(quota.used, 2U);
}

TEST(LentShares, grow_by_no_attempt_that_fails) {
  LentQuota quota{.max = 10};
  LentShare share(quota);
  std::optional<LentTable> lost(share);
  fill(*lost, 1);
  lost.reset();
  for (int i = 0; i < 10; ++i) {
    LentTable attempt(share);
    attempt.put(0, kAnswered, std::make_unique<vhca::Mr>());
    attempt.put(1, kFresh, std::make_unique<vhca::Mr>());
  }
  EXPECT_EQ(quota.used, 1U);
}

TEST(LentShares, of_an_attempt_that_fails_go_back) {
  LentQuota quota{.max = 10};
  LentShare share(quota);
  {
    LentTable attempt(share);
    attempt.put(0, kAnswered, std::make_unique<vhca::Mr>());
  }
  EXPECT_EQ(quota.used, 0U);
}

TEST(LentShares, give_all_back_with_their_session) {
  LentQuota quota{.max = 10};
  {
    LentShare share(quota);
    LentTable lost(share), stays(share);
    fill(lost, 4);
    fill(stays, 3);
    EXPECT_EQ(quota.used, 7U);
  }
  EXPECT_EQ(quota.used, 0U);
}

}  // namespace
}  // namespace braid::trs::server
