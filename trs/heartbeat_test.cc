#include "trs/heartbeat.h"

#include <gtest/gtest.h>

namespace braid::trs {
namespace {

using base::kMillisecond;
using Verdict = Heartbeat::Verdict;

constexpr HeartbeatOptions kOptions{.interval_ns = 150 * kMillisecond, .missed_max = 3};

/// Checks at each interval.
class HeartbeatTest : public ::testing::Test {
 protected:
  /// `sent_`: a request or an answer at each interval.
  Verdict next(uint64_t received, uint64_t lateness_ns = 0, uint64_t bytes = 0) {
    now_ns_ += kOptions.interval_ns;
    return heartbeat_.check(now_ns_, {received, bytes, ++sent_}, lateness_ns);
  }
  /// Nothing was sent but what is asked for here.
  Verdict next_quiet(uint64_t received, uint64_t bytes = 0) {
    now_ns_ += kOptions.interval_ns;
    const Verdict verdict = heartbeat_.check(now_ns_, {received, bytes, sent_}, 0);
    sent_ += verdict == Verdict::kAsk ? 1 : 0;
    return verdict;
  }
  uint64_t sent_ = 0;
  uint64_t now_ns_ = 0;
  Heartbeat heartbeat_{kOptions, 0};
};

TEST_F(HeartbeatTest, DataIsASignOfLifeAndAsksNothing) {
  for (uint64_t received = 1; received < 100; ++received)
    EXPECT_EQ(next(received), Verdict::kAlive);
}

TEST_F(HeartbeatTest, SilentPeerIsAskedOnceAndCutOffWithinTheBound) {
  EXPECT_EQ(next(1), Verdict::kAlive);  // it came just after the check before
  EXPECT_EQ(next(1), Verdict::kAsk);
  EXPECT_EQ(next(1), Verdict::kAlive);
  EXPECT_EQ(next(1), Verdict::kSilent);
  EXPECT_LE(now_ns_, kOptions.interval_ns * (kOptions.missed_max + 1));
}

TEST_F(HeartbeatTest, AnswerClearsWhatWasMissed) {
  EXPECT_EQ(next(0), Verdict::kAsk);
  EXPECT_EQ(next(0), Verdict::kAlive);
  EXPECT_EQ(next(1), Verdict::kAlive);
  EXPECT_EQ(next(1), Verdict::kAsk);
}

TEST_F(HeartbeatTest, RestForgetsWhatWasMissedAndTheBoundIsTheSameAfterIt) {
  EXPECT_EQ(next(0), Verdict::kAsk);
  EXPECT_EQ(next(0), Verdict::kAlive);
  for (int i = 0; i < 10; ++i) heartbeat_.rest(now_ns_ += kOptions.interval_ns);
  const uint64_t rested_ns = now_ns_;
  EXPECT_EQ(next(1), Verdict::kAlive);  // it came while there was nothing to check
  EXPECT_EQ(next(1), Verdict::kAsk);
  EXPECT_EQ(next(1), Verdict::kAlive);
  EXPECT_EQ(next(1), Verdict::kSilent);
  EXPECT_LE(now_ns_ - rested_ns, kOptions.interval_ns * (kOptions.missed_max + 1));
}

TEST_F(HeartbeatTest, ALookAsksOfASilentPeerOnceBetweenTwoChecks) {
  EXPECT_EQ(next(1), Verdict::kAlive);
  const auto look = [&](uint64_t received, uint64_t bytes = 0) {
    return heartbeat_.look({received, bytes, sent_});
  };
  EXPECT_FALSE(look(2));  // something has come since the check
  EXPECT_FALSE(look(2, 10));
  EXPECT_TRUE(look(2, 10));
  EXPECT_FALSE(look(2, 10));
  EXPECT_FALSE(look(3));
  EXPECT_FALSE(look(3));  // asked already
  EXPECT_EQ(next(3), Verdict::kAlive);
  EXPECT_TRUE(look(3));
}

TEST_F(HeartbeatTest, LooksLeaveTheJudgementToChecks) {
  for (unsigned missed = 1; missed <= kOptions.missed_max; ++missed) {
    for (int i = 0; i < 30; ++i) (void)heartbeat_.look({0, 0, sent_});
    EXPECT_EQ(heartbeat_.missed(), missed - 1);
    (void)next(0);
  }
  EXPECT_EQ(heartbeat_.missed(), kOptions.missed_max);
}

TEST_F(HeartbeatTest, WhoHearsMuchAndSaysNothingTellsThatItLives) {
  for (uint64_t received = 1; received < 20; ++received)
    EXPECT_EQ(next_quiet(received), received % 2 == 1 ? Verdict::kAsk : Verdict::kAlive);
}

TEST_F(HeartbeatTest, PartOfAMessageIsASignOfLifeAndThePeerHearsOfUs) {
  for (uint64_t bytes = 1; bytes < 20; ++bytes)
    EXPECT_EQ(next_quiet(0, bytes), bytes % 2 == 1 ? Verdict::kAsk : Verdict::kAlive) << bytes;
  const uint64_t stopped_at_ns = now_ns_;
  EXPECT_EQ(next_quiet(0, 19), Verdict::kAsk);
  EXPECT_EQ(next_quiet(0, 19), Verdict::kAlive);
  EXPECT_EQ(next_quiet(0, 19), Verdict::kSilent);
  EXPECT_LE(now_ns_ - stopped_at_ns, kOptions.interval_ns * kOptions.missed_max);
}

TEST_F(HeartbeatTest, LateReactorGivesThePeerAnotherInterval) {
  EXPECT_EQ(next(0), Verdict::kAsk);
  EXPECT_EQ(next(0), Verdict::kAlive);
  EXPECT_EQ(next(0, 80 * kMillisecond), Verdict::kAlive);
  EXPECT_EQ(next(0, 2000 * kMillisecond), Verdict::kAlive);
  EXPECT_EQ(next(0), Verdict::kSilent);
}

TEST_F(HeartbeatTest, ChecksThatPileUpAfterAPauseCountOnce) {
  EXPECT_EQ(next(0), Verdict::kAsk);
  EXPECT_EQ(next(0), Verdict::kAlive);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(heartbeat_.check(++now_ns_, {0, 0, sent_}, 0), Verdict::kAlive);
  EXPECT_EQ(next(0), Verdict::kSilent);
}

TEST(Heartbeat, NeedsTwoChecksWhateverTheOptions) {
  Heartbeat heartbeat({.interval_ns = 100, .missed_max = 0}, 0);
  EXPECT_EQ(heartbeat.check(100, {}, 0), Verdict::kAsk);
  EXPECT_EQ(heartbeat.check(200, {}, 0), Verdict::kSilent);
}

}  // namespace
}  // namespace braid::trs
