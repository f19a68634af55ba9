// Filters on a remote device with several reactors: each of them is filtered, and what filters
// share is of the device.
#include <gmock/gmock.h>

#include <deque>

#include "bnbd/filters.h"
#include "bnbd/test_client_threads.h"
#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using base::kMillisecond;
using test::Io;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<FilterSpec> parse(const std::vector<std::string>& texts) {
  std::vector<FilterSpec> specs;
  for (const std::string& text : texts) specs.push_back(*parse_filter(text));
  return specs;
}

class RemoteFilters : public test::ServedRig {
 protected:
  void put_on(const std::vector<std::string>& texts) {
    client_reactors = 3;
    client = &add_client();
    remote = &open(*client);
    auto made =
        await(*client, FilterStack::create(client->home(), *remote, parse(texts), "my-disk"));
    ASSERT_TRUE(made.ok()) << made.error().message();
    filters = std::move(*made);
    queues = filters->top().queues();
    ASSERT_EQ(queues.size(), 3U);
    EXPECT_EQ(queues.front().device, &filters->top());
    EXPECT_EQ(queues.back().reactor, client->reactors.back().get());
  }
  void submit_by(size_t queue, Io& io) {
    queues[queue].reactor->post([to = queues[queue].device, &io] { to->submit(io.request); });
  }
  Errc run_by(size_t queue, Io&& io) {
    submit_by(queue, io);
    return wait(io);
  }
  FilterCounters counters(size_t filter = 0) { return filters->filters().at(filter)->counters(); }

  test::ClientNode* client = nullptr;
  RemoteDevice* remote = nullptr;
  std::unique_ptr<FilterStack> filters;
  std::vector<BlockQueue> queues;
};

TEST_F(RemoteFilters, EachReactorIsDelayed) {
  put_on({"delay:read=5ms"});
  for (size_t queue = 0; queue < 3; ++queue) {
    const uint64_t begin_ns = world.now_ns();
    EXPECT_EQ(run_by(queue, Io(BlockOp::kRead, 0, 4096)), Errc::kOk);
    EXPECT_GE(world.now_ns() - begin_ns, 5 * kMillisecond);
    EXPECT_EQ(queues[queue].device->statistics().reads, 1U);
  }
  EXPECT_EQ(counters().held, 3U);
  EXPECT_EQ(filters->top().statistics().reads, 3U);
}

TEST_F(RemoteFilters, ARateAndACountAreOfTheWholeDevice) {
  put_on({"error:every=10", "rate:ops=1000,burst=0s"});
  std::deque<Io> ios;
  const uint64_t begin_ns = world.now_ns();
  for (size_t i = 0; i < 100; ++i)
    submit_by(i % 3, ios.emplace_back(BlockOp::kRead, i * 4096, 4096));
  int failed = 0;
  for (Io& io : ios) failed += wait(io) == Errc::kIo ? 1 : 0;
  EXPECT_EQ(failed, 10);
  EXPECT_GT(world.now_ns() - begin_ns, 88 * kMillisecond);
  EXPECT_LT(world.now_ns() - begin_ns, 95 * kMillisecond);
  EXPECT_EQ(filters->top().statistics().errors, 10U);
}

TEST_F(RemoteFilters, WhatOneReactorWroteAnotherVerifies) {
  put_on({"checksum"});
  EXPECT_EQ(run_by(0, Io(BlockOp::kWrite, 0, 64 << 10, 5)), Errc::kOk);
  EXPECT_EQ(run_by(1, Io(BlockOp::kWrite, 4096, 4096, 6)), Errc::kOk);
  EXPECT_EQ(run_by(2, Io(BlockOp::kRead, 0, 64 << 10)), Errc::kOk);
  EXPECT_EQ(counters().verified, 16U);
  // Another client's write stands in for a disk that changes by itself.
  test::ClientNode& other = add_client("other");
  RemoteDevice& same = open(other, "disk.img", wire::AccessMode::kMigration);
  EXPECT_EQ(write(other, same, 8192, 512, 9), Errc::kOk);
  EXPECT_EQ(run_by(1, Io(BlockOp::kRead, 0, 64 << 10)), Errc::kIo);
  EXPECT_TRUE(until([&] { return !filters->explain().empty(); }));
  EXPECT_THAT(filters->explain(),
              ElementsAre(HasSubstr("checksum of 'my-disk', block 2 (offset 8192)")));
  EXPECT_GT(log->lines, 0U);
}

