// Who gets the places in the kernel when files ask for more than there are.
#include "base/io_shares.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

namespace braid::base {
namespace {

class TestFile : public File {
 public:
  const Info& info() const override { return info_; }

 private:
  Info info_;
};

class IoSharesTest : public testing::Test {
 protected:
  IoOp& op(File& file) {
    ops.emplace_back().file = &file;
    return ops.back();
  }
  void add(File& file, int count) {
    for (int i = 0; i < count; ++i) shares.add(op(file));
  }
  /// Gives out places while there are any.
  std::vector<IoOp*> take() {
    std::vector<IoOp*> taken;
    while (IoOp* next = shares.next()) taken.push_back(next);
    return taken;
  }
  TestFile a, b, c;
  std::deque<IoOp> ops;
  IoShares shares{270};
};

TEST_F(IoSharesTest, AFileThatNeverAnswersEndsAtANinthAndTheNextOneAtANinthOfTheRest) {
  add(a, 1000);
  EXPECT_EQ(take().size(), 30u);  // 30 * 8 < 270 - 30 does not hold any more
  add(b, 1000);
  EXPECT_EQ(take().size(), 27u);
  add(c, 1);
  EXPECT_EQ(take().size(), 1u);
}

TEST_F(IoSharesTest, FortyHungFilesLeavePlacesToOneThatAnswers) {
  IoShares many(kFilePlaces);
  std::vector<std::unique_ptr<TestFile>> hung;
  for (int i = 0; i < 40; ++i) {
    hung.push_back(std::make_unique<TestFile>());
    for (int k = 0; k < 200; ++k) many.add(op(*hung.back()));
    while (many.next() != nullptr) {
    }
  }
  for (int round = 0; round < 100; ++round) {
    many.add(op(a));
    IoOp* const next = many.next();
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(next->file, &a);
    many.ended(*next);
  }
}

TEST_F(IoSharesTest, OneFileAloneHasAFewPlacesHoweverFewThereAre) {
  IoShares one(1);
  one.add(op(a));
  EXPECT_NE(one.next(), nullptr);
  one.add(op(b));
  EXPECT_EQ(one.next(), nullptr) << "none is free";
}

TEST_F(IoSharesTest, FilesTakeTurnsAndEachKeepsItsOrder) {
  IoOp& a1 = op(a);
  IoOp& a2 = op(a);
  IoOp& b1 = op(b);
  IoOp& b2 = op(b);
  for (IoOp* each : {&a1, &a2, &b1, &b2}) shares.add(*each);
  EXPECT_EQ(take(), (std::vector<IoOp*>{&a1, &b1, &a2, &b2}));
}

TEST_F(IoSharesTest, OneThatIsNotDoneGoesOnBeforeThoseOfItsFile) {
  IoOp& first = op(a);
  shares.add(first);
  ASSERT_EQ(shares.next(), &first);
  IoOp& second = op(a);
  shares.add(second);
  shares.ended(first);
  shares.add_first(first);
  EXPECT_EQ(take(), (std::vector<IoOp*>{&first, &second}));
}

TEST_F(IoSharesTest, WhatWaitsGoesWhenAnythingEnds) {
  add(a, 200);
  add(b, 200);
  std::vector<IoOp*> taken = take();
  size_t served = 0;
  while (!taken.empty()) {
    ++served;
    shares.ended(*taken.back());
    taken.pop_back();
    for (IoOp* next : take()) taken.push_back(next);
  }
  EXPECT_EQ(served, 400u);
  EXPECT_EQ(shares.in_kernel(), 0u);
}

}  // namespace
}  // namespace braid::base
