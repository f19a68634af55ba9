// DeviceHistory catches hand-made bad histories of one device, and nothing else.
#include "tests/sim/checkers/device_history.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/sim/checkers/stamp.h"

namespace braid::sim {
namespace {

class Device : public ::testing::Test {
 protected:
  uint64_t run(OpKind kind, uint64_t first = 0, uint64_t sectors = 0, bool fails = false,
               bool durable = false, bool lied_to = false) {
    const uint64_t id = ++ids;
    history.begin(id, {kind, first, sectors, durable, false});
    if (lied_to) history.lied_to(id);
    history.end(id, !fails, {});
    return id;
  }
  void read(uint64_t first, const std::vector<uint64_t>& versions, uint64_t device = 5) {
    std::vector<std::byte> data(versions.size() * kSectorBytes);
    for (size_t i = 0; i < versions.size(); ++i)
      if (versions[i] != kZeroes)
        write_stamp(std::span(data).subspan(i * kSectorBytes, kSectorBytes),
                    {device, first + i, versions[i]});
    const uint64_t id = ++ids;
    history.begin(id, {OpKind::kRead, first, versions.size(), false, false});
    history.end(id, true, data);
  }

  Violations violations;
  DeviceHistory history{violations, 5, 16};
  uint64_t ids = 0;
};

TEST_F(Device, ReadsOfManySectorsAreCheckedOneByOne) {
  const uint64_t a = run(OpKind::kWrite, 0, 4);
  const uint64_t b = run(OpKind::kWrite, 2, 4);
  run(OpKind::kZero, 3, 1);
  read(0, {a, a, b, kZeroes, b, b, kZeroes});
  EXPECT_EQ(violations.count(), 0u);
  read(0, {a, a, a});
  EXPECT_EQ(violations.count(), 1u) << "sector 2 is stale";
}

TEST_F(Device, OnlyMemoryThatIsLentMayTearAndOnlyUnderAWrite) {
  for (const bool lent : {false, true}) {
    Violations seen;
    DeviceHistory its(seen, 5, 16, lent);
    // The first bytes of what is being written, the others of what was there: not at a word's end.
    std::vector<std::byte> torn(kSectorBytes);
    std::vector<std::byte> written(kSectorBytes);
    write_stamp(written, {5, 0, 1});
    std::copy_n(written.begin(), 101, torn.begin());
    its.begin(1, {OpKind::kWrite, 0, 1, false, false});
    its.begin(2, {OpKind::kRead, 0, 1, false, false});
    its.end(2, true, torn);
    its.end(1, true, {});
    EXPECT_EQ(seen.count(), lent ? 0u : 1u);
    its.begin(3, {OpKind::kRead, 0, 1, false, false});
    its.end(3, true, torn);
    EXPECT_EQ(seen.count(), lent ? 1u : 2u) << "nobody writes";
  }
}

TEST(LentMemory, NothingElseIsTakenForATornSector) {
  std::vector<std::byte> garbage(kSectorBytes, std::byte{7});
  std::vector<std::byte> other_device(kSectorBytes), other_sector(kSectorBytes);
  write_stamp(other_device, {6, 0, 1});
  write_stamp(other_sector, {5, 1, 1});
  for (const auto& read : {garbage, other_device, other_sector}) {
    Violations seen;
    DeviceHistory its(seen, 5, 16, true);
    its.begin(1, {OpKind::kWrite, 0, 1, false, false});
    its.begin(2, {OpKind::kRead, 0, 1, false, false});
    its.end(2, true, read);
    its.end(1, true, {});
    EXPECT_EQ(seen.count(), 1u);
  }
}

TEST(LentMemory, AWriteThatEndedBeforeTheReadBeganTearsNothing) {
  Violations seen;
  DeviceHistory its(seen, 5, 16, true);
  std::vector<std::byte> torn(kSectorBytes);
  write_stamp(torn, {5, 0, 1});
  std::fill(torn.begin() + 256, torn.end(), std::byte{0});
  its.begin(9, {OpKind::kRead, 0, 1, false, false});  // keeps the burst open
  its.begin(1, {OpKind::kWrite, 0, 1, false, false});
  its.end(1, true, {});
  its.begin(2, {OpKind::kRead, 0, 1, false, false});
  its.end(2, true, torn);
  EXPECT_EQ(seen.count(), 1u);
}

TEST_F(Device, AnotherDevicesDataIsCaught) {
  const uint64_t a = run(OpKind::kWrite, 0, 1);
  read(0, {a}, 6);
  EXPECT_EQ(violations.count(), 1u);
}

TEST_F(Device, TheFirstFlushAfterALossMustFail) {
  run(OpKind::kWrite, 0, 1);
  history.power_loss();
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 1u);
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 1u) << "reported once";
}

