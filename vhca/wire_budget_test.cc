#include "vhca/wire_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace braid::vhca {
namespace {

/// Takes so much whenever it may.
class Taker final : public WireUser {
 public:
  explicit Taker(WireBudget& of, uint64_t bytes = 100, std::vector<const Taker*>* order = nullptr)
      : budget_(of), bytes_(bytes), order_(order) {}
  bool receive() {
    if (!budget_.begin(*this)) return false;
    budget_.moved(bytes_);
    ++received;
    if (order_ != nullptr) order_->push_back(this);
    return true;
  }
  void resume_receiving() override {
    ++resumed;
    receive();
  }
  int received = 0;
  int resumed = 0;

 private:
  WireBudget& budget_;
  const uint64_t bytes_;
  std::vector<const Taker*>* const order_;
};

TEST(WireBudgetTest, WithoutABoundEverybodyReceives) {
  WireBudget budget;
  Taker its(budget);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(budget.begin(its));
    EXPECT_EQ(budget.most(1 << 30), 1u << 30);
    budget.moved(1 << 30);
  }
}

TEST(WireBudgetTest, WhatIsNotUsedIsNotKeptAndWhatIsOwedIsTakenOff) {
  WireBudget budget;
  budget.give(10'000);
  budget.give(10'000);
  EXPECT_EQ(budget.most(1 << 20), 10'000u);
  budget.moved(9'000);
  EXPECT_EQ(budget.most(1 << 20), 4096u) << "a call for less is not worth it";
  budget.moved(4096);
  EXPECT_TRUE(budget.used_up());
  budget.give(10'000);
  EXPECT_EQ(budget.most(1 << 20), 6'904u);
  for (int i = 0; i < 20; ++i) budget.handled_frame();
  budget.give(10'000);
  EXPECT_EQ(budget.most(1 << 20), 0u);
  budget.give_all();
  EXPECT_EQ(budget.most(1 << 20), 1u << 20);
}

/// Answers to what it asked for while it was alone are sent whole, and all at once.
TEST(WireBudgetTest, WhoOwesVeryMuchIsHeardAgainBeforeLong) {
  WireBudget budget;
  budget.give(8192);
  budget.moved(1 << 30);
  int turns = 0;
  for (; budget.most(1) == 0 && turns < 10'000; ++turns) budget.give(8192);
  EXPECT_GT(turns, 1000) << "it pays";
  EXPECT_LT(turns, 2500) << "but not for ever";
}

TEST(WireBudgetTest, ASystemCallIsPaidForBesideWhatItMoves) {
  WireBudget budget;
  budget.give(10'000);
  budget.moved_by_call(1'000);
  EXPECT_EQ(budget.most(1 << 20), 9'000u - WireBudget::kCallBytes);
}

TEST(WireBudgetTest, WhoIsNotInAnybodysWayMayComeAgain) {
  WireBudget budget;
  Taker its(budget);
  budget.give(10'000);
  EXPECT_TRUE(its.receive());
  EXPECT_TRUE(its.receive());
  EXPECT_FALSE(budget.waits());
}

/// Each takes all there is, and they always ask in one order.
TEST(WireBudgetTest, AllThatAskReceiveOneAfterTheOther) {
  WireBudget budget;
  std::vector<const Taker*> order;
  std::vector<std::unique_ptr<Taker>> all;
  for (int i = 0; i < 5; ++i) all.push_back(std::make_unique<Taker>(budget, 4096, &order));
  for (int turn = 0; turn < 20; ++turn) {
    budget.give(4096);
    budget.resume();
    for (auto& each : all) each->receive();
  }
  ASSERT_EQ(order.size(), 20u);
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], all[i % 5].get()) << i;
}

TEST(WireBudgetTest, AsManyGoOnAsThereIsLeftFor) {
  WireBudget budget;
  std::vector<std::unique_ptr<Taker>> all;
  for (int i = 0; i < 5; ++i) all.push_back(std::make_unique<Taker>(budget, 100));
  budget.give(0);
  for (auto& each : all) EXPECT_FALSE(each->receive());
  budget.give(250);
  EXPECT_EQ(budget.resume(), 3u);
  EXPECT_TRUE(budget.waits());
  EXPECT_FALSE(all[0]->receive()) << "it goes behind those that wait";
  budget.give_all();
  EXPECT_EQ(budget.resume(), 3u);
  EXPECT_FALSE(budget.waits());
  for (auto& each : all) EXPECT_EQ(each->resumed, &each == &all[0] ? 2 : 1);
}

TEST(WireBudgetTest, NobodyOvertakesWhoWaits) {
  WireBudget budget;
  std::vector<const Taker*> order;
  Taker first(budget, 100, &order), second(budget, 100, &order);
  budget.give(0);
  EXPECT_FALSE(first.receive());
  budget.give(1000);
  EXPECT_FALSE(second.receive());
  EXPECT_EQ(budget.resume(), 2u);
  EXPECT_EQ(order, (std::vector<const Taker*>{&first, &second}));
}

TEST(WireBudgetTest, ItsOwnerIsToldWhenTheFirstBeginsToWait) {
  WireBudget budget;
  int told = 0;
  budget.on_wait([&told] { ++told; });
  Taker first(budget), second(budget);
  EXPECT_TRUE(first.receive());
  EXPECT_EQ(told, 0);
  budget.give(0);
  first.receive();
  second.receive();
  first.receive();
  EXPECT_EQ(told, 1);
  budget.give(1000);
  budget.resume();
  budget.give(0);
  budget.moved(1000);
  second.receive();
  EXPECT_EQ(told, 2);
}

TEST(WireBudgetTest, WhoGoesAwayKeepsNobodyWaiting) {
  WireBudget budget;
  auto first = std::make_unique<Taker>(budget);
  Taker second(budget);
  budget.give(0);
  first->receive();
  second.receive();
  first.reset();
  budget.give(1000);
  EXPECT_EQ(budget.resume(), 1u);
  EXPECT_EQ(second.received, 1);
}

}  // namespace
}  // namespace braid::vhca
