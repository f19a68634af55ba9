// The judge excuses what its reasons explain, and nothing behind them.
#include "tests/sim/judge.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "trs/wire.h"

namespace braid::sim {
namespace {

using base::Errc;

constexpr uint64_t kSectors = 64;

/// A client that writes one file, and another that may want to.
class JudgeTest : public ::testing::Test {
 protected:
  JudgeTest() { start(); }
  /// Of plan_ as it is now.
  void start() {
    judge_ = std::make_unique<Judge>(
        world_, plan_, base::Logger(base::make_null_sink(), "judge", base::LogLevel::kWarning));
    open();
  }
  static Plan plan() {
    Plan plan;
    plan.servers.resize(1);
    plan.clients.resize(2);
    for (ClientPlan& client : plan.clients) client.give_up_after_ns = base::kSecond;
    plan.devices.resize(1);
    plan.devices[0].sectors = kSectors;
    return plan;
  }
  void open(size_t client = 0) {
    judge_->asks(client, 0, Wish::kWrite);
    pass();
    Judge::Asked asked;
    asked.losses = [this] { return losses_; };
    asked.ways = [this] { return ways_; };
    asked.checks = checks_;
    judge_->opened(client, 0, Wish::kWrite, std::move(asked));
    pass();
  }
  void pass() { world_.run_for(base::kMillisecond); }
  uint64_t begin(OpKind kind, uint64_t first = 0, uint64_t known_sectors = kSectors) {
    OpDescription op;
    op.kind = kind;
    op.first_sector = first;
    op.sectors = kind == OpKind::kFlush ? 0 : 1;
    const uint64_t id = judge_->begin(0, 0, op, known_sectors);
    pass();
    return id;
  }
  void end(uint64_t id, Errc status) {
    judge_->end(id, status, {});
    pass();
  }
  void run(OpKind kind, Errc status, uint64_t first = 0, uint64_t known_sectors = kSectors) {
    end(begin(kind, first, known_sectors), status);
  }
  /// While the disk may fail, a flush fails; then the server has heard of it.
  void fail_flush() {
    judge_->disk_may_fail(0, true);
    run(OpKind::kFlush, Errc::kIo);
    judge_->disk_may_fail(0, false);
    pass();
    run(OpKind::kWrite, Errc::kOk);
  }
  static std::array<std::byte, kSectorBytes> first_sector_by(uint64_t writer) {
    std::array<std::byte, kSectorBytes> data;
    write_stamp(data, {1, 0, writer});
    return data;
  }
  /// Sector 0 has what the operation of that id wrote.
  void read_first_as(uint64_t writer) {
    judge_->end(begin(OpKind::kRead), Errc::kOk, first_sector_by(writer));
  }
  /// The disk is given sector 0 as the operation of that id writes it.
  void store(uint64_t writer) { judge_->disk_stores(0, 0, first_sector_by(writer)); }
  /// A write whose session loses its last path when the disk has it, and which the disk is given
  /// again behind what happens then.
  void write_twice(const std::function<void()>& meanwhile = [] {}) {
    const uint64_t id = begin(OpKind::kWrite);
    store(id);
    ++losses_;
    meanwhile();
    store(id);
    end(id, Errc::kOk);
  }
  size_t violations() const { return judge_->violations().count(); }