TEST_F(Device, AFlushThatFailsReportsTheLossAndThenAllIsWell) {
  const uint64_t a = run(OpKind::kWrite, 0, 1);
  history.power_loss();
  run(OpKind::kFlush, 0, 0, true);
  run(OpKind::kFlush);
  EXPECT_EQ(history.losses_reported(), 1u);
  read(0, {kZeroes});
  EXPECT_EQ(violations.count(), 0u);
  read(0, {a});
  EXPECT_EQ(violations.count(), 1u);
}

TEST_F(Device, WhatALossLeftIsNotLostByTheNextOne) {
  run(OpKind::kWrite, 0, 1);
  history.power_loss();
  run(OpKind::kFlush, 0, 0, true);
  history.power_loss();
  EXPECT_FALSE(history.owes_report()) << "nothing was written between";
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 0u);
  run(OpKind::kWrite, 0, 1);
  history.power_loss();
  history.power_loss();
  EXPECT_TRUE(history.owes_report()) << "of the first of the two";
  EXPECT_EQ(history.losses_reported(), 1u);
}

TEST_F(Device, NothingUnflushedNothingToReport) {
  run(OpKind::kWrite, 0, 1);
  run(OpKind::kFlush);
  run(OpKind::kWrite, 1, 1, false, true);
  history.power_loss();
  run(OpKind::kFlush);
  read(0, {1, 3});
  EXPECT_EQ(violations.count(), 0u);
}

TEST_F(Device, AFlushFromBeforeTheLossMaySucceedIfItCoversAll) {
  run(OpKind::kWrite, 0, 1);
  history.begin(++ids, {OpKind::kFlush, 0, 0, false, false});
  history.power_loss();
  history.end(ids, true, {});
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 0u);
  read(0, {kZeroes});
  EXPECT_EQ(violations.count(), 1u) << "but then nothing may be missing";
}

TEST_F(Device, AFlushFromBeforeTheLossDoesNotCoverLaterWrites) {
  history.begin(++ids, {OpKind::kFlush, 0, 0, false, false});
  const uint64_t flush = ids;
  run(OpKind::kWrite, 0, 1);
  history.power_loss();
  history.end(flush, true, {});
  EXPECT_EQ(violations.count(), 0u);
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 1u);
}

TEST_F(Device, AFlushThatWaitedMayHaveDoneWhatWasToldMeanwhile) {
  history.flushes_may_wait();  // seed 527 of 4 s
  history.begin(++ids, {OpKind::kFlush, 0, 0, false, false});
  const uint64_t flush = ids;
  run(OpKind::kWrite, 0, 1);
  history.end(flush, true, {});
  history.power_loss();
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 0u);
  run(OpKind::kWrite, 0, 1);
  history.power_loss();
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 1u) << "but not what was told behind it";
}

/// The device has done it; its user hears of that after the loss.
TEST_F(Device, AFlushThatWaitedAndIsDoneMayHaveDoneWhatWasToldMeanwhile) {
  for (const bool waits : {false, true}) {
    DeviceHistory its(violations, 9, 16);
    if (waits) its.flushes_may_wait();  // seed 399 of 4 s, where sleeping is slower
    its.begin(1, {OpKind::kFlush, 0, 0, false, false});
    its.begin(2, {OpKind::kWrite, 0, 1, false, false});
    its.end(2, true, {});
    its.done(1);
    its.power_loss();
    its.end(1, true, {});
    its.begin(3, {OpKind::kFlush, 0, 0, false, false});
    its.end(3, true, {});
    EXPECT_EQ(violations.count(), 1U) << "that of the flush which did not wait";
  }
}

