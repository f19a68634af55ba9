// The verbs contract, what the order of requests means for who looks at memory, and for who does
// not poll.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

constexpr size_t kInbox = 512 << 10;  // where the server's receives lie in its buffer

class ConformanceOrder : public Pair {
 protected:
  /// Lets everything move, but for the server, which does not poll, until its word is not 0.
  bool seen_by_server(size_t offset) {
    const auto* const word = reinterpret_cast<uint64_t*>(server.buffer.data() + offset);
    ends = {&client};
    const bool seen = run_until([word] { return __atomic_load_n(word, __ATOMIC_ACQUIRE) != 0; });
    ends = {&client, &server};
    return seen;
  }
  /// Everything moves, and nobody polls: how many completions the CQ had, or -1 if it was overrun.
  int completions_of(Cq& cq) {
    rig->settle();
    Wc wc[64];
    int count = 0;
    for (int polled = 0; (polled = cq.poll(wc)) != 0; count += polled) {
      if (polled < 0) return -1;
    }
    return count;
  }
  void expect_overrun(int side, const End& end, const Cq& cq) {
    const AsyncEvent first = next_event(side);
    EXPECT_EQ(first.type, IBV_EVENT_CQ_ERR);
    EXPECT_EQ(first.cq, &cq);
    const AsyncEvent second = next_event(side);
    EXPECT_EQ(second.type, IBV_EVENT_QP_FATAL);
    EXPECT_EQ(second.qp, end.qp.get());
    EXPECT_EQ(end.qp->query().qp_state, IBV_QPS_ERR);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceOrder, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

// --- a message and the requests behind it

// The memory of a target changes without its help, also behind a message that it has not taken.
TEST_P(ConformanceOrder, WhoSeesARequestInMemoryFindsTheMessageBeforeIt) {
  constexpr size_t kWord = 64 << 10;
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    for (const uint32_t length : {8u, 4096u, 12'000u}) {
      SCOPED_TRACE(fmt::format("opcode {}, {} bytes", static_cast<int>(opcode), length));
      connect();
      fill(client, 0, length, 1);
      fill(client, kWord, 8, 1);
      ASSERT_EQ(post_recv(server, 71, kInbox, length), 0);
      ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, length)), 0);
      SendWr behind = work(client, server, opcode, 2, kWord, 8, kWord);
      if (opcode != IBV_WR_RDMA_WRITE) {
        behind.wr.atomic = {.remote_addr = server.address(kWord),
                            .compare_add = 1,
                            .swap = 0,
                            .rkey = server.mr->rkey};
      }
      ASSERT_EQ(post_send(client, behind), 0);
      ASSERT_TRUE(seen_by_server(kWord));
      Wc received;
      ASSERT_EQ(server.recv_cq->poll({&received, 1}), 1) << "at the next poll, not some day";
      EXPECT_EQ(received.status, IBV_WC_SUCCESS);
      EXPECT_EQ(received.wr_id, 71u);
      EXPECT_TRUE(same(client, 0, server, kInbox, length));
    }
  }
}

TEST_P(ConformanceOrder, AReceiveTellsThatAllBeforeItIsInPlace) {
  connect();
  constexpr uint64_t kRounds = 40;
  constexpr uint32_t kLength = 3000;
  for (uint64_t i = 0; i < 2 * kRounds; ++i) {
    ASSERT_EQ(post_recv(server, i, kInbox + i * kLength, kLength), 0);
  }
  fill(client, 0, 2 * kLength, 1);
  for (uint64_t i = 0; i < kRounds; ++i) {
    const SendWr each[] = {
        work(client, server, IBV_WR_SEND, 3 * i, 0, kLength),
        work(client, server, IBV_WR_RDMA_WRITE, 3 * i + 1, 0, kLength, i * kLength),
        work(client, server, i % 2 == 0 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM, 3 * i + 2, 0,
             kLength, kInbox + (2 * i + 1) * kLength)};
    for (const SendWr& wr : each) ASSERT_EQ(post_send(client, wr), 0);
    for (uint64_t wr_id : {2 * i, 2 * i + 1}) {
      const Wc received = next_received(server);
      ASSERT_EQ(received.status, IBV_WC_SUCCESS);
      ASSERT_EQ(received.wr_id, wr_id);
      EXPECT_TRUE(same(client, 0, server, kInbox + wr_id * kLength, kLength)) << wr_id;
    }
    EXPECT_TRUE(same(client, 0, server, i * kLength, kLength)) << i;
    for (int k = 0; k < 3; ++k) ASSERT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
  }
}

// --- who posts and does not poll: is refused, or loses the CQ and is told

TEST_P(ConformanceOrder, SendsThatNobodyPollsForAreRefusedOrOverrunTheirCq) {
  connect({.qp = {.cap = {4, 4, 1, 1, 0}}, .cq_capacity = 4});
  int posted = 0;
  for (int error = 0; error == 0 && posted < 64; posted += error == 0 ? 1 : 0) {
    error = post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 8));
    EXPECT_TRUE(error == 0 || error == ENOMEM) << error;
    rig->settle();
  }
  const int completed = completions_of(*client.send_cq);
  if (completed >= 0) {
    EXPECT_LT(posted, 64);
    EXPECT_EQ(completed, posted);
    EXPECT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 8)), 0);
  } else {
    expect_overrun(kClient, client, *client.send_cq);
  }
}

TEST_P(ConformanceOrder, MessagesThatNobodyPollsForWaitOrOverrunTheirCq) {
  connect({}, {.cq_capacity = 4});
  constexpr int kMessages = 20;
  for (uint64_t i = 0; i < kMessages; ++i) ASSERT_EQ(post_recv(server, i, kInbox, 64), 0);
  for (uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, i, 0, 8)), 0);
  }
  const int completed = completions_of(*server.recv_cq);
  if (completed >= 0) {
    EXPECT_EQ(completed, kMessages);
    for (uint64_t i = 0; i < kMessages; ++i) EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
  } else {
    expect_overrun(kServer, server, *server.recv_cq);
  }
}

}  // namespace
}  // namespace braid::vhca::conformance
