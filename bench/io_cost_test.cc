// What one 4 KiB I/O takes while both ends poll, asserted: two messages, no system call, no
// allocation, no lock (docs/performance.md, "What a 4 KiB read costs").
#include <gtest/gtest.h>

#include "bench/profile/both_ends.h"
#include "bench/profile/stepper.h"
#include "trs/watched_device.h"

namespace braid::bench {
namespace {

/// Counts the work requests of all its queue pairs.
class CountingDevice final : public trs::testing::WatchedDevice {
 public:
  CountingDevice(std::unique_ptr<vhca::Device> behind, uint64_t& messages)
      : WatchedDevice(std::move(behind)), messages_(messages) {}

 private:
  void posts(WatchedPd&, vhca::Qp&, const vhca::SendWr&) override { ++messages_; }
  uint64_t& messages_;
};

constexpr uint64_t kWarmUp = 2000;

/// The messages of so many requests.
uint64_t messages_of(const BlockWork& work, uint64_t count, void (*mark)()) {
  uint64_t messages = 0;
  BothEnds ends([&](std::unique_ptr<vhca::Device> device) {
    return std::make_unique<CountingDevice>(std::move(device), messages);
  });
  BothEndsJob job(ends, work);
  job.run(kWarmUp);
  const uint64_t before = messages;
  mark();
  job.run(count);
  mark();
  return messages - before;
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
  const uint64_t messages = messages_of(GetParam(), kMany, [] {});
  EXPECT_GE(messages, 2 * kMany);
  EXPECT_LE(messages, 2 * kMany + kMany / 100) << "there are heartbeats, too";
}

class IoSteps : public testing::TestWithParam<BlockWork> {};
INSTANTIATE_TEST_SUITE_P(Works, IoSteps, testing::Values(BlockWork{}, BlockWork{.write = true}),
                         name_of);

/// That no other instruction locks a cache line is for optimized builds: braid-profile --steps.
TEST_P(IoSteps, have_no_system_call_no_allocation_and_no_mutex) {
  auto steps = count_steps([](void (*mark)()) { return messages_of(GetParam(), 1, mark); });
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
