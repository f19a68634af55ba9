// The verbs contract under load in both directions: each end asks and answers at once, with more
// data than any wire holds.
#include <gtest/gtest.h>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

using ConformanceBothWays = Pair;

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceBothWays, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

// Each side waits for its own send before it sends the next: the acknowledgement has nothing to
// ride on but the long answer.
TEST_P(ConformanceBothWays, LongMessagesAcknowledgeEachOther) {
  constexpr uint32_t kBytes = 64 * 1024;
  connect();
  for (uint64_t round = 0; round < 8; ++round) {
    for (auto [from, to] : {std::pair{&client, &server}, std::pair{&server, &client}}) {
      fill(*from, 0, kBytes, static_cast<int>(round));
      ASSERT_EQ(post_recv(*to, round, kBytes, kBytes), 0);
      ASSERT_EQ(post_send(*from, work(*from, *to, IBV_WR_SEND, round, 0, kBytes)), 0);
      ASSERT_EQ(next_received(*to).byte_len, kBytes);
      ASSERT_TRUE(same(*from, 0, *to, kBytes, kBytes));
    }
    for (End* end : ends) ASSERT_EQ(next_sent(*end).status, IBV_WC_SUCCESS) << round;
  }
}

}  // namespace
}  // namespace braid::vhca::conformance
