#include "base/spin_budget.h"

#include <gtest/gtest.h>

namespace braid::base {
namespace {

constexpr uint64_t kBudgetNs = 50 * kMicrosecond;

/// One who is idle, and what he waits for.
struct Idler {
  bool awaits() {
    ++asked;
    return owed;
  }
  uint64_t answers() const { return came; }

  /// When it falls asleep behind its last work, in budgets; 0: not before something comes, which it
  /// does after `idle_ns`.
  uint64_t sleeps_after(uint64_t idle_ns, bool answered = true) {
    const uint64_t begin_ns = clock_ns;
    uint64_t slept_ns = 0;
    for (; clock_ns - begin_ns < idle_ns; clock_ns += kBudgetNs) {
      if (slept_ns != 0 || !budget.spent(clock_ns, *this)) continue;
      slept_ns = clock_ns - begin_ns;
      budget.sleeps();
    }
    came += answered ? 1 : 0;
    budget.worked(begin_ns + idle_ns, *this);
    return slept_ns / kBudgetNs;
  }

  SpinBudget budget{kBudgetNs};
  bool owed = true;
  uint64_t came = 0;
  int asked = 0;
  uint64_t clock_ns = kSecond;
};

constexpr uint64_t kSoonNs = 15 * kBudgetNs;

TEST(SpinBudget, IsLongerWhileAnAnswerIsOwed) {
  Idler idler;
  idler.owed = false;
  EXPECT_EQ(idler.sleeps_after(kSecond), 1U);
  idler.owed = true;
  EXPECT_EQ(idler.sleeps_after(kSecond), SpinBudget::kAwaitedLeast);
}

TEST(SpinBudget, LearnsHowLongAnswersTake) {
  Idler idler;
  EXPECT_EQ(idler.sleeps_after(kSoonNs), 4U);
  EXPECT_EQ(idler.sleeps_after(kSoonNs), 8U);
  EXPECT_EQ(idler.sleeps_after(kSoonNs), 0U) << "it is awake when the answer comes";
  idler.owed = false;
  EXPECT_EQ(idler.sleeps_after(kSecond), 1U);
  idler.owed = true;
  // Answers that take longer than anybody looks for them.
  for (const uint64_t slept : {16U, 8U, 4U, 4U}) EXPECT_EQ(idler.sleeps_after(kSecond), slept);
}

TEST(SpinBudget, LearnsOfAnswersOnly) {
  Idler idler;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(idler.sleeps_after(kSoonNs, /*answered=*/false), 4U) << "a timer, a heartbeat";
  }
  idler.sleeps_after(kSoonNs);
  idler.sleeps_after(kSoonNs);
  // The answer hangs, and others come often enough that nobody ever sleeps that long.
  EXPECT_EQ(idler.sleeps_after(kSoonNs, false), 0U);
  EXPECT_EQ(idler.sleeps_after(kSoonNs, false), 8U);
  EXPECT_EQ(idler.sleeps_after(kSoonNs, false), 4U);
}

TEST(SpinBudget, LearnsNothingOfWorkThatNobodyOwed) {
  Idler idler;
  idler.owed = false;
  EXPECT_EQ(idler.sleeps_after(2 * kBudgetNs), 1U);
  idler.owed = true;
  EXPECT_EQ(idler.sleeps_after(kSecond), 4U);
}

TEST(SpinBudget, TakesAnEndOfPatienceForAnAnswerThatTakesLonger) {
  Idler idler;
  idler.sleeps_after(kSoonNs);
  idler.sleeps_after(kSoonNs);
  for (int i = 0; i < 2; ++i) {
    for (uint64_t late_ns = 0; late_ns <= 10 * kBudgetNs; late_ns += kBudgetNs) {
      idler.budget.spent(idler.clock_ns + late_ns, idler);
    }
    idler.budget.gave_up(idler.clock_ns + 10 * kBudgetNs);
  }
  EXPECT_EQ(idler.sleeps_after(kSecond), 4U);
}

TEST(SpinBudget, IsBoundedInTime) {
  constexpr uint64_t kMost = SpinBudget::kAwaitedMostNs;
  for (const auto& [budget_ns, most_ns] :
       {std::pair(50 * kMicrosecond, kMost), std::pair(10 * kMicrosecond, 200 * kMicrosecond),
        std::pair(200 * kMicrosecond, kMost), std::pair(kMost, kMost),
        std::pair(2 * kMillisecond, 2 * kMillisecond)}) {
    Idler idler{.budget = SpinBudget(budget_ns)};
    for (int i = 0; i < 10; ++i) {
      EXPECT_FALSE(idler.budget.spent(idler.clock_ns, idler));
      if (idler.budget.spent(idler.clock_ns + most_ns - 1, idler)) idler.budget.sleeps();
      ++idler.came;
      idler.budget.worked(idler.clock_ns + most_ns, idler);
    }
    EXPECT_FALSE(idler.budget.spent(idler.clock_ns, idler));
    EXPECT_FALSE(idler.budget.spent(idler.clock_ns + most_ns - 1, idler)) << budget_ns;
    EXPECT_TRUE(idler.budget.spent(idler.clock_ns + most_ns, idler)) << budget_ns;
  }
}

TEST(SpinBudget, OfNothingSleepsAtOnceAndOfNeverNever) {
  for (const bool owed : {false, true}) {
    Idler none{.budget = SpinBudget(0), .owed = owed};
    Idler endless{.budget = SpinBudget(kNever), .owed = owed};
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(none.budget.spent(kSecond, none));
      none.budget.sleeps();
      ++none.came;
      none.budget.worked(kSecond + 1, none);
      EXPECT_FALSE(endless.budget.spent(kSecond, endless));
      EXPECT_FALSE(endless.budget.spent(1'000'000 * kSecond, endless));
      endless.budget.worked(1'000'000 * kSecond, endless);
    }
  }
}

TEST(SpinBudget, AsksOnceWhetherAnAnswerIsOwed) {
  Idler idler;
  EXPECT_FALSE(idler.budget.spent(kSecond, idler));
  EXPECT_EQ(idler.asked, 0);
  EXPECT_FALSE(idler.budget.spent(kSecond + kBudgetNs, idler));
  EXPECT_FALSE(idler.budget.spent(kSecond + 2 * kBudgetNs, idler));
  EXPECT_EQ(idler.asked, 1);
  idler.budget.begin();
  EXPECT_FALSE(idler.budget.spent(2 * kSecond, idler));
  EXPECT_FALSE(idler.budget.spent(2 * kSecond + kBudgetNs, idler));
  EXPECT_EQ(idler.asked, 2);
}

}  // namespace
}  // namespace braid::base
