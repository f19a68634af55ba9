// The judge excuses what its reasons explain, and nothing behind them.
#include "tests/sim/judge.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

namespace braid::sim {
namespace {

using base::Errc;

constexpr uint64_t kSectors = 64;

/// One client that writes one file.
class JudgeTest : public ::testing::Test {
 protected:
  JudgeTest() {
    judge_ = std::make_unique<Judge>(
        world_, plan_, base::Logger(base::make_null_sink(), "judge", base::LogLevel::kWarning));
    open();
  }
  static Plan plan() {
    Plan plan;
    plan.servers.resize(1);
    plan.clients.resize(1);
    plan.devices.resize(1);
    plan.devices[0].sectors = kSectors;
    return plan;
  }
  void open() {
    judge_->asks(0, 0, Wish::kWrite);
    pass();
    Judge::Asked asked;
    asked.losses = [] { return uint64_t{0}; };
    asked.ways = [this] { return ways_; };
    judge_->opened(0, 0, Wish::kWrite, std::move(asked));
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
  /// Sector 0 has what the operation of that id wrote.
  void read_first_as(uint64_t writer) {
    std::array<std::byte, kSectorBytes> data;
    write_stamp(data, {1, 0, writer});
    judge_->end(begin(OpKind::kRead), Errc::kOk, data);
  }
  size_t violations() const { return judge_->violations().count(); }

  base::sim::SimWorld world_{{}};
  const Plan plan_ = plan();
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

}  // namespace
}  // namespace braid::sim
