#include "trs/server/lent.h"

#include <gtest/gtest.h>

#include <optional>

namespace braid::trs::server {
namespace {

void fill(LentTable& table, uint32_t count) {
  for (uint32_t slot = 0; slot < count; ++slot) {
    ASSERT_TRUE(table.room());
    table.put(slot, std::make_unique<vhca::Mr>());
  }
}

TEST(LentShares, keep_what_a_lost_path_had_for_the_one_that_comes_back) {
  LentQuota quota{.max = 10};
  LentShare of_one(quota), of_another(quota);
  std::optional<LentTable> lost(of_one);
  fill(*lost, 6);
  LentTable greedy(of_another);
  fill(greedy, 4);
  lost.reset();
  EXPECT_FALSE(greedy.room()) << "it would take what the lost path needs to come back";
  LentTable back(of_one);
  fill(back, 6);
  EXPECT_FALSE(back.room());
  back.take_back(0);
  EXPECT_TRUE(greedy.room()) << "nobody answers from it any more";
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
