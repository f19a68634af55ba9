#include "bnbd/client/reopen.h"

#include <gtest/gtest.h>

namespace braid::bnbd::client {
namespace {

class JudgeReopen : public testing::Test {
 protected:
  JudgeReopen() {
    now_.size_bytes = 1 << 20;
    now_.logical_block_bytes = 512;
    now_.physical_block_bytes = 4096;
    now_.max_discard_bytes = uint64_t{1} << 40;
    now_.max_write_zeroes_bytes = 1 << 20;
    now_.identity = "file:1";
    now_.incarnation = 7;
    now_.tenure = 3;
    before_ = describe(now_, false, 128, (1 << 20) + 100);
  }
  wire::OpenedDevice now_;
  BlockInfo before_;
};

TEST_F(JudgeReopen, the_same_device_goes_on) {
  const ReopenVerdict verdict = judge_reopen(before_, 3, now_, false);
  EXPECT_FALSE(verdict.replaced || verdict.superseded || verdict.restarted);
}

TEST_F(JudgeReopen, another_incarnation_is_a_restart) {
  now_.incarnation = 8;
  const ReopenVerdict verdict = judge_reopen(before_, 3, now_, false);
  EXPECT_FALSE(verdict.replaced);
  EXPECT_TRUE(verdict.restarted);
}

TEST_F(JudgeReopen, another_tenure_is_another_writer_of_the_same_device) {
  now_.tenure = 4;
  EXPECT_TRUE(judge_reopen(before_, 3, now_, false).superseded);
  now_.identity = "file:2";
  const ReopenVerdict verdict = judge_reopen(before_, 3, now_, false);
  EXPECT_TRUE(verdict.replaced && !verdict.superseded) << "the writers of another device";
}

TEST_F(JudgeReopen, another_identity_is_another_device_whatever_else_fits) {
  now_.identity = "file:2";
  const ReopenVerdict verdict = judge_reopen(before_, 3, now_, false);
  EXPECT_TRUE(verdict.replaced);
  EXPECT_FALSE(verdict.restarted);
  EXPECT_NE(verdict.why.find("file:1"), std::string::npos);
  EXPECT_NE(verdict.why.find("file:2"), std::string::npos);
}

TEST_F(JudgeReopen, a_server_that_lost_its_identity_is_not_trusted) {
  now_.identity.clear();
  EXPECT_TRUE(judge_reopen(before_, 3, now_, false).replaced);
}

TEST_F(JudgeReopen, a_smaller_device_or_other_blocks_do_not_fit) {
  now_.size_bytes = 1 << 19;
  EXPECT_TRUE(judge_reopen(before_, 3, now_, false).replaced);
  now_.size_bytes = 1 << 20;
  now_.logical_block_bytes = 4096;
  EXPECT_TRUE(judge_reopen(before_, 3, now_, false).replaced);
}

TEST_F(JudgeReopen, a_smaller_device_fits_who_has_said_so) {
  now_.size_bytes = 1 << 19;
  EXPECT_TRUE(judge_reopen(before_, 3, now_, false).shrank);
  EXPECT_FALSE(judge_reopen(before_, 3, now_, true).replaced);
  now_.tenure = 4;
  EXPECT_TRUE(judge_reopen(before_, 3, now_, true).superseded) << "the other rules stay";
  now_.identity = "file:2";
  EXPECT_FALSE(judge_reopen(before_, 3, now_, false).shrank);
}

TEST_F(JudgeReopen, a_larger_device_fits) {
  now_.size_bytes = 1 << 21;
  EXPECT_FALSE(judge_reopen(before_, 3, now_, false).replaced);
}

TEST_F(JudgeReopen, limits_are_whole_blocks_and_fit_the_wires_32_bits) {
  EXPECT_EQ(before_.max_io_bytes, 1u << 20);
  EXPECT_LE(before_.max_discard_bytes, UINT32_MAX);
  EXPECT_EQ(before_.max_discard_bytes % 4096, 0u);
}

TEST_F(JudgeReopen, a_server_without_identities_offers_no_write_zeroes) {
  now_.identity.clear();
  EXPECT_EQ(describe(now_, false, 128, 1 << 20).max_write_zeroes_bytes, 0u);
}

TEST_F(JudgeReopen, a_device_for_reading_offers_no_changes) {
  const BlockInfo info = describe(now_, true, 128, 1 << 20);
  EXPECT_TRUE(info.read_only);
  EXPECT_EQ(info.max_discard_bytes, 0u);
  EXPECT_EQ(info.max_write_zeroes_bytes, 0u);
}

}  // namespace
}  // namespace braid::bnbd::client
