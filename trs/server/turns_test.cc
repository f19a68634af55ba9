// Who may take how much of a reactor's turn.
#include "trs/server/turns.h"

#include <gtest/gtest.h>

#include <array>

namespace braid::trs::server {
namespace {

constexpr size_t kAll = Turns::kCompletionsMax;

class TurnsTest : public ::testing::Test {
 protected:
  /// A turn in which those sessions that want anything take all they may.
  void turn(uint64_t now_ns, size_t count = 3) {
    turns.begin(now_ns, count);
    for (size_t i = 0; i < sessions.size(); ++i) {
      sessions[i].asked = wants[i] > 0;
      taken[i] = std::min(wants[i], turns.left(sessions[i]));
      turns.took(sessions[i], taken[i]);
    }
  }
  Turns turns;
  std::array<TurnShare, 3> sessions;
  std::array<size_t, 3> wants{};
  std::array<size_t, 3> taken{};
};

TEST_F(TurnsTest, TheOnlySessionTakesAllItCan) {
  wants = {1000, 0, 0};
  for (uint64_t now_ns = 0; now_ns < 5 * Turns::kWindowNs; now_ns += 1000) {
    turn(now_ns, 1);
    ASSERT_EQ(taken[0], 1000u);
    ASSERT_FALSE(turns.several());
    ASSERT_EQ(turns.rest(), 0u);
  }
}

TEST_F(TurnsTest, WhoIsBusyAloneHasATurnThatIsShort) {
  wants = {1000, 0, 0};
  turn(0);
  turn(1000);
  EXPECT_EQ(taken[0], kAll);
  EXPECT_TRUE(turns.several());
}

TEST_F(TurnsTest, SeveralHaveEqualParts) {
  wants = {1000, 1000, 0};
  turn(0);
  turn(1000);
  EXPECT_EQ(taken[0], kAll / 2);
  EXPECT_EQ(taken[1], kAll / 2);
  wants[2] = 1;
  turn(2000);
  turn(3000);
  EXPECT_EQ(taken[0], kAll / 3);
  EXPECT_EQ(taken[2], 1u);
}

TEST_F(TurnsTest, WhatOneLeavesOthersMayTake) {
  wants = {1000, 1, 0};
  turn(0);
  turn(1000);
  EXPECT_EQ(turns.rest(), kAll - kAll / 2 - 1);
  turns.took(sessions[0], turns.rest());
  EXPECT_EQ(turns.rest(), 0u);
}

TEST_F(TurnsTest, WhoAsksOnceInAWindowIsCountedForTheNextToo) {
  wants = {1000, 1, 0};
  turn(0);
  wants[1] = 0;
  turn(Turns::kWindowNs - 1);
  EXPECT_EQ(taken[0], kAll / 2);
  turn(Turns::kWindowNs);
  EXPECT_EQ(taken[0], kAll / 2);
  turn(2 * Turns::kWindowNs);
  EXPECT_EQ(taken[0], kAll) << "the other asks for nothing";
}

TEST_F(TurnsTest, SignsOfLifeMakeNobodyBusy) {
  wants = {1000, 0, 0};
  turn(0);
  turns.begin(1000, 3);
  turns.took(sessions[1], 1);  // a completion, and no request
  turn(2000);
  EXPECT_EQ(taken[0], kAll);
}

TEST_F(TurnsTest, WhatOneConnectionTookTheNextOfItsSessionHasNot) {
  wants = {1, 1, 0};
  turn(0);
  turns.begin(1000, 3);
  turns.took(sessions[0], turns.left(sessions[0]));
  EXPECT_EQ(turns.left(sessions[0]), 0u);
  EXPECT_EQ(turns.left(sessions[1]), kAll / 2);
}

TEST_F(TurnsTest, DataThatGoesAtOnceHasABound) {
  turn(0, 1);
  EXPECT_TRUE(turns.takes_bytes(1 << 20));
  turn(1000);
  EXPECT_FALSE(turns.takes_bytes(Turns::kBytesMax + 1));
  EXPECT_TRUE(turns.takes_bytes(Turns::kBytesMax - 4096));
  EXPECT_FALSE(turns.takes_bytes(8192));
  EXPECT_TRUE(turns.takes_bytes(4096));
  turn(2000);
  EXPECT_TRUE(turns.takes_bytes(Turns::kBytesMax));
}

TEST_F(TurnsTest, WhatDevicesMoveForAClientHasABound) {
  vhca::WireBudget& wire = sessions[0].wire;
  turn(0, 1);
  EXPECT_EQ(wire.most(1 << 20), 1u << 20) << "alone it has all it can take";
  turn(1000);
  EXPECT_EQ(wire.most(1 << 20), Turns::kWireBytesMax);
  wire.moved(2 * Turns::kWireBytesMax);
  turn(2000);
  EXPECT_EQ(wire.most(1 << 20), 0u) << "it has had what this turn would give";
  turn(3000);
  EXPECT_EQ(wire.most(1 << 20), Turns::kWireBytesMax);
  turn(4000, 1);
  EXPECT_EQ(wire.most(1 << 20), 1u << 20);
}

TEST_F(TurnsTest, WhoUsesUpWhatMayBeMovedIsBusyWithoutAnyRequest) {
  wants = {0, 1000, 1000};
  turn(0);
  turn(1000);
  EXPECT_EQ(taken[1], kAll / 2);
  sessions[0].wire.moved(Turns::kWireBytesMax);
  turn(2000);
  turn(3000);
  EXPECT_EQ(taken[1], kAll / 3);
  EXPECT_EQ(sessions[0].wire.most(1 << 20), Turns::kWireBytesMin);
}

TEST_F(TurnsTest, EachOfVeryManyHasOne) {
  std::array<TurnShare, 40> many;
  turns.begin(0, many.size());
  for (TurnShare& each : many) {
    each.asked = true;
    turns.took(each, 1);
  }
  turns.begin(1000, many.size());
  for (TurnShare& each : many) EXPECT_EQ(turns.left(each), 1u);
}

}  // namespace
}  // namespace braid::trs::server