/// A write that is done, and of which its user hears later.
TEST_F(Device, AFlushCoversWhatWasDoneThoughNobodyHadHeard) {
  history.begin(++ids, {OpKind::kWrite, 0, 1, false, false});
  const uint64_t write = ids;
  history.done(write);
  run(OpKind::kFlush);
  history.end(write, true, {});
  history.power_loss();
  EXPECT_FALSE(history.owes_report());
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 0u);
}

/// The flush is done, its answer comes behind the loss, and then that of the write.
TEST_F(Device, AFlushFromBeforeTheLossCoversWhatWasDoneThoughNobodyHadHeard) {
  enum class Order { kFlushed, kNotFlushed, kDoneLater };
  for (const Order order : {Order::kFlushed, Order::kNotFlushed, Order::kDoneLater}) {
    DeviceHistory its(violations, 9, 16);  // seed 2097 of 4 s
    const uint64_t before = violations.count();
    its.begin(1, {OpKind::kWrite, 0, 1, false, false});
    if (order != Order::kDoneLater) its.done(1);
    if (order != Order::kNotFlushed) its.begin(2, {OpKind::kFlush, 0, 0, false, false});
    if (order == Order::kDoneLater) its.done(1);
    its.power_loss();
    if (order != Order::kNotFlushed) its.end(2, true, {});
    its.end(1, true, {});
    its.begin(3, {OpKind::kFlush, 0, 0, false, false});
    its.end(3, true, {});
    EXPECT_EQ(violations.count() - before, order == Order::kFlushed ? 0U : 1U);
  }
}

TEST_F(Device, AFlushFromBehindALossDoesNotCoverWhatWasLostInIt) {
  history.begin(1, {OpKind::kWrite, 0, 1, false, false});
  history.done(1);
  history.power_loss();
  history.begin(2, {OpKind::kFlush, 0, 0, false, false});
  history.power_loss();  // once more, so that the flush is from before the last one
  history.end(2, true, {});
  history.end(1, true, {});
  history.begin(3, {OpKind::kFlush, 0, 0, false, false});
  history.end(3, true, {});
  EXPECT_EQ(violations.count(), 1U);
}

TEST_F(Device, AFlushThatWaitedCoversNothingThatWasDoneBehindIt) {
  for (const bool heard : {false, true}) {
    DeviceHistory its(violations, 9, 16);
    its.flushes_may_wait();
    const uint64_t before = violations.count();
    its.begin(1, {OpKind::kFlush, 0, 0, false, false});
    its.done(1);
    its.begin(2, {OpKind::kWrite, 0, 1, false, false});
    heard ? its.end(2, true, {}) : its.done(2);
    if (heard) its.end(1, true, {});
    its.power_loss();
    if (!heard) its.end(1, true, {});
    if (!heard) its.end(2, true, {});
    its.begin(3, {OpKind::kFlush, 0, 0, false, false});
    its.end(3, true, {});
    EXPECT_EQ(violations.count() - before, 1U) << (heard ? "heard" : "not heard") << " before it";
  }
}

TEST_F(Device, AFlushThatFailedBeforeAnybodyHadHeardOfALostWriteDoesNotReportIt) {
  history.begin(++ids, {OpKind::kWrite, 0, 1, false, false});
  const uint64_t write = ids;
  history.done(write);
  history.power_loss();
  history.begin(++ids, {OpKind::kFlush, 0, 0, false, false});
  EXPECT_TRUE(history.may_report_loss(ids));
  history.end(ids, false, {});
  history.power_loss();  // another, which it has not reported, either
  history.end(write, true, {});
  EXPECT_TRUE(history.owes_report());
  run(OpKind::kFlush, 0, 0, true);
  EXPECT_FALSE(history.owes_report());
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 0u);
}

TEST_F(Device, AFlushFromBeforeTheLostWritesDoesNotReportThem) {
  history.begin(++ids, {OpKind::kFlush, 0, 0, false, false});
  const uint64_t early = ids;
  run(OpKind::kWrite, 0, 1);
  history.power_loss();
  history.end(early, false, {});
  EXPECT_TRUE(history.owes_report());
  run(OpKind::kFlush, 0, 0, true);
  EXPECT_FALSE(history.owes_report());
  EXPECT_EQ(violations.count(), 0u);
}

