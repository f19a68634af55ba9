// When a client that was refused tries again: later each time up to a bound, and not all at once.
#include <gmock/gmock.h>

#include "trs/session_rig.h"

namespace braid::trs::testing {
namespace {

using base::kMillisecond;
using base::kSecond;

/// Any time that an attempt itself takes.
constexpr uint64_t kAttemptMaxNs = 20 * kMillisecond;

/// By seed. The client loses its server, and finds one that is full.
class BackOff : public SessionRig, public ::testing::WithParamInterface<uint64_t> {
 protected:
  BackOff() : SessionRig(1, GetParam()) {}
  void SetUp() override {
    connect();
    kill_server();
    lost_ns = world.now_ns();
    adjust_server = [](ServerOptions& options) { options.sessions_max = 0; };
    start_server();
    // An attempt is one connect, or two in a row: the second says that it begins anew.
    world.fabric().set_connect_hook([this](const base::sim::FabricAddress&) {
      const uint64_t now_ns = world.now_ns();
      if (attempts.empty() || now_ns - attempts.back() > kAttemptMaxNs) attempts.push_back(now_ns);
    });
  }
  void TearDown() override { world.fabric().set_connect_hook({}); }
  /// From one attempt to the next.
  std::vector<uint64_t> pauses(size_t count) {
    EXPECT_TRUE(until([&] { return attempts.size() > count; }, count * 7 * kSecond));
    std::vector<uint64_t> all;
    for (size_t i = 1; i < attempts.size(); ++i) all.push_back(attempts[i] - attempts[i - 1]);
    return all;
  }

  uint64_t lost_ns = 0;
  std::vector<uint64_t> attempts;
};

TEST_P(BackOff, PausesDoubleFromATenthOfASecondToFiveAndVaryByAQuarter) {
  const std::vector<uint64_t> all = pauses(40);
  ASSERT_GE(all.size(), 40u);
  EXPECT_GE(attempts[0] - lost_ns, 100 * kMillisecond);
  EXPECT_LE(attempts[0] - lost_ns, 125 * kMillisecond + kAttemptMaxNs);
  uint64_t due_ns = 200 * kMillisecond, shortest_ns = UINT64_MAX, longest_ns = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_GE(all[i], due_ns) << "pause " << i;
    EXPECT_LE(all[i], due_ns + due_ns / 4 + kAttemptMaxNs) << "pause " << i;
    if (due_ns == 5 * kSecond) {
      shortest_ns = std::min(shortest_ns, all[i]);
      longest_ns = std::max(longest_ns, all[i]);
    }
    due_ns = std::min(2 * due_ns, 5 * kSecond);
  }
  // 34 draws from 1.25 s: clients that lost one server together do not come back together.
  EXPECT_LT(shortest_ns, 5 * kSecond + 300 * kMillisecond);
  EXPECT_GT(longest_ns, 5 * kSecond + 950 * kMillisecond);
}

INSTANTIATE_TEST_SUITE_P(Seeds, BackOff, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace braid::trs::testing
