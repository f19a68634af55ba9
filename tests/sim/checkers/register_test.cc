// The register checker accepts what the promises allow and catches hand-made bad histories.
#include "tests/sim/checkers/register.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace braid::sim {
namespace {

using Kind = BlockRegister::Kind;

/// A register with a clock and a floor; each step is a line of a history.
class History {
 public:
  void begin(uint64_t id, Kind kind) { r_.begin(id, kind, id, ++now_); }
  bool ok(uint64_t id, uint64_t value = 0, bool durable = false, bool repeated = false) {
    return !r_.end(id, true, value, durable, ++now_, floor_, repeated);
  }
  bool fail(uint64_t id) { return !r_.end(id, false, 0, false, ++now_, floor_); }
  bool write(uint64_t id, bool durable = false) {
    begin(id, Kind::kWrite);
    return ok(id, 0, durable);
  }
  bool read(uint64_t value) {
    const uint64_t id = 1000 + ++reads_;
    begin(id, Kind::kRead);
    return ok(id, value);
  }
  void flush() { floor_ = ++now_; }
  void flush_began_at(Instant at) { floor_ = at; }
  void flush_fails() { r_.loss_admitted(floor_); }
  /// At the disk: it forgets what it could not write.
  void flush_drops(Instant began_at = kForever) {
    flush_fails();
    ++now_;
    r_.dropped(std::min(began_at, now_), now_, floor_);
  }
  void power_loss() { r_.power_loss(++now_, floor_); }
  Instant now() const { return now_; }
  std::vector<uint64_t> possible() const {
    auto values = r_.possible(floor_);
    std::sort(values.begin(), values.end());
    return values;
  }