TEST_F(Device, OnlyFlushesThatMetALossMayReportOne) {
  run(OpKind::kFlush);
  history.begin(++ids, {OpKind::kFlush, 0, 0, false, false});
  const uint64_t idle = ids;
  history.power_loss();
  EXPECT_FALSE(history.may_report_loss(idle)) << "nothing was acknowledged, nothing is lost";
  history.end(idle, true, {});
  run(OpKind::kWrite, 0, 1);
  history.begin(++ids, {OpKind::kFlush, 0, 0, false, false});
  history.power_loss();
  EXPECT_TRUE(history.may_report_loss(ids));
}

TEST_F(Device, AnAcknowledgementThatArrivesAfterTheLossMayBeOfALostWrite) {
  history.begin(++ids, {OpKind::kWrite, 0, 1, false, false});
  const uint64_t write = ids;
  history.power_loss();
  history.begin(++ids, {OpKind::kFlush, 0, 0, false, false});
  const uint64_t flush = ids;
  history.end(write, true, {});
  EXPECT_TRUE(history.may_report_loss(flush));
  EXPECT_FALSE(history.owes_report()) << "it may have been done after the loss";
  history.end(flush, false, {});
  history.begin(++ids, {OpKind::kFlush, 0, 0, false, false});
  EXPECT_TRUE(history.may_report_loss(ids)) << "the first one did not cover the write";
  history.end(ids, false, {});
  history.begin(++ids, {OpKind::kFlush, 0, 0, false, false});
  EXPECT_FALSE(history.may_report_loss(ids));
}

TEST_F(Device, AFlushThatADiskErrorFailedNeedNotHaveBeenTheReport) {
  run(OpKind::kWrite, 0, 1);
  history.power_loss();
  history.begin(++ids, {OpKind::kFlush, 0, 0, false, false});
  history.end(ids, false, {}, {.otherwise_explained = true});
  EXPECT_FALSE(history.owes_report()) << "its user was warned";
  history.begin(++ids, {OpKind::kFlush, 0, 0, false, false});
  EXPECT_TRUE(history.may_report_loss(ids));
  history.end(ids, false, {});
  history.begin(++ids, {OpKind::kFlush, 0, 0, false, false});
  EXPECT_FALSE(history.may_report_loss(ids));
}

TEST_F(Device, ANewWriterIsNotToldWhatItsPredecessorLost) {
  const uint64_t a = run(OpKind::kWrite, 0, 1);
  history.writer_restarted();
  history.power_loss();
  EXPECT_FALSE(history.owes_report());
  run(OpKind::kFlush);
  read(0, {kZeroes});
  EXPECT_EQ(violations.count(), 0u);
  read(0, {a});
  EXPECT_EQ(violations.count(), 1u);
  run(OpKind::kWrite, 0, 1);
  history.power_loss();
  EXPECT_TRUE(history.owes_report()) << "of its own writes it is";
}

// Seed 4196: in the burst that a reader keeps open who is held up.
TEST_F(Device, ANewWriterIsNotToldWhileAReaderIsHeldUp) {
  const uint64_t held_up = ++ids;
  history.begin(held_up, {OpKind::kRead, 0, 1, false, false});
  run(OpKind::kWrite, 0, 1);
  history.writer_restarted();
  const uint64_t flush = ++ids;
  history.begin(flush, {OpKind::kFlush, 0, 0, false, false});
  history.power_loss();
  history.end(flush, true, {});
  history.end(held_up, false, {});
  read(0, {kZeroes});
  EXPECT_EQ(violations.count(), 0u);
}

// Seed 6310: what it left half done was seen by the new writer, and lost.
TEST_F(Device, ANewWriterDoesNotVouchForWhatItsPredecessorLeftUnderWay) {
  const uint64_t a = run(OpKind::kWrite, 0, 1);
  const uint64_t left = run(OpKind::kWrite, 0, 1, true);
  history.writer_restarted();
  read(0, {left});
  history.power_loss();
  run(OpKind::kFlush);
  read(0, {a});
  EXPECT_EQ(violations.count(), 0u);
  const uint64_t own = run(OpKind::kWrite, 0, 1);
  read(0, {own});
  history.power_loss();
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 1u) << "the loss of its own is owed";
  read(0, {a});
  EXPECT_EQ(violations.count(), 2u) << "its flush vouches for what it wrote itself";
}

