// What one 4 KiB I/O takes while both ends poll, asserted: two messages, no system call, no
// allocation, no lock (docs/performance.md, "What a 4 KiB read costs"); and how many bytes are
// given to the device for a MiB, each of which it copies once, as its code shows. Left out are the
// empty turns of who waits: a sched_yield each.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>

#include "bench/profile/both_ends.h"
#include "bench/profile/stepper.h"
#include "trs/watched_device.h"

namespace braid::bench {
namespace {

struct Posted {
  uint64_t messages = 0;
  uint64_t bytes = 0;  // of them
};

/// Counts the work requests of all its queue pairs.
class CountingDevice final : public trs::testing::WatchedDevice {
 public:
  CountingDevice(std::unique_ptr<vhca::Device> behind, Posted& posted)
      : WatchedDevice(std::move(behind)), posted_(posted) {}

 private:
  void posts(WatchedPd&, vhca::Qp&, const vhca::SendWr& wr) override {
    ++posted_.messages;
    for (int i = 0; i < wr.num_sge; ++i) posted_.bytes += wr.sg_list[i].length;
  }
  Posted& posted_;
};

/// The messages of so many requests.
uint64_t messages_of(const BlockWork& work, uint64_t count, void (*settle)(), void (*mark)()) {
  Posted posted;
  BothEnds ends([&](std::unique_ptr<vhca::Device> device) {
    return std::make_unique<CountingDevice>(std::move(device), posted);
  });
  BothEndsJob job(ends, work);
  job.warm_up();
  settle();
  job.run(2 * work.depth);
  const uint64_t before = posted.messages;
  mark();
  job.run(count);
  mark();
  return posted.messages - before;
}

std::string name_of(const testing::TestParamInfo<BlockWork>& each) {
  return (each.param.write ? "write" : "read") + std::to_string(each.param.depth);
}

class IoMessages : public testing::TestWithParam<BlockWork> {};
INSTANTIATE_TEST_SUITE_P(Works, IoMessages,
                         testing::Values(BlockWork{}, BlockWork{.write = true},
                                         BlockWork{.depth = 32},
                                         BlockWork{.write = true, .depth = 32}),
                         name_of);

TEST_P(IoMessages, are_two) {
  constexpr uint64_t kMany = 50'000;
  const uint64_t messages = messages_of(
      GetParam(), kMany, [] {}, [] {});
  EXPECT_GE(messages, 2 * kMany);
  EXPECT_LE(messages, 2 * kMany + kMany / 100) << "there are heartbeats, too";
}

/// Reads: by the device into the client's buffer, out of the store. Writes: by it into the chunk,
/// and by the store out of that.
TEST(IoCopies, of_a_mebibyte_are_one_for_a_read_and_two_for_a_write) {
  constexpr uint64_t kMiB = 1 << 20, kMany = 64;
  for (const bool write : {false, true}) {
    Posted posted;
    BothEnds ends([&](std::unique_ptr<vhca::Device> device) {
      return std::make_unique<CountingDevice>(std::move(device), posted);
    });
    BothEndsJob job(ends, {.write = write, .block_bytes = kMiB, .depth = 8});
    job.run(8);
    const uint64_t before = posted.bytes;
    const bnbd::BlockStatistics store_before = ends.store_statistics();
    job.run(kMany);
    EXPECT_GE(posted.bytes - before, kMany * kMiB);
    EXPECT_LE(posted.bytes - before, kMany * (kMiB + 8192)) << "headers, answers and heartbeats";
    EXPECT_EQ(ends.remote().statistics().copies, 0U) << "the client's";
    const bnbd::BlockStatistics store = ends.store_statistics();
    EXPECT_EQ(store.lent - store_before.lent, write ? 0 : kMany) << "sent from where it lies";
    EXPECT_EQ(store.write_bytes - store_before.write_bytes, write ? kMany * kMiB : 0);
  }
}

class IoSteps : public testing::TestWithParam<BlockWork> {};
INSTANTIATE_TEST_SUITE_P(Works, IoSteps, testing::Values(BlockWork{}, BlockWork{.write = true}),
                         name_of);

/// So that the next test can fail.
TEST(Steps, AreSeenWhereThereAreAny) {
  std::mutex mutex;
  std::atomic<int> number{0};
  const auto steps_of = [](const std::function<void()>& work) {
    return count_steps([&work](void (*mark)()) -> uint64_t {
      work();  // what is resolved with the first call is
      mark();
      work();
      mark();
      return 2;
    });
  };
  const auto nothing = steps_of([] {});
  if (nothing.code() == base::Errc::kNotSupported) GTEST_SKIP() << nothing.error().message();
  ASSERT_TRUE(nothing.ok()) << nothing.error().message();
  const Steps& none = nothing.value();
  EXPECT_EQ(none.system_calls + none.allocations + none.mutexes, 0U);
  const auto counted = [&](const std::function<void()>& work) -> Steps {
    return steps_of(work).value();
  };
  EXPECT_GE(counted([] { delete new int; }).allocations, 2U);
  EXPECT_GE(counted([] { delete[] new int[3]; }).allocations, 2U);
  EXPECT_GE(counted([] { std::free(std::malloc(3)); }).allocations, 2U);
  EXPECT_EQ(counted([] { (void)::getppid(); }).system_calls, 1U);
  EXPECT_EQ(counted([&] { const std::lock_guard guard(mutex); }).mutexes, 1U);
  EXPECT_GE(counted([&] { ++number; }).locked, 1U);
}

/// That no other instruction locks a cache line is for optimized builds: braid-profile --steps.
TEST_P(IoSteps, have_no_system_call_no_allocation_and_no_mutex) {
  auto steps =
      count_steps([](void (*mark)()) { return messages_of(GetParam(), 1, &stop_clock, mark); });
  if (steps.code() == base::Errc::kNotSupported) GTEST_SKIP() << steps.error().message();
  ASSERT_TRUE(steps.ok()) << steps.error().message();
  EXPECT_EQ(steps->result, 2U);
  EXPECT_GT(steps->instructions, 1000U) << "it did not look";
  EXPECT_EQ(steps->system_calls, 0U);
  EXPECT_EQ(steps->allocations, 0U);
  EXPECT_EQ(steps->mutexes, 0U);
}

}  // namespace
}  // namespace braid::bench
