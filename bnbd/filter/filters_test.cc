// Delay, error and rate on a memory disk in virtual time; stacks of them.
#include <gmock/gmock.h>

#include <deque>

#include "bnbd/filter/test_filters.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::FilterTest;
using test::Io;
using testing::HasSubstr;

TEST_F(FilterTest, DelayHoldsWhatIsNamedForItsTimeAndNothingElse) {
  put_on({"delay:read=200us,write=1ms-3ms"});
  const uint64_t write_ns = time_of(Io(BlockOp::kWrite, 0, 4096, 7));
  EXPECT_GE(write_ns, kMs);
  EXPECT_LT(write_ns, 4 * kMs);
  const uint64_t read_ns = time_of(Io(BlockOp::kRead, 0, 4096));
  EXPECT_GE(read_ns, 200 * base::kMicrosecond);
  EXPECT_LT(read_ns, kMs);
  EXPECT_LT(time_of(Io(BlockOp::kFlush)), 100 * base::kMicrosecond);
  const FilterCounters counted = counters();
  EXPECT_EQ(counted.requests, 3U);
  EXPECT_EQ(counted.held, 2U);
  EXPECT_GE(counted.held_ns, 1200 * base::kMicrosecond);
  EXPECT_EQ(counted.holding, 0U);
  EXPECT_THAT(filters->explain(), testing::ElementsAre(HasSubstr("has held 2 of 3")));
  EXPECT_EQ(filters->top().statistics().reads, 1U);
}

TEST_F(FilterTest, DelayedRequestsOfOneTimeGoInTheirOrderOthersByTheirTime) {
  put_on({"delay:read=1ms-50ms,write=1ms"});
  std::deque<Io> ios;
  for (size_t i = 0; i < 200; ++i) submit(ios.emplace_back(BlockOp::kRead, i * 4096, 4096));
  settle();
  EXPECT_GT(counters().holding, 150U);
  EXPECT_LT(disk->submitted, 50U) << "they wait before they are submitted";
  EXPECT_THAT(filters->explain(), testing::ElementsAre(HasSubstr("holds")));
  for (Io& io : ios) EXPECT_EQ(process.wait(io), Errc::kOk);
  EXPECT_EQ(disk->submitted, 200U);
  EXPECT_EQ(counters().held, 200U);
  EXPECT_EQ(counters().holding, 0U);
}

TEST_F(FilterTest, DelayByPercentAndRangeLeavesTheOthersAlone) {
  put_on({"delay:1ms,percent=25,from=1M,to=2M"});
  for (int i = 0; i < 400; ++i)
    EXPECT_EQ(read(kMiB + static_cast<uint64_t>(i) * 512, 512), Errc::kOk);
  EXPECT_NEAR(static_cast<double>(counters().held), 100, 40);
  const uint64_t held = counters().held;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(read(kMiB - 4096, 4096), Errc::kOk);
    EXPECT_EQ(read(2 * kMiB, 4096), Errc::kOk);
    EXPECT_EQ(run(Io(BlockOp::kFlush)), Errc::kOk);
  }
  EXPECT_EQ(counters().held, held) << "what lies beside the range, and flushes";
}

TEST_F(FilterTest, ErrorFailsEveryNthWithoutTouchingTheDisk) {
  put_on({"error:write,every=3,errno=ENOSPC"});
  std::vector<Errc> ends;
  for (int i = 0; i < 9; ++i) ends.push_back(write(0, 4096, i));
  EXPECT_EQ(ends, (std::vector<Errc>{Errc::kOk, Errc::kOk, Errc::kNoSpace, Errc::kOk, Errc::kOk,
                                     Errc::kNoSpace, Errc::kOk, Errc::kOk, Errc::kNoSpace}));
  Io look(BlockOp::kRead, 0, 4096);
  EXPECT_EQ(run(look), Errc::kOk);
  EXPECT_TRUE(look.all(7)) << "the ninth write was not to be done";
  EXPECT_EQ(counters().failed, 3U);
  EXPECT_EQ(filters->top().statistics().errors, 3U);
  EXPECT_EQ(filters->top().statistics().writes, 6U);
  EXPECT_THAT(filters->explain(), testing::ElementsAre(HasSubstr("has failed 3 of 10")));
}

TEST_F(FilterTest, ErrorEndsOutsideSubmitAndCountsDown) {
  put_on({"error:count=2"});
  Io io(BlockOp::kFlush);
  on_reactor([&] {
    filters->top().submit(io.request);
    EXPECT_FALSE(io.status.has_value()) << "inside submit()";
  });
  EXPECT_EQ(process.wait(io), Errc::kIo);
  EXPECT_EQ(read(0, 512), Errc::kIo);
  EXPECT_EQ(read(0, 512), Errc::kOk);
  EXPECT_EQ(counters().failed, 2U);
}

TEST_F(FilterTest, ErrorByPercentAndRange) {
  put_on({"error:read,percent=10,from=1M,to=2M"});
  int failed = 0;
  for (int i = 0; i < 500; ++i) failed += read(kMiB, 512) == Errc::kIo ? 1 : 0;
  EXPECT_NEAR(failed, 50, 30);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(read(0, 512), Errc::kOk);
    EXPECT_EQ(write(kMiB, 512, 1), Errc::kOk);
  }
}