// A write with a preflush is two things: the flush may be answered before a loss, the write behind
// it be done after.
TEST_F(Device, APreflushThatCoversAllMayHaveBeenAnsweredBeforeTheLoss) {
  const uint64_t a = run(OpKind::kWrite, 0, 1);
  history.begin(++ids, {OpKind::kWrite, 1, 1, false, true});
  const uint64_t behind = ids;
  history.power_loss();
  EXPECT_TRUE(history.may_report_loss(behind)) << "it may as well have met the loss";
  history.end(behind, true, {});
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 0u);
  read(0, {a, behind});
  EXPECT_EQ(violations.count(), 0u);
  read(0, {kZeroes});
  EXPECT_EQ(violations.count(), 1u) << "but then what it covers is durable";
}

TEST_F(Device, APreflushThatFailsHasReportedTheLoss) {
  run(OpKind::kWrite, 0, 1);
  history.begin(++ids, {OpKind::kWrite, 1, 1, false, true});
  history.power_loss();
  history.end(ids, false, {});
  EXPECT_EQ(history.losses_reported(), 1u);
  run(OpKind::kFlush);
  read(0, {kZeroes});
  EXPECT_EQ(violations.count(), 0u);
}

TEST_F(Device, AFlushThatFailedMayHaveBeenDone) {
  const uint64_t a = run(OpKind::kWrite, 0, 1);
  for (const OpKind kind : {OpKind::kWrite, OpKind::kFlush}) {  // with a preflush; by itself
    history.begin(++ids, {kind, 1, 1, false, kind == OpKind::kWrite});
    history.end(ids, false, {}, {.otherwise_explained = true, .dropped = true});
    history.power_loss();
    run(OpKind::kFlush);
    read(0, {a});
    EXPECT_EQ(violations.count(), 0u);
  }
  run(OpKind::kWrite, 0, 1);
  history.power_loss();
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 1u) << "not of what was acknowledged later";
}

TEST_F(Device, APreflushFromBeforeAnAcknowledgementDoesNotCoverIt) {
  history.begin(++ids, {OpKind::kWrite, 1, 1, false, true});
  const uint64_t behind = ids;
  run(OpKind::kWrite, 0, 1);
  history.power_loss();
  history.end(behind, true, {});
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 1u) << "the loss of the other write is owed";
}

TEST_F(Device, APreflushFromAfterTheLossMustReportIt) {
  run(OpKind::kWrite, 0, 1);
  history.power_loss();
  history.begin(++ids, {OpKind::kWrite, 1, 1, false, true});
  history.end(ids, true, {});
  EXPECT_EQ(violations.count(), 1u);
}

TEST_F(Device, WhatADiskThatLiesHasNotWrittenMayComeBackAndStay) {
  const uint64_t a = run(OpKind::kWrite, 0, 1);
  run(OpKind::kFlush);
  for (const bool by_flush : {true, false}) {
    run(OpKind::kWrite, 0, 1, false, /*durable=*/!by_flush, /*lied_to=*/!by_flush);
    if (by_flush) run(OpKind::kFlush, 0, 0, false, false, /*lied_to=*/true);
    history.power_loss();
    EXPECT_FALSE(history.owes_report()) << "its client relies on the disk's word";
    run(OpKind::kFlush);
    read(0, {a});
    EXPECT_EQ(violations.count(), 0u);
  }
  run(OpKind::kWrite, 0, 1);
  run(OpKind::kFlush);
  history.power_loss();
  read(0, {a});
  EXPECT_EQ(violations.count(), 1u) << "but not what an honest flush has followed";
}

TEST_F(Device, ALieSpeaksForNothingThatIsWrittenLater) {
  run(OpKind::kFlush, 0, 0, false, false, /*lied_to=*/true);
  run(OpKind::kWrite, 0, 1);
  history.power_loss();
  EXPECT_TRUE(history.owes_report());
  run(OpKind::kFlush);
  EXPECT_EQ(violations.count(), 1u);
}

TEST_F(Device, RefusesMoreConcurrencyThanItCanJudge) {
  for (size_t i = 0; i < BlockRegister::kBurstMax; ++i) {
    EXPECT_TRUE(history.admits(3, 1));
    history.begin(++ids, {OpKind::kWrite, 3, 1, false, false});
  }
  EXPECT_FALSE(history.admits(2, 2));
  EXPECT_TRUE(history.admits(4, 2));
}

}  // namespace
}  // namespace braid::sim
