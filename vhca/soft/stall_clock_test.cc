// Whoever waits for the time of a stalled send may sleep until then.
#include "vhca/soft/stall_clock.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "base/test_host.h"

namespace braid::vhca::soft {
namespace {

class Waiting final : public Stalled {
 public:
  void stall_over() override { ++calls; }
  unsigned calls = 0;
};

class StallClockTest : public testing::Test {
 protected:
  ~StallClockTest() override { clock->shut_down(); }
  /// Until nothing is left to do now.
  void settle() {
    while (reactor->turn()) {
    }
  }
  base::TestHost host;
  const std::unique_ptr<base::Reactor> reactor = std::move(*base::Reactor::create(host, {}));
  const std::shared_ptr<StallClock> clock = std::make_shared<StallClock>(*reactor);
  const uint64_t later_ns = host.clock_ns + base::kMillisecond;
  const uint64_t earlier_ns = later_ns - base::kMillisecond / 2;
  Waiting waiting;
};

// Each arming watches again. A message to the reactor that arms would wake it for ever.
TEST_F(StallClockTest, watching_for_the_same_time_again_wakes_nobody) {
  clock->watch(waiting, later_ns);
  settle();
  for (unsigned armings = 0; armings < 3; ++armings) {
    clock->watch(waiting, later_ns);
    EXPECT_TRUE(reactor->prepare_sleep()) << "it may sleep";
    EXPECT_EQ(reactor->next_deadline_ns(), later_ns);
  }
  host.clock_ns = later_ns;
  settle();
  EXPECT_EQ(waiting.calls, 1u);
}

TEST_F(StallClockTest, an_earlier_time_replaces_a_later_one) {
  clock->watch(waiting, later_ns);
  settle();
  clock->watch(waiting, earlier_ns);
  settle();
  EXPECT_EQ(reactor->next_deadline_ns(), earlier_ns);
  host.clock_ns = earlier_ns;
  settle();
  EXPECT_EQ(waiting.calls, 1u);
}

}  // namespace
}  // namespace braid::vhca::soft
