// The checksum filter on a memory disk that a test can damage, hold up and have fail.
#include <gmock/gmock.h>

#include <deque>

#include "bnbd/filter/checksum_table.h"
#include "bnbd/filter/test_filters.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::FilterTest;
using test::Io;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ChecksumTest : public FilterTest {
 protected:
  /// What lies on the disk, behind the filter's back.
  std::byte& at(uint64_t offset) { return disk->lendable_memory()[offset]; }
  /// A read whose answer waits at the disk, while other requests go on.
  void submit_held(Io& io) {
    disk->holding = true;
    submit(io);
    settle();
    disk->holding = false;
  }
};

TEST_F(ChecksumTest, VerifiesWhatWasWrittenThroughIt) {
  put_on({"checksum"});
  EXPECT_EQ(write(8192, 64 << 10, 7), Errc::kOk);
  Io back(BlockOp::kRead, 8192, 64 << 10);
  EXPECT_EQ(run(back), Errc::kOk);
  EXPECT_TRUE(back.all(7));
  EXPECT_EQ(counters().verified, 16U);
  EXPECT_EQ(read(0, 8192), Errc::kOk);
  EXPECT_EQ(counters().unknown, 2U) << "never written: nothing is known, nothing is trusted";
  EXPECT_THAT(filters->explain(), IsEmpty());
  EXPECT_EQ(counters().memory_bytes, 1U << 20);
}

TEST_F(ChecksumTest, AWrongBlockFailsTheReadAndIsNamed) {
  put_on({"checksum"});
  EXPECT_EQ(write(0, 256 << 10, 3), Errc::kOk);
  at(5 * 4096 + 100) ^= std::byte{1};
  EXPECT_EQ(read(0, 64 << 10), Errc::kIo);
  EXPECT_EQ(read(6 * 4096, 4096), Errc::kOk);
  settle();
  EXPECT_THAT(filters->explain(),
              ElementsAre(testing::ContainsRegex("checksum of 'disk', block 5 \\(offset 20480\\): "
                                                 "want [0-9a-f]{12}, got [0-9a-f]{12}")));
  EXPECT_EQ(counters().mismatches, 1U);
  EXPECT_EQ(counters().failed, 1U);
  EXPECT_EQ(counters().verified, 16U);
  EXPECT_EQ(filters->top().statistics().errors, 1U);
  EXPECT_EQ(write(5 * 4096, 4096, 4), Errc::kOk);
  EXPECT_EQ(read(0, 64 << 10), Errc::kOk) << "written again";
}

TEST_F(ChecksumTest, ReadsAreNotLent) {
  put_on({"checksum"});
  EXPECT_TRUE(filters->top().lendable_memory().empty());
  EXPECT_EQ(write(0, 4096, 1), Errc::kOk);
  Io io(BlockOp::kRead, 0, 4096);
  io.request.may_lend = true;
  EXPECT_EQ(run(io), Errc::kOk);
  EXPECT_EQ(io.request.lent, nullptr);
  EXPECT_TRUE(io.all(1));
  io.status.reset();
  io.request.buffer.address = nullptr;
  EXPECT_EQ(run(io), Errc::kInvalid);
}

TEST_F(ChecksumTest, PartsOfABlockAreNeitherKnownNorCompared) {
  put_on({"checksum"});
  EXPECT_EQ(write(0, 8192, 1), Errc::kOk);
  at(512) ^= std::byte{1};
  EXPECT_EQ(read(512, 4096 - 512), Errc::kOk) << "a part cannot be compared";
  EXPECT_EQ(write(0, 512, 2), Errc::kOk);
  EXPECT_EQ(read(0, 4096), Errc::kOk) << "a write of a part leaves nothing known";
  EXPECT_EQ(counters().unknown, 1U);
  EXPECT_EQ(counters().partial, 2U);
  at(4096) ^= std::byte{1};
  EXPECT_EQ(read(2048, 6144), Errc::kIo) << "the whole one is";
}

TEST_F(ChecksumTest, SmallerBlocksKnowSmallerWrites) {
  put_on({"checksum:block=512"});
  EXPECT_EQ(write(512, 512, 2), Errc::kOk);
  at(600) ^= std::byte{1};
  EXPECT_EQ(read(0, 4096), Errc::kIo);
  EXPECT_EQ(counters().unknown, 7U);
  settle();
  EXPECT_THAT(filters->explain(), ElementsAre(HasSubstr("block 1 (offset 512)")));
}

TEST_F(ChecksumTest, AFailedWriteLeavesItsBlocksUnknown) {
  put_on({"checksum"});
  EXPECT_EQ(write(0, 8192, 1), Errc::kOk);
  disk->fails = Errc::kIo;
  EXPECT_EQ(write(0, 4096, 2), Errc::kIo);
  disk->fails = Errc::kOk;
  at(0) = std::byte{2};  // half done
  EXPECT_EQ(read(0, 8192), Errc::kOk);
  EXPECT_EQ(counters().unknown, 1U);
  EXPECT_EQ(counters().verified, 1U);
}

