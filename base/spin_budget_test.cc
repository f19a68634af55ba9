#include "base/spin_budget.h"

#include <gtest/gtest.h>

#include "base/host.h"

namespace braid::base {
namespace {

constexpr uint64_t kBudgetNs = 50 * kMicrosecond;

/// One who is idle: when it falls asleep, in budgets behind its last work, and goes on working
/// `answer_ns` behind that.
uint64_t sleeps_after(SpinBudget& budget, bool awaits, uint64_t answer_ns) {
  static uint64_t clock_ns = kSecond;
  const uint64_t begin_ns = clock_ns;
  uint64_t slept_ns = 0;
  for (; clock_ns - begin_ns < answer_ns; clock_ns += kBudgetNs) {
    if (slept_ns != 0 || !budget.spent(clock_ns, [awaits] { return awaits; })) continue;
    slept_ns = clock_ns - begin_ns;
    budget.sleeps();
  }
  budget.worked(begin_ns + answer_ns);
  return slept_ns / kBudgetNs;
}

TEST(SpinBudget, IsLongerWhileAnAnswerIsOwed) {
  SpinBudget budget(kBudgetNs);
  EXPECT_EQ(sleeps_after(budget, false, kSecond), 1U);
  EXPECT_EQ(sleeps_after(budget, true, kSecond), SpinBudget::kAwaitedLeast);
}

TEST(SpinBudget, LearnsHowLongAnswersTake) {
  SpinBudget budget(kBudgetNs);
  constexpr uint64_t kSoonNs = 15 * kBudgetNs;
  EXPECT_EQ(sleeps_after(budget, true, kSoonNs), 4U);
  EXPECT_EQ(sleeps_after(budget, true, kSoonNs), 8U);
  EXPECT_EQ(sleeps_after(budget, true, kSoonNs), 0U) << "it is awake when the answer comes";
  EXPECT_EQ(sleeps_after(budget, false, kSecond), 1U) << "nothing is owed";
  // An answer that takes longer than anybody waits for.
  EXPECT_EQ(sleeps_after(budget, true, kSecond), 16U);
  EXPECT_EQ(sleeps_after(budget, true, kSecond), 8U);
  EXPECT_EQ(sleeps_after(budget, true, kSecond), 4U);
  EXPECT_EQ(sleeps_after(budget, true, kSecond), 4U);
}

TEST(SpinBudget, LearnsNothingOfWorkThatComesWithoutBeingOwed) {
  SpinBudget budget(kBudgetNs);
  EXPECT_EQ(sleeps_after(budget, false, 2 * kBudgetNs), 1U);
  EXPECT_EQ(sleeps_after(budget, true, kSecond), 4U);
}

TEST(SpinBudget, NeverGrowsBeyondItsBound) {
  SpinBudget budget(kBudgetNs);
  for (int i = 0; i < 10; ++i) sleeps_after(budget, true, SpinBudget::kAwaitedMost * kBudgetNs);
  EXPECT_EQ(sleeps_after(budget, true, kSecond), SpinBudget::kAwaitedMost);
}

TEST(SpinBudget, OfNothingSleepsAtOnceAndOfNeverNever) {
  SpinBudget none(0), endless(kNever);
  for (const bool awaits : {false, true}) {
    EXPECT_TRUE(none.spent(kSecond, [awaits] { return awaits; }));
    EXPECT_FALSE(endless.spent(kSecond, [awaits] { return awaits; }));
    EXPECT_FALSE(endless.spent(1'000'000 * kSecond, [awaits] { return awaits; }));
    none.begin();
  }
}

TEST(SpinBudget, AsksOnceWhetherAnAnswerIsOwed) {
  SpinBudget budget(kBudgetNs);
  int asked = 0;
  const auto awaits = [&asked] { return ++asked > 0; };
  EXPECT_FALSE(budget.spent(kSecond, awaits));
  EXPECT_EQ(asked, 0);
  EXPECT_FALSE(budget.spent(kSecond + kBudgetNs, awaits));
  EXPECT_FALSE(budget.spent(kSecond + 2 * kBudgetNs, awaits));
  EXPECT_EQ(asked, 1);
  budget.begin();
  EXPECT_FALSE(budget.spent(2 * kSecond, awaits));
  EXPECT_FALSE(budget.spent(2 * kSecond + kBudgetNs, awaits));
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace braid::base
