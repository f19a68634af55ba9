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

TEST(FairShare, ADeviceAloneMayHaveAll) {
  FairShare share;
  share.set_total(8);
  share.join();
  uint32_t held = 0;
  EXPECT_EQ(take(share, held, 8, 100), 8u);
}

TEST(FairShare, WhoeverNeverGivesBackLeavesOneToEachOther) {
  FairShare share;
  share.set_total(8);
  std::array<uint32_t, 4> held{};
  for (size_t i = 0; i < held.size(); ++i) share.join();
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
  for (int i = 0; i < 100; ++i) share.join();
  uint32_t held = 0;
  EXPECT_EQ(take(share, held, 8, 100), 4u);
}

TEST(FairShare, WhatIsGivenBackAndWhoLeavesIsCounted) {
  FairShare share;
  share.set_total(4);
  share.join();
  share.join();
  uint32_t held = 0;
  EXPECT_EQ(take(share, held, 4, 100), 3u);
  share.leave();  // the other one
  EXPECT_EQ(take(share, held, 1, 100), 1u);
  while (held > 0) share.give_back(held);
  EXPECT_EQ(take(share, held, 4, 100), 4u);
}

}  // namespace
}  // namespace braid::bnbd::client