/// So many requests of so many bytes, submitted at once; how long they take together.
class RateTest : public FilterTest {
 protected:
  uint64_t time_of_many(size_t count, BlockOp op, uint64_t bytes) {
    std::deque<Io> ios;
    const uint64_t begin_ns = world.now_ns();
    for (size_t i = 0; i < count; ++i) submit(ios.emplace_back(op, 0, bytes));
    for (Io& io : ios) EXPECT_EQ(process.wait(io), Errc::kOk);
    return world.now_ns() - begin_ns;
  }
};

TEST_F(RateTest, LimitsBytesASecond) {
  put_on({"rate:bytes=1M,burst=100ms"});
  // 4 MiB: a tenth of a second is free, and the last one does not wait for its own time.
  const uint64_t took_ns = time_of_many(64, BlockOp::kWrite, 64 << 10);
  EXPECT_GT(took_ns, 3800 * kMs);
  EXPECT_LT(took_ns, 4000 * kMs);
  EXPECT_GT(counters().held, 60U);
  EXPECT_GT(counters().held_ns, 60 * base::kSecond);
  EXPECT_EQ(counters().holding, 0U);
}

TEST_F(RateTest, LimitsOperationsOfADirectionOnly) {
  put_on({"rate:write-ops=100,burst=0s"});
  EXPECT_LT(time_of_many(50, BlockOp::kRead, 4096), kMs);
  EXPECT_LT(time_of_many(50, BlockOp::kFlush, 0), kMs);
  const uint64_t took_ns = time_of_many(50, BlockOp::kWrite, 4096);
  EXPECT_GT(took_ns, 485 * kMs);
  EXPECT_LT(took_ns, 500 * kMs);
  EXPECT_GE(time_of_many(10, BlockOp::kWriteZeroes, 4096), 95 * kMs) << "what is no read";
}

TEST_F(RateTest, KeepsWhatWasNotUsedForTheBurst) {
  put_on({"rate:ops=1000,burst=20ms"});
  time_of_many(100, BlockOp::kRead, 512);
  world.run_for(base::kSecond);
  const uint64_t took_ns = time_of_many(40, BlockOp::kRead, 512);
  EXPECT_GT(took_ns, 18 * kMs) << "20 are free, 20 are not";
  EXPECT_LT(took_ns, 21 * kMs);
}

TEST_F(RateTest, RefusesWhatTheDiskRefusesAtOnce) {
  put_on({"rate:bytes=4K,burst=0s"});
  EXPECT_EQ(write(0, 4096, 1), Errc::kOk);
  const uint64_t begin_ns = world.now_ns();
  EXPECT_EQ(read(1, 512), Errc::kInvalid);
  EXPECT_EQ(read(64 * kMiB, 512), Errc::kOutOfRange);
  EXPECT_LT(world.now_ns() - begin_ns, kMs);
}

TEST_F(FilterTest, LettingGoEndsAllDelays) {
  put_on({"delay:1h", "rate:ops=1,burst=0s", "delay:read=1m"});
  std::deque<Io> ios;
  for (int i = 0; i < 20; ++i) submit(ios.emplace_back(BlockOp::kRead, 0, 512));
  settle();
  EXPECT_EQ(counters(0).holding, 20U);
  const uint64_t begin_ns = world.now_ns();
  process.await(filters->let_go());
  for (Io& io : ios) EXPECT_EQ(process.wait(io), Errc::kOk);
  EXPECT_EQ(read(0, 512), Errc::kOk);
  process.await(filters->drained());
  EXPECT_LT(world.now_ns() - begin_ns, 10 * kMs);
}

TEST_F(FilterTest, StackedFiltersEachDoTheirs) {
  put_on({"error:read,every=2", "delay:read=1ms"});
  EXPECT_EQ(filters->filters()[0]->text(), "error:read,every=2");
  EXPECT_GE(time_of(Io(BlockOp::kRead, 0, 512)), kMs);
  const uint64_t begin_ns = world.now_ns();
  EXPECT_EQ(read(0, 512), Errc::kIo);
  EXPECT_LT(world.now_ns() - begin_ns, kMs) << "the one nearest to the user failed it";
  EXPECT_EQ(counters(1).requests, 1U);
}

TEST_F(FilterTest, PassesOnWhatTheDiskIs) {
  put_on({"delay:flush=1ms", "error:secure-erase", "rate:ops=1000"});
  BlockDevice& top = filters->top();
  EXPECT_EQ(top.info().identity, disk->info().identity);
  EXPECT_EQ(top.lendable_memory().data(), disk->lendable_memory().data());
  EXPECT_TRUE(top.queues().empty());
  auto region = top.create_region(8192);
  ASSERT_TRUE(region.ok());
  Io lent(BlockOp::kRead, 0, 4096);
  lent.request.may_lend = true;
  EXPECT_EQ(run(lent), Errc::kOk);
  EXPECT_EQ(lent.request.lent, disk->lendable_memory().data());
  EXPECT_EQ(process.await(top.resize(kMiB)).code(), Errc::kNotSupported);
  EXPECT_FALSE(*process.await(top.refresh_size()));
  disk->change_info().size_bytes = kMiB;
  EXPECT_EQ(top.info().size_bytes, kMiB);
  EXPECT_EQ(try_put_on({}).code(), Errc::kInvalid);
}

}  // namespace
}  // namespace braid::bnbd