 private:
  BlockRegister r_;
  Instant now_ = 0;
  Instant floor_ = 0;
  uint64_t reads_ = 0;
};

using Values = std::vector<uint64_t>;

TEST(BlockRegister, ReadsSeeTheLastWrite) {
  History h;
  EXPECT_TRUE(h.read(0));
  EXPECT_TRUE(h.write(1));
  EXPECT_TRUE(h.read(1));
  EXPECT_TRUE(h.write(2));
  EXPECT_FALSE(h.read(1)) << "stale";
}

TEST(BlockRegister, AValueThatWasNeverWrittenIsCaught) {
  History h;
  EXPECT_TRUE(h.write(1));
  EXPECT_FALSE(h.read(7));
}

TEST(BlockRegister, AnAcknowledgedWriteThatIsGoneIsCaught) {
  History h;
  EXPECT_TRUE(h.write(1));
  EXPECT_FALSE(h.read(0));
}

TEST(BlockRegister, ConcurrentWritesMayEndInEitherOrderButStayThere) {
  for (const uint64_t winner : {1, 2}) {
    History h;
    h.begin(1, Kind::kWrite);
    h.begin(2, Kind::kWrite);
    EXPECT_TRUE(h.ok(1));
    EXPECT_TRUE(h.ok(2));
    EXPECT_EQ(h.possible(), (Values{1, 2}));
    EXPECT_TRUE(h.read(winner));
    EXPECT_FALSE(h.read(3 - winner)) << "it cannot change back";
  }
}

TEST(BlockRegister, AReadDuringAWriteSeesOldOrNewAndNeverGoesBack) {
  History h;
  h.begin(1, Kind::kWrite);
  h.begin(2, Kind::kRead);
  EXPECT_TRUE(h.ok(2, 1));
  h.begin(3, Kind::kRead);
  EXPECT_TRUE(h.ok(3, 0));
  EXPECT_FALSE(h.ok(1)) << "read 2 saw the new value, read 3 began later and saw the old one";
}

TEST(BlockRegister, AFailedWriteHappenedOrNot) {
  for (const uint64_t seen : {0, 1}) {
    History h;
    h.begin(1, Kind::kWrite);
    EXPECT_TRUE(h.fail(1));
    EXPECT_EQ(h.possible(), (Values{0, 1}));
    EXPECT_TRUE(h.read(seen));
    EXPECT_FALSE(h.read(1 - seen));
  }
}

TEST(BlockRegister, AnAbandonedWriteMustNotLandAfterANewerOne) {
  History h;
  h.begin(1, Kind::kWrite);
  EXPECT_TRUE(h.fail(1));
  EXPECT_TRUE(h.write(2));
  EXPECT_FALSE(h.read(1));
}

TEST(BlockRegister, FlushedAndFuaWritesSurviveAPowerLoss) {
  History flushed;
  EXPECT_TRUE(flushed.write(1));
  EXPECT_TRUE(flushed.write(2));
  flushed.flush();
  flushed.power_loss();
  EXPECT_EQ(flushed.possible(), (Values{2}));
  EXPECT_FALSE(flushed.read(1));

  History fua;
  EXPECT_TRUE(fua.write(1));
  EXPECT_TRUE(fua.write(2, true));
  fua.power_loss();
  EXPECT_EQ(fua.possible(), (Values{2}));
  EXPECT_FALSE(fua.read(1));
}

TEST(BlockRegister, UnflushedWritesMayBeLostInAPowerLossToAnyOlderVersion) {
  History h;
  EXPECT_TRUE(h.write(1));
  h.flush();
  EXPECT_TRUE(h.write(2));
  EXPECT_TRUE(h.write(3));
  h.power_loss();
  EXPECT_EQ(h.possible(), (Values{1, 2, 3}));
  EXPECT_TRUE(h.read(2));
  EXPECT_FALSE(h.read(3)) << "it is gone now";
}

TEST(BlockRegister, AFlushCoversOnlyWhatEndedBeforeItBegan) {
  History h;
  EXPECT_TRUE(h.write(1));
  const Instant before = h.now();
  EXPECT_TRUE(h.write(2));
  h.flush_began_at(before);
  h.power_loss();
  EXPECT_EQ(h.possible(), (Values{1, 2}));
}

TEST(BlockRegister, AFlushThatSucceedsAfterALossVouchesForTheLatestWrite) {
  History h;
  EXPECT_TRUE(h.write(1));
  h.power_loss();
  EXPECT_EQ(h.possible(), (Values{0, 1}));
  h.flush();
  EXPECT_EQ(h.possible(), (Values{1}));
  EXPECT_FALSE(h.read(0)) << "acknowledged, flushed, lost";
}

TEST(BlockRegister, AFlushThatFailsAdmitsTheLoss) {
  History h;
  EXPECT_TRUE(h.write(1));
  h.power_loss();
  h.flush_fails();
  h.flush();
  EXPECT_EQ(h.possible(), (Values{0, 1}));
  EXPECT_TRUE(h.read(0));
  EXPECT_FALSE(h.read(1));
}

TEST(BlockRegister, WhatOnlyAFailedWriteHadReplacedMayComeBackWithoutAWord) {
  for (const bool acknowledged : {false, true}) {
    History h;
    EXPECT_TRUE(h.write(1));
    h.flush();
    h.begin(2, Kind::kWrite);
    EXPECT_TRUE(h.fail(2));
    EXPECT_TRUE(h.read(2)) << "it took effect";
    if (acknowledged) {
      EXPECT_TRUE(h.write(3));
    }
    h.power_loss();
    h.flush();
    EXPECT_EQ(h.read(1), !acknowledged) << "of an acknowledged one the loss is owed";
  }
}

TEST(BlockRegister, WhatAFailedFlushForgotIsVouchedForByNoLaterOne) {
  History h;
  EXPECT_TRUE(h.write(1));
  h.flush();
  EXPECT_TRUE(h.write(2));
  h.flush_drops();
  EXPECT_TRUE(h.read(2)) << "it is in the cache";
  h.flush();
  h.power_loss();
  EXPECT_EQ(h.possible(), (Values{1, 2}));
}

// Its user did not know of the write when it began: he is told of that by another.
TEST(BlockRegister, AFailedFlushSpeaksForNothingThatWasToldLater) {
  for (const bool another : {false, true}) {
    History h;
    EXPECT_TRUE(h.write(1));
    h.flush();
    const Instant began_at = h.now();
    EXPECT_TRUE(h.write(2));
    h.flush_drops(began_at);
    if (another) h.flush_drops();
    h.flush();
    h.power_loss();
    EXPECT_EQ(h.possible(), another ? (Values{1, 2}) : (Values{2}));
  }
}

TEST(BlockRegister, NorDoesItSayWhichOfTwoValuesTheMediumHas) {
  for (const bool another : {false, true}) {
    History h;
    const Instant began_at = h.now();
    h.begin(1, Kind::kWrite);
    h.begin(2, Kind::kWrite);
    EXPECT_TRUE(h.ok(1));
    EXPECT_TRUE(h.ok(2));
    h.flush_drops(began_at);
    if (another) h.flush_drops();
    EXPECT_TRUE(h.read(2));
    h.flush();
    h.power_loss();
    EXPECT_EQ(h.possible(), another ? (Values{0, 1, 2}) : (Values{2}));
  }
}

TEST(BlockRegister, WhatAFailedWriteLeftIsOwedToNobodyWheneverItEnded) {
  History h;
  EXPECT_TRUE(h.write(1));
  h.flush();
  const Instant began_at = h.now();
  h.begin(2, Kind::kWrite);
  EXPECT_TRUE(h.fail(2));
  h.flush_drops(began_at);
  EXPECT_TRUE(h.read(2));
  h.flush();
  h.power_loss();
  EXPECT_EQ(h.possible(), (Values{1, 2}));
}

TEST(BlockRegister, WhatIsWrittenAnewAfterThatIsVouchedFor) {
  History h;
  EXPECT_TRUE(h.write(1));
  EXPECT_TRUE(h.write(2));
  h.flush_drops();
  EXPECT_TRUE(h.write(3));
  h.flush();
  h.power_loss();
  EXPECT_EQ(h.possible(), (Values{3}));
}

TEST(BlockRegister, WhatWasFlushedBeforeThatDoesNotComeBack) {
  History h;
  EXPECT_TRUE(h.write(1));
  EXPECT_TRUE(h.write(2));
  h.flush();
  h.flush_drops();
  h.power_loss();
  EXPECT_EQ(h.possible(), (Values{2}));
}

// Which of two values a failed write has left is forgotten, too: a read tells what the cache has.
TEST(BlockRegister, WhatAReadTellsAfterThatIsNotWhatTheMediumHas) {
  History h;
  EXPECT_TRUE(h.write(1));
  h.flush();
  h.begin(2, Kind::kWrite);
  EXPECT_TRUE(h.fail(2));
  h.flush_drops();
  h.begin(3, Kind::kRead);
  EXPECT_TRUE(h.fail(3)) << "tells nothing";
  EXPECT_TRUE(h.read(2));
  h.flush();
  h.power_loss();
  EXPECT_EQ(h.possible(), (Values{1, 2}));
}

TEST(BlockRegister, NorWhereAReadThatHungKeptTheTwoValuesOpenUntilAfterIt) {
  for (const bool written_anew : {false, true}) {
    History h;
    EXPECT_TRUE(h.write(1));
    h.flush();
    h.begin(9, Kind::kRead);
    h.begin(2, Kind::kWrite);
    EXPECT_TRUE(h.fail(2));
    h.flush_drops();
    if (written_anew) {
      EXPECT_TRUE(h.write(3));
    }
    EXPECT_TRUE(h.fail(9));
    EXPECT_TRUE(h.read(written_anew ? 3 : 2));
    h.flush();
    h.power_loss();
    EXPECT_EQ(h.possible(), (written_anew ? Values{3} : Values{1, 2}));
  }
}

TEST(BlockRegister, AWriteUnderWayDuringAPowerLossIsDoneAfterItWhenAcknowledged) {
  History h;
  EXPECT_TRUE(h.write(1));
  h.begin(2, Kind::kWrite);
  h.power_loss();
  EXPECT_TRUE(h.ok(2));
  EXPECT_EQ(h.possible(), (Values{0, 1, 2})) << "it may have been acknowledged, then lost";
}

TEST(BlockRegister, AWriteThatWasSeenAndLostIsSentAgain) {
  History h;
  h.begin(1, Kind::kWrite);
  EXPECT_TRUE(h.read(1));
  h.power_loss();
  EXPECT_TRUE(h.read(0));
  EXPECT_TRUE(h.ok(1)) << "done twice, with a loss between";
  EXPECT_EQ(h.possible(), (Values{0, 1})) << "or once, and the answer came late";

  History without_loss;
  without_loss.begin(1, Kind::kWrite);
  EXPECT_TRUE(without_loss.read(1));
  EXPECT_TRUE(without_loss.read(0));
  EXPECT_FALSE(without_loss.ok(1));
}

TEST(BlockRegister, AReadAcrossAPowerLossSeesBeforeOrAfter) {
  for (const uint64_t seen : {0, 1}) {
    History h;
    EXPECT_TRUE(h.write(1));
    h.begin(2, Kind::kRead);
    h.power_loss();
    EXPECT_TRUE(h.ok(2, seen));
  }
}

// A read is under way all the time, so that everything is one burst.
TEST(BlockRegister, WhatWasDurableInABurstSurvivesAPowerLossInIt) {
  for (const uint64_t seen : {0, 5, 6}) {
    History fua;
    fua.begin(1, Kind::kRead);
    EXPECT_TRUE(fua.write(5, true));
    EXPECT_TRUE(fua.write(6));
    fua.power_loss();
    fua.begin(2, Kind::kRead);
    EXPECT_TRUE(fua.ok(2, seen));
    EXPECT_EQ(fua.ok(1, 0), seen != 0) << seen;

    History flushed;
    flushed.begin(1, Kind::kRead);
    EXPECT_TRUE(flushed.write(5));
    flushed.flush();
    EXPECT_TRUE(flushed.write(6));
    flushed.power_loss();
    flushed.begin(2, Kind::kRead);
    EXPECT_TRUE(flushed.ok(2, seen));
    EXPECT_EQ(flushed.ok(1, 0), seen != 0) << seen;
  }
}

TEST(BlockRegister, ADurableWriteInABurstEndsWhatAnEarlierLossBroughtBack) {
  for (const uint64_t seen : {0, 4, 5}) {
    History h;
    EXPECT_TRUE(h.write(4));
    h.begin(1, Kind::kRead);
    h.power_loss();
    EXPECT_TRUE(h.write(5, true));
    h.power_loss();
    h.begin(2, Kind::kRead);
    EXPECT_TRUE(h.ok(2, seen));
    EXPECT_EQ(h.ok(1, 0), seen == 5) << seen;
  }
}

TEST(BlockRegister, AFlushAfterALossInABurstVouchesForTheLatestWrite) {
  History h;
  h.begin(1, Kind::kRead);
  EXPECT_TRUE(h.write(5));
  h.power_loss();
  h.flush();
  h.begin(2, Kind::kRead);
  EXPECT_TRUE(h.ok(2, 0));
  EXPECT_FALSE(h.ok(1, 5)) << "acknowledged, flushed, lost";
}

TEST(BlockRegister, ZeroesAreAValueLikeAnyOther) {
  History h;
  EXPECT_TRUE(h.write(1));
  h.begin(2, Kind::kWrite);
  EXPECT_TRUE(h.ok(2));
  EXPECT_FALSE(h.read(0));
}

TEST(BlockRegister, OnlyAWriteThatWasSentAgainMayComeBackAndOnlyWithinItsTime) {
  for (const bool repeated : {false, true}) {
    History h;
    h.begin(1, Kind::kWrite);
    EXPECT_TRUE(h.read(1));
    h.begin(2, Kind::kWrite);  // after a read that saw the first
    h.begin(3, Kind::kRead);
    EXPECT_TRUE(h.ok(3, 2));
    EXPECT_TRUE(h.ok(2));
    EXPECT_TRUE(h.read(1)) << "judged with its burst";
    EXPECT_EQ(h.ok(1, 0, false, repeated), repeated);
    if (!repeated) continue;
    EXPECT_TRUE(h.write(4));
    EXPECT_FALSE(h.read(1)) << "its time is over";
  }
}

TEST(BlockRegister, AnEndWithoutABeginningIsCaught) {
  History h;
  EXPECT_FALSE(h.ok(1));
}

/// A read that is held up keeps all that happens meanwhile undecided.
TEST(BlockRegister, WhatALossBroughtBackWhileAReadWasHeldUpMayComeBackByTheNext) {
  for (const bool flushed_again : {false, true}) {
    History h;
    EXPECT_TRUE(h.write(1));
    h.flush();
    h.begin(900, Kind::kRead);
    EXPECT_TRUE(h.write(2));
    h.power_loss();
    h.flush_fails();
    h.flush();  // of 1 or of 2: nobody has looked
    EXPECT_TRUE(h.write(3));
    EXPECT_TRUE(h.ok(900, 3));
    if (flushed_again) h.flush();
    h.power_loss();
    EXPECT_EQ(h.possible(), flushed_again ? Values({3}) : Values({1, 2, 3}));
  }
}

}  // namespace
}  // namespace braid::sim