TEST_F(ChecksumTest, OverlappingWritesLeaveTheirBlocksUnknown) {
  put_on({"checksum"});
  Io first(BlockOp::kWrite, 0, 8192, 1), second(BlockOp::kWrite, 4096, 8192, 2);
  disk->holding = true;
  submit(first);
  submit(second);
  settle();
  on_reactor([&] { disk->release(Errc::kOk, /*last_first=*/true); });
  EXPECT_EQ(process.wait(first), Errc::kOk);
  EXPECT_EQ(process.wait(second), Errc::kOk);
  EXPECT_EQ(read(0, 12288), Errc::kOk) << "the one submitted first was done last";
  EXPECT_EQ(counters().verified, 2U);
  EXPECT_EQ(counters().unknown, 1U);
  EXPECT_EQ(write(4096, 4096, 3), Errc::kOk);
  at(4096) ^= std::byte{1};
  EXPECT_EQ(read(4096, 4096), Errc::kIo) << "known again by the next write";
}

TEST_F(ChecksumTest, AReadBesideAWriteIsNotCompared) {
  put_on({"checksum"});
  EXPECT_EQ(write(0, 4096, 1), Errc::kOk);
  Io slow(BlockOp::kRead, 0, 4096);
  submit_held(slow);
  EXPECT_EQ(write(0, 4096, 2), Errc::kOk);
  EXPECT_EQ(write(0, 4096, 1), Errc::kOk);
  at(0) = std::byte{2};  // as if it had been read between both writes
  on_reactor([&] { disk->release(); });
  EXPECT_EQ(process.wait(slow), Errc::kOk) << "the same checksum, but another version";
  EXPECT_EQ(counters().changing, 1U);
}

TEST_F(ChecksumTest, WriteZeroesAreKnownDiscardsAreNot) {
  put_on({"checksum"});
  EXPECT_EQ(write(0, 16384, 1), Errc::kOk);
  EXPECT_EQ(run(Io(BlockOp::kWriteZeroes, 0, 8192)), Errc::kOk);
  EXPECT_EQ(run(Io(BlockOp::kDiscard, 8192, 8192)), Errc::kOk);
  EXPECT_EQ(read(0, 16384), Errc::kOk);
  EXPECT_EQ(counters().verified, 2U);
  EXPECT_EQ(counters().unknown, 2U);
  at(4096) = std::byte{1};
  EXPECT_EQ(read(4096, 4096), Errc::kIo);
}

TEST_F(ChecksumTest, LearnsOnlyWhenTold) {
  put_on({"checksum:learn"});
  EXPECT_EQ(read(0, 8192), Errc::kOk);
  EXPECT_EQ(counters().learned, 2U);
  at(0) = std::byte{1};
  EXPECT_EQ(read(0, 4096), Errc::kIo);
  EXPECT_EQ(read(4096, 4096), Errc::kOk);
  EXPECT_EQ(counters().verified, 1U);
}

TEST_F(ChecksumTest, ForgetsWhatOthersMayHaveWritten) {
  put_on({"checksum"});
  EXPECT_EQ(write(0, 8192, 1), Errc::kOk);
  Io slow(BlockOp::kRead, 0, 4096);
  submit_held(slow);
  on_reactor([&] { filters->forget(); });
  at(0) = std::byte{9};
  on_reactor([&] { disk->release(); });
  EXPECT_EQ(process.wait(slow), Errc::kOk);
  EXPECT_EQ(read(0, 8192), Errc::kOk);
  EXPECT_EQ(counters().unknown, 2U);
}

TEST_F(ChecksumTest, WhatIsCutOffIsForgotten) {
  put_on({"checksum"});
  EXPECT_EQ(write(kMiB - 4096, 8192, 1), Errc::kOk);
  const auto resize = [&](uint64_t bytes) {
    on_reactor([&] {
      disk->change_info().size_bytes = bytes;
      filters->size_changed();
    });
    EXPECT_TRUE(process.await(filters->follow_size()).ok());
    EXPECT_EQ(filters->top().info().size_bytes, bytes);
  };
  resize(kMiB);
  EXPECT_EQ(read(kMiB, 4096), Errc::kOutOfRange);
  resize(4 * kMiB);
  at(kMiB) = std::byte{0};
  EXPECT_EQ(read(kMiB, 4096), Errc::kOk) << "what was cut off comes back as zeroes";
  EXPECT_EQ(counters().unknown, 1U);
  EXPECT_EQ(read(kMiB - 4096, 4096), Errc::kOk);
  EXPECT_EQ(counters().verified, 1U);
}

