// What a disk's failure excuses, and what it does not.
#include "tests/sim/checkers/flush_failures.h"

#include <gtest/gtest.h>

namespace braid::sim {
namespace {

using Cause = UntoldLosses::Cause;

TEST(DiskFailures, LastUntilTheServerHasAnsweredWhatCameLater) {
  DiskFailures failures;
  EXPECT_FALSE(failures.since(5));
  failures.set(1, true, 10);
  EXPECT_TRUE(failures.since(15));
  failures.set(1, false, 20);
  EXPECT_TRUE(failures.since(21)) << "the server may hear of it only now";
  failures.succeeded(19, 22);
  EXPECT_TRUE(failures.since(21));
  failures.succeeded(21, 25);
  EXPECT_TRUE(failures.since(24)) << "it may have been there together with it";
  EXPECT_FALSE(failures.since(26));
}

TEST(DiskFailures, OfTwoKindsLastAsLongAsOne) {
  DiskFailures failures;
  failures.set(1, true, 10);
  failures.set(2, true, 11);
  failures.set(1, false, 20);
  failures.succeeded(21, 22);
  EXPECT_TRUE(failures.may_fail());
  EXPECT_TRUE(failures.since(23));
  failures.set(2, false, 30);
  failures.set(2, false, 40);
  failures.succeeded(31, 32);
  EXPECT_FALSE(failures.since(33));
}

TEST(DiskFailures, AreForgottenUntilAFlushHasToldOfThem) {
  DiskFailures failures;
  EXPECT_FALSE(failures.may_be_forgotten());
  failures.set(1, true, 10);
  failures.told();
  EXPECT_TRUE(failures.may_be_forgotten()) << "the next one may fail as well";
  failures.set(1, false, 20);
  EXPECT_TRUE(failures.may_be_forgotten());
  failures.told();
  EXPECT_FALSE(failures.may_be_forgotten());
  EXPECT_TRUE(failures.in_this_process());
  failures.server_died(30);
  EXPECT_FALSE(failures.in_this_process());
}

TEST(DiskFailures, DieWithTheirServerBeforeItHasMarkedThem) {
  constexpr uint64_t kSecond = 1'000'000'000;
  DiskFailures failures;
  failures.set(1, true, kSecond);
  EXPECT_TRUE(failures.may_die_unmarked(2 * kSecond));
  failures.set(1, false, 2 * kSecond);
  EXPECT_TRUE(failures.may_die_unmarked(2 * kSecond + 1'000'000));
  EXPECT_FALSE(failures.may_die_unmarked(3 * kSecond));
  failures.server_died(4 * kSecond);
  failures.set(1, true, 4 * kSecond + 1'000'000);
  failures.set(1, false, 4 * kSecond + 2'000'000);
  EXPECT_TRUE(failures.may_die_unmarked(6 * kSecond)) << "of what the dead one had handed over";
  failures.server_died(6 * kSecond);
  EXPECT_FALSE(failures.may_die_unmarked(7 * kSecond));
}

class Untold : public ::testing::Test {
 protected:
  /// Of the only request that is under way.
  Cause flush_fails(bool at_disk = false) { return fails(losses_.flush_begins(), at_disk); }
  Cause fails(const UntoldLosses::Ticket& ticket, bool at_disk = false) {
    return losses_.flush_fails(++ids_, ticket, at_disk, ways_);
  }
  UntoldLosses losses_;
  UntoldLosses::Ways ways_{.connections = 5, .there = 2, .reopened = 0};
  uint64_t ids_ = 100;
};

TEST_F(Untold, WithoutAFailureNoFlushMayFail) {
  EXPECT_EQ(flush_fails(), Cause::kNone);
}

TEST_F(Untold, EachConnectionTellsAFailureOnce) {
  losses_.failures_begin(ways_);
  losses_.failures_end(ways_);
  EXPECT_EQ(flush_fails(), Cause::kDisk);
  EXPECT_EQ(flush_fails(), Cause::kDisk);
  EXPECT_EQ(flush_fails(), Cause::kNone);
  ++ways_.connections;
  EXPECT_EQ(flush_fails(), Cause::kDisk) << "a new one";
  EXPECT_EQ(flush_fails(), Cause::kNone);
}

TEST_F(Untold, AnotherIncarnationIsALoss) {
  losses_.incarnation_changes(true, ways_);
  EXPECT_EQ(flush_fails(), Cause::kNone);
  const auto across = losses_.flush_begins();
  ++ways_.reopened;
  ASSERT_TRUE(losses_.looks_at_openings());
  losses_.look(ways_, false);
  EXPECT_EQ(fails(across), Cause::kDisk);
  EXPECT_EQ(flush_fails(), Cause::kNone) << "all was told when it failed";
  losses_.incarnation_changes(false, ways_);
  ++ways_.reopened;
  losses_.look(ways_, false);
  EXPECT_EQ(flush_fails(), Cause::kDisk) << "the first may have been under way";
}

// Seed 2590: nothing was at stake by the restart, so the client told of no loss; then its only
// connection told of a full disk.
TEST_F(Untold, ARestartDoesNotHideWhatTheDiskHasToTell) {
  losses_.incarnation_changes(false, ways_);
  ++ways_.reopened;
  losses_.look(ways_, false);
  losses_.failures_begin(ways_);
  losses_.failures_end(ways_);
  EXPECT_EQ(flush_fails(), Cause::kDisk) << "of the restart or of the disk: nobody knows";
  EXPECT_EQ(flush_fails(), Cause::kDisk);
  EXPECT_EQ(flush_fails(), Cause::kDisk) << "by the second connection";
  EXPECT_EQ(flush_fails(), Cause::kNone);
}

TEST_F(Untold, FlushesThatBeganBeforeAReportFail) {
  const auto before = losses_.flush_begins();
  EXPECT_EQ(flush_fails(true), Cause::kDisk);
  EXPECT_EQ(fails(before), Cause::kDisk);
  EXPECT_EQ(flush_fails(), Cause::kNone);
}

TEST_F(Untold, AReportBeginsWhenAllAtStakeHasEnded) {
  losses_.change_begins(1);
  EXPECT_EQ(flush_fails(true), Cause::kDisk);
  EXPECT_EQ(flush_fails(), Cause::kDisk);
  const auto early = losses_.flush_begins();
  losses_.change_begins(2);
  losses_.change_ends(1);
  EXPECT_EQ(fails(early), Cause::kDisk);
  EXPECT_EQ(flush_fails(), Cause::kDisk) << "this one speaks for it";
  EXPECT_EQ(flush_fails(), Cause::kNone) << "what began later was not at stake";
}

TEST_F(Untold, AFailedFlushSpeaksForNothingThatEndedInItsTime) {
  losses_.change_begins(1);
  const auto flush = losses_.flush_begins();
  losses_.change_ends(1);
  EXPECT_EQ(fails(flush, true), Cause::kDisk);
  EXPECT_EQ(flush_fails(), Cause::kDisk);
  EXPECT_EQ(flush_fails(), Cause::kNone);
}

TEST_F(Untold, ASecondLossWaitsForTheOlderOne) {
  losses_.change_begins(1);
  EXPECT_EQ(flush_fails(true), Cause::kDisk);
  losses_.change_begins(2);
  EXPECT_EQ(flush_fails(true), Cause::kDisk);
  losses_.change_begins(3);
  losses_.change_ends(1);
  EXPECT_EQ(flush_fails(), Cause::kDisk);
  losses_.change_begins(4);
  losses_.change_ends(2);
  EXPECT_EQ(flush_fails(), Cause::kDisk) << "the third began beside the first";
  losses_.change_ends(3);
  EXPECT_EQ(flush_fails(), Cause::kDisk);
  EXPECT_EQ(flush_fails(), Cause::kNone) << "the fourth did not";
}

}  // namespace
}  // namespace braid::sim