  base::sim::SimWorld world_{{}};
  Plan plan_ = plan();
  bool checks_ = false;  // the next handle has a checksum before its device
  uint64_t losses_ = 0;  // of the sessions' last paths
  UntoldLosses::Ways ways_{.connections = 2, .there = 2, .reopened = 0};
  std::unique_ptr<Judge> judge_;
};

TEST_F(JudgeTest, AFailedDiskIsToldOnceByEachConnection) {
  fail_flush();
  for (uint64_t i = 0; i < ways_.there; ++i) run(OpKind::kFlush, Errc::kIo);
  EXPECT_EQ(violations(), 0u);
  run(OpKind::kFlush, Errc::kOk);
  run(OpKind::kFlush, Errc::kIo);
  EXPECT_EQ(violations(), 1u);
}

TEST_F(JudgeTest, NoFlushFailsWithoutAReason) {
  run(OpKind::kFlush, Errc::kIo);
  EXPECT_EQ(violations(), 1u);
}

/// A flush may do what was told while it waited in a filter. Nobody's flush waits in a reader's.
TEST_F(JudgeTest, OnlyFiltersOfWhoWritesMakeFlushesWait) {
  enum class Filters { kOfWriter, kOfHeir, kOfReader };
  for (const Filters whose : {Filters::kOfWriter, Filters::kOfHeir, Filters::kOfReader}) {
    plan_ = plan();
    if (whose == Filters::kOfHeir) plan_.devices[0].heir = 1;
    if (whose == Filters::kOfReader) plan_.devices[0].readers = {1};
    const size_t client = whose == Filters::kOfWriter ? 0 : 1;
    plan_.clients[client].filters.push_back(*bnbd::parse_filter("delay:10us-3ms"));
    start();
    const uint64_t flush = begin(OpKind::kFlush);
    run(OpKind::kWrite, Errc::kOk);
    end(flush, Errc::kOk);
    judge_->server_lost_power(0);
    run(OpKind::kFlush, Errc::kOk);
    EXPECT_EQ(violations(), whose == Filters::kOfReader ? 1u : 0u);
  }
}

/// What a client does that takes the failure to speak for a write that was under way.
TEST_F(JudgeTest, AWriteUnderWayAtAFailureIsStillOwed) {
  run(OpKind::kWrite, Errc::kOk);
  run(OpKind::kFlush, Errc::kOk);
  judge_->disk_may_fail(0, true);
  const uint64_t flush = begin(OpKind::kFlush);
  run(OpKind::kWrite, Errc::kOk);
  end(flush, Errc::kIo);
  judge_->disk_may_fail(0, false);
  pass();
  run(OpKind::kWrite, Errc::kOk, 1);
  run(OpKind::kFlush, Errc::kOk);
  judge_->server_lost_power(0);
  EXPECT_EQ(violations(), 0u);
  read_first_as(1);
  EXPECT_EQ(violations(), 1u) << "the first write came back behind a flush that ended well";
}

/// Nothing can be forgotten by a death that comes when all failures have been told.
TEST_F(JudgeTest, WhatAServerKnewOfFailuresDiesOnlyIfItWasNotTold) {
  fail_flush();
  run(OpKind::kFlush, Errc::kOk);
  const uint64_t before = begin(OpKind::kWrite);
  end(before, Errc::kOk);
  run(OpKind::kFlush, Errc::kOk);
  run(OpKind::kWrite, Errc::kOk);
  judge_->server_died(0);
  run(OpKind::kFlush, Errc::kOk);
  judge_->server_lost_power(0);
  EXPECT_EQ(violations(), 0u);
  read_first_as(before);
  EXPECT_EQ(violations(), 1u) << "it was replaced by what was flushed";
}

/// Seed 7583 of 4 s: it failed as the server closed the file. Who comes back is told by the mark, a
/// new writer is not, and what his flushes find is no more what the failed one forgot.
TEST_F(JudgeTest, OfAFailureThatAServerHasMarkedANewWriterHearsNothing) {
  for (const bool told : {false, true}) {
    start();
    run(OpKind::kWrite, Errc::kOk);
    const uint64_t first = 1;
    run(OpKind::kFlush, Errc::kOk);
    run(OpKind::kWrite, Errc::kOk);
    judge_->disk_may_fail(0, true);
    judge_->disk_may_fail(0, false);
    pass();
    if (told) run(OpKind::kWrite, Errc::kOk, 1);
    if (told) run(OpKind::kFlush, Errc::kOk);
    world_.run_for(base::kSecond);
    judge_->server_died(0);
    open();
    run(OpKind::kFlush, Errc::kOk);
    judge_->server_lost_power(0);
    EXPECT_EQ(violations(), 0u);
    read_first_as(first);
    EXPECT_EQ(violations(), told ? 1u : 0u);
  }
}

TEST_F(JudgeTest, WhoComesBackToASmallerDeviceMustNotGoOn) {
  judge_->server_died(0);
  ASSERT_TRUE(judge_->resized_away(0, kSectors / 2));
  run(OpKind::kWrite, Errc::kOk, 0, kSectors / 2);
  EXPECT_EQ(violations(), 0u) << "he knows";
  run(OpKind::kWrite, Errc::kOk, 0, kSectors);
  EXPECT_EQ(violations(), 1u);
}

TEST_F(JudgeTest, WhoTakesASmallerDeviceAsItIsMayGoOn) {
  judge_->server_died(0);
  ASSERT_TRUE(judge_->resized_away(0, kSectors / 2));
  judge_->remaps(0, 0);
  run(OpKind::kWrite, Errc::kOk, 0, kSectors);
  EXPECT_EQ(violations(), 0u);
}

TEST_F(JudgeTest, WhatIsAsLargeAgainIsWhatItWas) {
  judge_->server_died(0);
  ASSERT_TRUE(judge_->resized_away(0, kSectors / 2));
  ASSERT_TRUE(judge_->resize_begins(0, kSectors));
  judge_->resize_ended(0, true);
  run(OpKind::kWrite, Errc::kOk, 0, kSectors);
  EXPECT_EQ(violations(), 0u);
}

TEST_F(JudgeTest, OfWhatALyingDiskAcknowledgedNothingNeedBeThere) {
  const uint64_t before = begin(OpKind::kWrite);
  end(before, Errc::kOk);
  run(OpKind::kFlush, Errc::kOk);
  run(OpKind::kWrite, Errc::kOk);
  const uint64_t under_way = begin(OpKind::kFlush);
  judge_->disk_may_lie(0, true);
  end(under_way, Errc::kOk);
  run(OpKind::kFlush, Errc::kOk);
  judge_->disk_may_lie(0, false);
  judge_->server_lost_power(0);
  read_first_as(before);
  EXPECT_EQ(violations(), 0u);
}

TEST_F(JudgeTest, WhatWasFlushedBeforeADiskLiedIsThere) {
  const uint64_t before = begin(OpKind::kWrite);
  end(before, Errc::kOk);
  run(OpKind::kWrite, Errc::kOk);
  run(OpKind::kFlush, Errc::kOk);
  judge_->disk_may_lie(0, true);
  judge_->disk_may_lie(0, false);
  judge_->server_lost_power(0);
  read_first_as(before);
  EXPECT_EQ(violations(), 1u);
}

TEST_F(JudgeTest, WhatIsFlushedWhenADiskLiesNoMoreIsThere) {
  const uint64_t before = begin(OpKind::kWrite);
  end(before, Errc::kOk);
  judge_->disk_may_lie(0, true);
  run(OpKind::kWrite, Errc::kOk);
  judge_->disk_may_lie(0, false);
  run(OpKind::kFlush, Errc::kOk);
  judge_->server_lost_power(0);
  read_first_as(before);
  EXPECT_EQ(violations(), 1u);
}

/// Only a disk can drop what is in its cache when a flush fails.
TEST_F(JudgeTest, AFlushThatIsGivenUpDropsNothing) {
  const uint64_t before = begin(OpKind::kWrite);
  end(before, Errc::kOk);
  run(OpKind::kFlush, Errc::kOk);
  run(OpKind::kWrite, Errc::kOk);
  const uint64_t given_up = begin(OpKind::kFlush);
  judge_->closing(0, 0);
  end(given_up, Errc::kCanceled);
  judge_->closed(0, 0);
  open();
  run(OpKind::kFlush, Errc::kOk);
  judge_->server_lost_power(0);
  EXPECT_EQ(violations(), 0u);
  read_first_as(before);
  EXPECT_EQ(violations(), 1u) << "what had replaced it was flushed";
}

TEST_F(JudgeTest, NothingIsDoneTwiceWhileAPathIsLeft) {
  const uint64_t id = begin(OpKind::kWrite);
  store(id);
  judge_->server_died(0);
  store(id);
  EXPECT_EQ(violations(), 1u) << "the death of a server alone is no reason";
}

TEST_F(JudgeTest, NothingIsDoneTwiceBehindTheLossOfTheLastPath) {
  write_twice();
  EXPECT_EQ(violations(), 1u);
}

TEST_F(JudgeTest, AServerThatDiedMayDoItAgain) {
  write_twice([this] { judge_->server_died(0); });
  EXPECT_EQ(violations(), 0u);
  write_twice();
  EXPECT_EQ(violations(), 1u) << "only what was under way";
}

TEST_F(JudgeTest, AServerThatKeepsNoAnswersMayDoItAgain) {
  plan_.servers[0].features = trs::kAllFeatures & ~trs::wire::kFeatureKeptAnswers;
  write_twice();
  EXPECT_EQ(violations(), 0u);
}

TEST_F(JudgeTest, WhatADiskFailedMayBeDoneAgain) {
  write_twice([this] { judge_->disk_may_fail(0, true); });
  judge_->disk_may_fail(0, false);
  EXPECT_EQ(violations(), 0u);
  write_twice();
  EXPECT_EQ(violations(), 1u) << "it fails no more";
}

/// With a checksum before the device.
class CheckedHandle : public JudgeTest {
 protected:
  CheckedHandle() {
    judge_->closing(0, 0);
    judge_->closed(0, 0);
    checks_ = true;
    open();
  }
  /// A read of a sector that the checksum refuses, as it returned zeroes: what was there at first.
  void refuse(uint64_t sector = 0, uint64_t known_sectors = kSectors) {
    constexpr std::array<std::byte, kSectorBytes> kNothing{};
    judge_->end(begin(OpKind::kRead, sector, known_sectors), Errc::kIo, kNothing);
  }
};

TEST_F(CheckedHandle, RefusesReadsOnlyAfterALoss) {
  run(OpKind::kWrite, Errc::kOk);
  refuse();
  EXPECT_GE(violations(), 1u);
}

TEST_F(CheckedHandle, MayRefuseWhatALossHasBroughtBack) {
  run(OpKind::kWrite, Errc::kOk);
  judge_->server_lost_power(0);
  refuse();
  EXPECT_EQ(violations(), 0u);
}

TEST_F(CheckedHandle, IsNoExcuseForWhatWasDurable) {
  run(OpKind::kWrite, Errc::kOk);
  run(OpKind::kFlush, Errc::kOk);
  judge_->server_lost_power(0);
  refuse();
  EXPECT_EQ(violations(), 1u) << "it was flushed, and what was read is from before";
}

TEST_F(CheckedHandle, IsNoExcuseForAReadThatFailedForAnotherReason) {
  judge_->server_lost_power(0);
  run(OpKind::kRead, Errc::kIo);
  EXPECT_EQ(violations(), 1u);
}

TEST_F(CheckedHandle, MayRefuseWhatLiesBehindTheSmallestCutThatItsUserDoesNotKnow) {
  const auto resize = [this](uint64_t sectors) {
    ASSERT_TRUE(judge_->resize_begins(0, sectors));
    judge_->resize_ended(0, true);
  };
  resize(kSectors / 2);
  resize(kSectors);
  resize(kSectors / 2 + 8);
  refuse(kSectors / 2, kSectors / 2 + 8);
  EXPECT_EQ(violations(), 0u);
  refuse(kSectors / 2 - 1, kSectors / 2 + 8);
  EXPECT_EQ(violations(), 1u) << "that was never cut off";
}

/// Whose it is then each of them may hear.
TEST_F(JudgeTest, OfSeveralWritersOfWhatWasReplacedEachMayBeRefused) {
  open(1);
  judge_->file_replaced(0);
  OpDescription write;
  write.kind = OpKind::kWrite;
  write.sectors = 1;
  for (size_t client : {0u, 1u}) end(judge_->begin(client, 0, write, kSectors), Errc::kIo);
  EXPECT_EQ(violations(), 0u);
}

TEST_F(JudgeTest, TheOnlyWriterOfWhatWasReplacedIsNotRefused) {
  judge_->file_replaced(0);
  run(OpKind::kWrite, Errc::kIo);
  EXPECT_EQ(violations(), 1u);
}

TEST_F(JudgeTest, OutOfRangeIsWhatLiesBeyondThePresentEnd) {
  ASSERT_TRUE(judge_->resize_begins(0, kSectors / 4));
  run(OpKind::kWrite, Errc::kOutOfRange, kSectors / 2);
  judge_->resize_ended(0, true);
  run(OpKind::kWrite, Errc::kOutOfRange, kSectors / 2);
  ASSERT_TRUE(judge_->resize_begins(0, kSectors));
  run(OpKind::kWrite, Errc::kOutOfRange, kSectors / 2);
  judge_->resize_ended(0, true);
  run(OpKind::kWrite, Errc::kOutOfRange, kSectors / 2, kSectors / 4);
  EXPECT_EQ(violations(), 0u) << "its client has not heard of it";
  run(OpKind::kWrite, Errc::kOutOfRange, kSectors / 2);
  EXPECT_EQ(violations(), 1u);
}

/// Seed 4703: the server remembers what it had done before the session was lost, and answers that
/// also when it cannot open the disk.
TEST_F(JudgeTest, AKeptAnswerDoesNotSayThatTheDeviceWasThere) {
  const uint64_t kept = begin(OpKind::kWrite);
  ++losses_;
  world_.run_for(base::kSecond);
  end(kept, Errc::kOk);
  const uint64_t held = begin(OpKind::kWrite);
  end(held, Errc::kTimedOut);
  EXPECT_EQ(violations(), 0u);
}

TEST_F(JudgeTest, AnAnswerOfTheSessionSaysThatTheDeviceWasThere) {
  const uint64_t answered = begin(OpKind::kWrite);
  world_.run_for(base::kSecond);
  end(answered, Errc::kOk);
  const uint64_t held = begin(OpKind::kWrite);
  end(held, Errc::kTimedOut);
  EXPECT_EQ(violations(), 1u);
}

}  // namespace
}  // namespace braid::sim
