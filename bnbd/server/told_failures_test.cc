#include "bnbd/server/told_failures.h"

#include <gtest/gtest.h>

namespace braid::bnbd::server {
namespace {

class Told : public testing::Test {
 protected:
  const char chunks_[2] = {};
  const void* const chunk_ = &chunks_[0];
  const void* const other_chunk_ = &chunks_[1];
  ToldFailures told_{3};
};

TEST_F(Told, what_was_there_at_the_opening_is_known) {
  EXPECT_TRUE(told_.may_vouch(3, 1));
  EXPECT_FALSE(told_.may_vouch(4, 1));
}

TEST_F(Told, a_connection_that_has_told_may_vouch_and_another_may_not) {
  told_.tell(4, 1, chunk_);
  EXPECT_TRUE(told_.may_vouch(4, 1));
  EXPECT_FALSE(told_.may_vouch(4, 2));
  told_.tell(4, 2, other_chunk_);
  EXPECT_TRUE(told_.may_vouch(4, 1));
  EXPECT_TRUE(told_.may_vouch(4, 2));
}

TEST_F(Told, each_failure_is_told_anew) {
  told_.tell(4, 1, chunk_);
  EXPECT_FALSE(told_.may_vouch(5, 1));
  told_.tell(5, 2, other_chunk_);
  EXPECT_FALSE(told_.may_vouch(5, 1));
  EXPECT_TRUE(told_.may_vouch(5, 2));
}

TEST_F(Told, a_client_that_has_seen_it_may_be_vouched_to_by_all) {
  told_.tell(4, 1, chunk_);
  told_.used_again(other_chunk_);
  EXPECT_FALSE(told_.may_vouch(4, 2)) << "it says nothing of the answer that told";
  told_.used_again(chunk_);
  EXPECT_TRUE(told_.may_vouch(4, 2));
  EXPECT_FALSE(told_.waits());
}

TEST_F(Told, a_chunk_of_a_former_failure_shows_nothing_of_a_later_one) {
  told_.tell(4, 1, chunk_);
  told_.tell(5, 1, other_chunk_);
  told_.used_again(chunk_);
  EXPECT_FALSE(told_.may_vouch(5, 2));
  told_.used_again(other_chunk_);
  EXPECT_TRUE(told_.may_vouch(5, 2));
}

TEST_F(Told, what_is_remembered_has_a_bound) {
  for (uint64_t connection = 0; connection < 5000; ++connection) told_.tell(4, connection, chunk_);
  EXPECT_FALSE(told_.may_vouch(4, 0)) << "it is told once more";
  EXPECT_TRUE(told_.may_vouch(4, 4999));
}

}  // namespace
}  // namespace braid::bnbd::server