TEST_F(RemoteFilters, ALostPathIsADelayAndNoMismatch) {
  put_on({"checksum", "delay:write=1ms"});
  std::deque<Io> ios;
  for (size_t i = 0; i < 30; ++i)
    submit_by(i % 3, ios.emplace_back(BlockOp::kWrite, i * 4096, 4096, static_cast<int>(i)));
  world.run_for(kMillisecond);
  kill_server();
  world.run_for(50 * kMillisecond);
  start_server();
  for (Io& io : ios) EXPECT_EQ(wait(io), Errc::kOk);
  for (size_t i = 0; i < 30; ++i)
    EXPECT_EQ(run_by((i + 1) % 3, Io(BlockOp::kRead, i * 4096, 4096)), Errc::kOk);
  EXPECT_EQ(counters().verified, 30U);
  EXPECT_THAT(filters->explain(), Each(HasSubstr("delay")));
}

/// A flush that waits in a filter is of the moment at which its user asked for it.
class HeldFlush : public RemoteFilters {
 protected:
  /// Is submitted before a write that is then lost, and speaks for another one before it.
  void ask_before_a_loss(Io& flush) {
    EXPECT_EQ(run_by(0, Io(BlockOp::kWrite, 0, 4096, 1)), Errc::kOk);
    submit_by(0, flush);
    EXPECT_EQ(run_by(0, Io(BlockOp::kWrite, 4096, 4096, 2)), Errc::kOk);
    restart_machine();
    EXPECT_TRUE(until([&] { return remote->status().reopened == 1; }));
    EXPECT_FALSE(flush.status.has_value());
  }
};

TEST_F(HeldFlush, ThatFailsIsNoWordAboutWhatWasWrittenMeanwhile) {
  put_on({"delay:flush=10s,write-zeroes=10s"});
  Io flush(BlockOp::kFlush);
  ask_before_a_loss(flush);
  EXPECT_EQ(wait(flush), Errc::kIo);
  EXPECT_EQ(run_by(1, Io(BlockOp::kFlush)), Errc::kIo) << "nobody was told of the second write";
  EXPECT_EQ(run_by(1, Io(BlockOp::kFlush)), Errc::kOk);
}

TEST_F(HeldFlush, FailsThoughAnotherHasToldOfTheLoss) {
  put_on({"delay:write-zeroes=10s"});
  Io commit(BlockOp::kWriteZeroes, 8192, 4096);
  commit.request.preflush = true;
  ask_before_a_loss(commit);
  EXPECT_EQ(run_by(1, Io(BlockOp::kFlush)), Errc::kIo);
  EXPECT_EQ(run_by(1, Io(BlockOp::kFlush)), Errc::kOk);
  EXPECT_EQ(wait(commit), Errc::kIo) << "its first write is lost, which it was to make durable";
  EXPECT_EQ(run_by(1, Io(BlockOp::kFlush)), Errc::kOk);
}

/// As a node unmaps by force.
TEST_F(RemoteFilters, ClosingEndsWhatFiltersHold) {
  put_on({"checksum", "rate:ops=1,burst=0s", "delay:1h"});
  std::deque<Io> ios;
  for (size_t i = 0; i < 200; ++i)
    submit_by(i % 3, ios.emplace_back(BlockOp::kWrite, i * 4096, 4096, 1));
  world.run_for(kMillisecond);
  EXPECT_GE(counters(1).holding, 197U);
  const uint64_t begin_ns = world.now_ns();
  kill_server();
  await(*client, filters->let_go());
  await(*client, remote->close());
  await(*client, filters->drained());
  for (Io& io : ios) EXPECT_EQ(wait(io), Errc::kCanceled);
  EXPECT_LT(world.now_ns() - begin_ns, base::kSecond);
  EXPECT_EQ(run_by(2, Io(BlockOp::kFlush)), Errc::kCanceled);
  await(*client, filters->drained());
}