TEST_F(ChecksumTest, RequestsBeyondItsSlotsWaitForTheirTurn) {
  disk->change_info().queue_depth = 4;
  put_on({"checksum"});
  std::deque<Io> ios;
  disk->holding = true;
  for (int i = 0; i < 40; ++i)
    submit(ios.emplace_back(BlockOp::kWrite, static_cast<uint64_t>(i) * 4096, 4096, i));
  settle();
  EXPECT_EQ(disk->submitted, 4U);
  on_reactor([&] { disk->release(); });
  for (Io& io : ios) EXPECT_EQ(process.wait(io), Errc::kOk);
  EXPECT_EQ(read(0, 40 * 4096), Errc::kOk);
  EXPECT_EQ(counters().verified, 40U);
  process.await(filters->drained());
}

TEST_F(ChecksumTest, RefusesABlockBelowTheDisksOwn) {
  disk->change_info().logical_block_bytes = 4096;
  const base::Status put = try_put_on({"checksum:block=512"});
  ASSERT_FALSE(put.ok());
  EXPECT_THAT(put.error().message(),
              HasSubstr("filter 'checksum:block=512': block=512: the device"));
}

TEST_F(ChecksumTest, UnderOtherFiltersAnErrorIsNoMismatch) {
  put_on({"checksum", "error:write,every=2", "delay:read=1ms"});
  EXPECT_EQ(write(0, 4096, 1), Errc::kOk);
  EXPECT_EQ(write(0, 4096, 2), Errc::kIo);
  EXPECT_EQ(read(0, 4096), Errc::kOk);
  EXPECT_EQ(counters().unknown, 1U);
}

/// 96 MiB: with blocks of 512 bytes, more than one chunk of the table.
class BigChecksumTest : public FilterTest {
 protected:
  BigChecksumTest() : FilterTest(96 * kMiB) {}
};

TEST_F(BigChecksumTest, ChecksWhatItsMemoryCoversAndSaysSo) {
  put_on({"checksum:block=512,memory=1M"});
  EXPECT_EQ(filters->top().info().size_bytes, 96 * kMiB);
  EXPECT_EQ(write(64 * kMiB - 512, 1024, 1), Errc::kOk);
  EXPECT_EQ(read(64 * kMiB - 512, 1024), Errc::kOk);
  EXPECT_EQ(counters().verified, 1U);
  EXPECT_THAT(filters->explain(), ElementsAre(HasSubstr("the first 67108864 bytes only")));
}

TEST_F(BigChecksumTest, GrowsWithItsDeviceAndShowsNoMoreThanItCovers) {
  const auto become = [&](uint64_t bytes) {
    disk->change_info().size_bytes = bytes;
    filters->size_changed();
  };
  disk->change_info().size_bytes = 48 * kMiB;
  put_on({"checksum:block=512"});
  EXPECT_EQ(counters().memory_bytes, 1U << 20);
  on_reactor([&] { become(96 * kMiB); });
  EXPECT_EQ(filters->top().info().size_bytes, 64 * kMiB);
  EXPECT_TRUE(process.await(filters->follow_size()).ok());
  EXPECT_EQ(filters->top().info().size_bytes, 96 * kMiB);
  EXPECT_EQ(write(80 * kMiB, 4096, 1), Errc::kOk);
  EXPECT_EQ(read(80 * kMiB, 4096), Errc::kOk);
  EXPECT_EQ(counters().verified, 8U);
  on_reactor([&] {  // chunks behind the one of the cut are marked at once, and swept later
    become(48 * kMiB);
    become(96 * kMiB);
  });
  EXPECT_EQ(read(80 * kMiB, 4096), Errc::kOk);
  settle();
  EXPECT_EQ(read(80 * kMiB, 4096), Errc::kOk);
  EXPECT_EQ(counters().verified, 8U);
  EXPECT_EQ(counters().unknown + counters().changing, 16U);
  EXPECT_GE(counters().unknown, 8U) << "it has been swept";
}

TEST(ChecksumTableTest, AWriteThatIsForgottenHasItsEndAllTheSame) {
  filter::ChecksumTable table(4096, 1 << 20);
  ASSERT_TRUE(table.grow(1 << 20).ok());
  table.begin(3, 77);
  table.cut(0);
  table.begin(3, 78);
  table.end(3, true);
  EXPECT_FALSE(filter::ChecksumTable::is_known(table.look(3)));
  table.end(3, true);
  EXPECT_TRUE(filter::ChecksumTable::is_unknown(table.look(3)));
  table.begin(3, 79);
  table.end(3, true);
  EXPECT_EQ(filter::ChecksumTable::sum_of(table.look(3)), 79U);
}

}  // namespace
}  // namespace braid::bnbd
