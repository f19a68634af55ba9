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

// Each end owes the other more data than any wire holds, and has some of its own to send.
TEST_P(ConformanceBothWays, ReadsAndWritesOfBothEndsDoNotWaitForEachOther) {
  // The buffer: source, and where data of reads lands. Simulated windows are smaller.
  const uint32_t bytes = GetParam().virtual_time ? 64 * 1024 : 400 * 1024;
  constexpr uint64_t kReads = 12;
  connect();
  for (End* end : ends) {
    fill(*end, 0, bytes, 3);
    ASSERT_EQ(post_recv(*end, 1, 2 * bytes, 64), 0);
  }
  for (auto [from, to] : {std::pair{&client, &server}, std::pair{&server, &client}}) {
    for (uint64_t i = 0; i < kReads; ++i) {
      ASSERT_EQ(post_send(*from, work(*from, *to, IBV_WR_RDMA_READ, i, bytes, bytes)), 0);
    }
    ASSERT_EQ(post_send(*from, work(*from, *to, IBV_WR_RDMA_WRITE, kReads, 0, 1000, 2 * bytes)), 0);
    ASSERT_EQ(post_send(*from, work(*from, *to, IBV_WR_SEND, kReads + 1, 0, 64)), 0);
  }
  for (End* end : ends) {
    for (uint64_t i = 0; i < kReads + 2; ++i) {
      const Wc wc = next_sent(*end);
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << i;
      ASSERT_EQ(wc.wr_id, i);
    }
    EXPECT_EQ(next_received(*end).status, IBV_WC_SUCCESS);
  }
  EXPECT_TRUE(same(client, bytes, server, 0, bytes));
  EXPECT_TRUE(same(server, bytes, client, 0, bytes));
}

}  // namespace
}  // namespace braid::vhca::conformance