TEST_F(RemoteFilters, AResizeReachesTheTop) {
  put_on({"delay:flush=1ms", "checksum"});
  remote->watch([&] { filters->size_changed(); });
  EXPECT_EQ(run_by(1, Io(BlockOp::kWrite, 2 << 20, 4096, 1)), Errc::kOk);
  const auto resize = [&](uint64_t bytes) {
    server_node->home().post([this, bytes] {
      server_node->home().spawn([](ExportServer& of, uint64_t size) -> base::Task<void> {
        (void)co_await of.resize("disk.img", size, true);
      }(*server, bytes));
    });
    return until([&] { return remote->info().size_bytes == bytes; });
  };
  ASSERT_TRUE(resize(1 << 20));
  EXPECT_EQ(filters->top().info().size_bytes, 1U << 20);
  ASSERT_TRUE(resize(4 << 20));
  EXPECT_EQ(run_by(2, Io(BlockOp::kRead, 2 << 20, 4096)), Errc::kOk);
  EXPECT_EQ(counters(1).unknown, 1U);
  EXPECT_THAT(filters->explain(), IsEmpty());
}

/// On threads of their own; under the thread sanitizer.
class FilterThreads : public test::ClientThreadsRig {
 protected:
  FilterThreads() : ClientThreadsRig(2) {}
  base::Task<void> make(std::vector<FilterSpec> specs) {
    auto made = co_await FilterStack::create(home(), *disk_, std::move(specs), "disk");
    EXPECT_TRUE(made.ok());
    filters_ = std::move(made).value();
  }
  base::Task<void> end() {
    co_await filters_->let_go();
    co_await filters_->drained();
  }
  void TearDown() override {
    await([&] { return end(); });
    at_home([&] { filters_.reset(); });
  }
  std::unique_ptr<FilterStack> filters_;
};

/// Writes and reads a few blocks that others write, too, and one of its own.
struct Hand {
  Hand(const BlockQueue& to, const Region& region, size_t number)
      : queue(to), own((number + 8) * 4096) {
    request.buffer = {&region, region.data() + number * 8192};
    request.context = this;
    request.done = [](BlockRequest& r, Errc status) {
      static_cast<Hand*>(r.context)->next(status);
    };
  }
  void next(Errc status) {
    failed += status == Errc::kOk ? 0 : 1;
    if (round++ == 400) return ended.set_value();
    request.op = round % 2 == 0 ? BlockOp::kRead : BlockOp::kWrite;
    request.offset_bytes = round / 2 % 2 == 0 ? own : round / 4 % 7 * 4096;
    request.length_bytes = round / 2 % 2 == 0 ? 4096 : 8192;
    if (request.op == BlockOp::kWrite)
      std::memset(request.buffer.address, static_cast<int>(round), 8192);
    queue.device->submit(request);
  }
  const BlockQueue queue;
  const uint64_t own;
  BlockRequest request;
  uint64_t round = 0;
  uint64_t failed = 0;
  std::promise<void> ended;
};

TEST_F(FilterThreads, WritesThatOverlapAreNeverTakenForDamage) {
  open("disk.img");
  await([&] {
    return make(parse({"checksum", "rate:ops=100000", "delay:write=1us-50us,percent=20"}));
  });
  std::vector<BlockQueue> queues;
  std::unique_ptr<Region> region;
  at_home([&] {
    queues = filters_->top().queues();
    region = std::move(filters_->top().create_region(1 << 20)).value();
  });
  std::deque<Hand> hands;
  for (size_t i = 0; i < 8; ++i) hands.emplace_back(queues[i % 2], *region, i);
  for (Hand& hand : hands) hand.queue.reactor->post([&hand] { hand.next(Errc::kOk); });
  for (Hand& hand : hands) hand.ended.get_future().wait();
  for (Hand& hand : hands) EXPECT_EQ(hand.failed, 0U);
  const FilterCounters counted = filters_->filters()[0]->counters();
  EXPECT_EQ(counted.requests, 3200U);
  EXPECT_EQ(counted.mismatches, 0U);
  EXPECT_GE(counted.verified, 700U) << "those of its own, at least";
}

}  // namespace
}  // namespace braid::bnbd
