// The other checkers catch hand-made bad histories, and nothing else.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/sim/checkers/applied_once.h"
#include "tests/sim/checkers/completion.h"
#include "tests/sim/checkers/exclusive.h"
#include "tests/sim/checkers/give_up.h"
#include "tests/sim/checkers/permits.h"
#include "tests/sim/checkers/progress.h"
#include "tests/sim/checkers/stamp.h"

namespace braid::sim {
namespace {

TEST(CompletionChecker, CatchesMissingAndSecondCompletions) {
  Violations violations;
  CompletionChecker checker(violations);
  checker.posted(1);
  checker.posted(2);
  checker.posted(3);
  checker.completed(1);
  checker.died(2);
  EXPECT_EQ(violations.count(), 0u);
  checker.completed(1);
  EXPECT_EQ(violations.count(), 1u);
  checker.at_rest();
  EXPECT_EQ(violations.count(), 2u) << "post 3";
  checker.posted(3);
  EXPECT_EQ(violations.count(), 3u);
}

TEST(GiveUpChecker, CatchesWhoGivesUpTooEarlyOrTooLateOrWithoutALimit) {
  Violations violations;
  GiveUpChecker checker(violations);
  constexpr uint64_t kLimitNs = 2 * base::kSecond;
  constexpr uint64_t kThereNs = 5 * base::kSecond;
  checker.gave_up(1, kLimitNs, kThereNs, kThereNs + kLimitNs);
  checker.still_held(1, kLimitNs, kThereNs, kThereNs + GiveUpChecker::kAtOnceNs);
  EXPECT_EQ(violations.count(), 0u);
  checker.gave_up(1, kLimitNs, kThereNs, kThereNs + kLimitNs - 1);
  EXPECT_EQ(violations.count(), 1u);
  checker.gave_up(1, base::kNever, kThereNs, kThereNs + kLimitNs);
  EXPECT_EQ(violations.count(), 2u);
  checker.still_held(1, kLimitNs, kThereNs, kThereNs + kLimitNs);
  EXPECT_EQ(violations.count(), 3u);
  EXPECT_EQ(checker.count(), 3u) << "requests that failed so";
}

TEST(PermitsChecker, CatchesALeak) {
  Violations violations;
  check_permits_at_rest(violations, "s", 8, 8);
  EXPECT_EQ(violations.count(), 0u);
  check_permits_at_rest(violations, "s", 8, 7);
  EXPECT_EQ(violations.count(), 1u);
}

TEST(ExclusiveChecker, CatchesAnotherThatIsServedBetweenTwoOfOnesOwn) {
  Violations violations;
  ExclusiveChecker checker(violations, 1);
  checker.succeeded(0, 7, 10, 20);
  checker.succeeded(1, 8, 15, 30);  // began before: may have been served before
  checker.succeeded(0, 7, 40, 50);
  checker.succeeded(1, 11, 60, 70);
  checker.succeeded(0, 9, 80, 90);  // on another path: it had lost the device between
  checker.succeeded(1, 10, 91, 95);
  checker.succeeded(0, 9, 93, 99);  // began before the other's ended: may have been served before
  EXPECT_EQ(violations.count(), 0u);
  checker.succeeded(1, 10, 101, 105);
  checker.succeeded(0, 9, 110, 120);
  EXPECT_EQ(violations.count(), 1u) << "1 was served between 99 and 110";
}

TEST(ProgressChecker, CatchesWhatIsLeftAndWhatIsLate) {
  Violations violations;
  ProgressChecker checker(violations, 100);
  checker.waited("rest", true, 100, 0, "");
  EXPECT_EQ(violations.count(), 0u);
  checker.waited("rest", false, 100, 0, "nothing outstanding, and not there");
  checker.waited("rest", true, 101, 0, "");
  EXPECT_EQ(violations.count(), 2u);
}

TEST(Stamp, BelongsToOneDeviceSectorAndVersionAndIsWhole) {
  std::array<std::byte, kSectorBytes> bytes{};
  EXPECT_EQ(read_stamp(bytes, 1, 2), kZeroes);
  write_stamp(bytes, {1, 2, 3});
  EXPECT_EQ(read_stamp(bytes, 1, 2), 3u);
  EXPECT_FALSE(read_stamp(bytes, 2, 2)) << "another device's";
  EXPECT_FALSE(read_stamp(bytes, 1, 3)) << "another sector's";
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto flipped = bytes;
    flipped[i] ^= std::byte{1};
    EXPECT_FALSE(read_stamp(flipped, 1, 2)) << "byte " << i;
  }
  std::array<std::byte, kSectorBytes> nearly_zero{};
  nearly_zero.back() = std::byte{1};
  EXPECT_FALSE(read_stamp(nearly_zero, 1, 2));
}

// --- what the disk stores

TEST(AppliedOnceCheckerTest, SeesAWriteWhosePartsAreMoreThanItHas) {
  Violations violations;
  AppliedOnceChecker checker(violations);
  checker.begin(1, 8);
  checker.stored(1, 1, 4);
  checker.stored(1, 1, 4);
  EXPECT_EQ(violations.count(), 0u);
  checker.stored(1, 1, 1);
  EXPECT_EQ(violations.count(), 1u);
  checker.stored(1, 1, 8);
  EXPECT_EQ(violations.count(), 1u) << "one mistake is one report";
}

TEST(AppliedOnceCheckerTest, SaysNothingOfWhatMayBeRepeated) {
  Violations violations;
  AppliedOnceChecker checker(violations);
  checker.begin(1, 8);
  checker.stored(1, 1, 8);
  checker.excuse(1);
  checker.stored(1, 1, 8);
  checker.stored(1, 2, 8);  // of nobody who is known
  EXPECT_EQ(violations.count(), 0u);
}

}  // namespace
}  // namespace braid::sim
