#include "bnbd/client/fair_share.h"

#include <gtest/gtest.h>

#include <array>

namespace braid::bnbd::client {
namespace {

/// Takes for a device as many as it may, up to `wanted`.
uint32_t take(FairShare& share, uint32_t& held, uint32_t total_left, uint32_t wanted) {
  uint32_t taken = 0;
  while (taken < wanted && taken < total_left && share.may_take(held)) {
    share.take(held);
    ++taken;
  }
  return taken;
}

void come(FairShare& share) {
  share.join();
  share.meet();
}

TEST(FairShare, ADeviceAloneMayHaveAll) {
  FairShare share;
  share.set_total(8);
  come(share);
  uint32_t held = 0;
  EXPECT_EQ(take(share, held, 8, 100), 8u);
}

TEST(FairShare, WhoeverNeverGivesBackLeavesOneToEachOther) {
  FairShare share;
  share.set_total(8);
  std::array<uint32_t, 4> held{};
  for (size_t i = 0; i < held.size(); ++i) come(share);
  uint32_t left = 8;
  for (uint32_t& device : held) {
    const uint32_t taken = take(share, device, left, 100);
    EXPECT_GE(taken, 1u);
    left -= taken;
  }
  EXPECT_EQ(left, 0u);
  EXPECT_EQ(held[0], 5u);
}

TEST(FairShare, ManyIdleDevicesCostABusyOneHalfAtMost) {
  FairShare share;
  share.set_total(8);
  for (int i = 0; i < 100; ++i) come(share);
  uint32_t held = 0;
  EXPECT_EQ(take(share, held, 8, 100), 4u);
}

TEST(FairShare, ForAllStrangersOneIsKeptAndForEachWhoAskedAnother) {
  FairShare share;
  share.set_total(8);
  come(share);
  for (int i = 0; i < 100; ++i) share.join();
  uint32_t held = 0;
  EXPECT_EQ(take(share, held, 8, 100), 7u);
  share.meet();
  uint32_t first_of_a_stranger = 0;
  EXPECT_EQ(take(share, first_of_a_stranger, 1, 100), 1u);
  share.give_back(held);
  EXPECT_FALSE(share.may_take(held)) << "one is kept for the others";
  share.give_back(first_of_a_stranger);
  EXPECT_FALSE(share.may_take(held)) << "another for who asked";
  for (int i = 0; i < 99; ++i) share.leave(false);
  EXPECT_TRUE(share.may_take(held));
}

TEST(FairShare, WhatIsGivenBackAndWhoLeavesIsCounted) {
  FairShare share;
  share.set_total(4);
  come(share);
  come(share);
  uint32_t held = 0;
  EXPECT_EQ(take(share, held, 4, 100), 3u);
  share.leave(true);  // the other one
  EXPECT_EQ(take(share, held, 1, 100), 1u);
  while (held > 0) share.give_back(held);
  EXPECT_EQ(take(share, held, 4, 100), 4u);
}

}  // namespace
}  // namespace braid::bnbd::client
