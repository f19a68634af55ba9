// The verbs contract, data path: every opcode, order, limits, errors. vhca/README.md states it.
#include <gtest/gtest.h>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

using ConformanceData = Pair;

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceData, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

// --- every opcode

TEST_P(ConformanceData, SendArrivesInTheOldestReceive) {
  connect();
  fill(client, 0, 3000, 1);
  ASSERT_EQ(post_recv(server, 71, 4096, 4096), 0);
  ASSERT_EQ(post_recv(server, 72, 8192, 4096), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 5, 0, 3000)), 0);
  const Wc received = next_received(server);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wr_id, 71u);
  EXPECT_EQ(received.byte_len, 3000u);
  EXPECT_EQ(received.qp_num, server.qp->number());
  EXPECT_EQ(received.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_TRUE(same(client, 0, server, 4096, 3000));
  const Wc sent = next_sent(client);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  EXPECT_EQ(sent.wr_id, 5u);
}

TEST_P(ConformanceData, SendWithImmediateCarriesIt) {
  connect();
  ASSERT_EQ(post_recv(server, 71, 4096, 64), 0);
  SendWr wr = work(client, server, IBV_WR_SEND_WITH_IMM, 5, 0, 16);
  wr.imm_data = htobe32(0x12345678);
  ASSERT_EQ(post_send(client, wr), 0);
  const Wc received = next_received(server);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_NE(received.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(be32toh(received.imm_data), 0x12345678u);
  EXPECT_EQ(received.byte_len, 16u);
}

TEST_P(ConformanceData, WriteChangesMemoryAndNobodyIsTold) {
  connect();
  ASSERT_EQ(post_recv(server, 71, 0, 64), 0);
  fill(client, 100, 5000, 2);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 6, 100, 5000, 777)), 0);
  const Wc sent = next_sent(client);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(same(client, 100, server, 777, 5000));
  EXPECT_EQ(server.buffer[776], std::byte{0});
  EXPECT_EQ(server.buffer[777 + 5000], std::byte{0});
  EXPECT_TRUE(quiet(server));
}

TEST_P(ConformanceData, WriteWithImmediateUsesAReceiveAndTellsTheLength) {
  connect();
  ASSERT_EQ(post_recv_without_sge(server, 71), 0);
  fill(client, 0, 4096, 3);
  SendWr wr = work(client, server, IBV_WR_RDMA_WRITE_WITH_IMM, 7, 0, 4096, 8192);
  wr.imm_data = htobe32(0xcafe);
  ASSERT_EQ(post_send(client, wr), 0);
  const Wc received = next_received(server);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.wr_id, 71u);
  EXPECT_EQ(received.byte_len, 4096u);
  EXPECT_EQ(be32toh(received.imm_data), 0xcafeu);
  EXPECT_TRUE(same(client, 0, server, 8192, 4096));
  EXPECT_EQ(next_sent(client).opcode, IBV_WC_RDMA_WRITE);
}

TEST_P(ConformanceData, ReadFetchesMemory) {
  connect();
  fill(server, 333, 70000, 4);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_READ, 8, 1000, 70000, 333)), 0);
  const Wc sent = next_sent(client);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(sent.byte_len, 70000u);
  EXPECT_TRUE(same(server, 333, client, 1000, 70000));
}

TEST_P(ConformanceData, ZeroLengthNeedsNoValidKey) {
  connect();
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    SendWr wr = work(client, server, opcode, 9, 0, 0);
    wr.num_sge = 0;
    wr.wr.rdma.rkey = 0x1234;
    ASSERT_EQ(post_send(client, wr), 0);
    EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
  }
  ASSERT_EQ(post_recv_without_sge(server, 71), 0);
  SendWr wr = work(client, server, IBV_WR_SEND, 10, 0, 0);
  wr.num_sge = 0;
  ASSERT_EQ(post_send(client, wr), 0);
  EXPECT_EQ(next_received(server).byte_len, 0u);
}

TEST_P(ConformanceData, ElementsAreGatheredAndScatteredInOrder) {
  connect({}, {.qp = {.cap = {16, 16, 4, 4, 64}}});
  fill(client, 0, 4096, 5);
  Sge out[3] = {{client.address(0), 10, client.mr->lkey},
                {client.address(500), 0, 0},  // of no length: not looked at
                {client.address(10), 90, client.mr->lkey}};
  Sge in[3] = {{server.address(8192), 33, server.mr->lkey},
               {server.address(8192 + 33), 60, server.mr->lkey},
               {server.address(8192 + 93), 1000, server.mr->lkey}};
  RecvWr recv{1, nullptr, in, 3};
  const RecvWr* bad = nullptr;
  ASSERT_EQ(server.qp->post_recv(&recv, &bad), 0);
  SendWr wr = work(client, server, IBV_WR_SEND, 2, 0, 0);
  wr.sg_list = out;
  wr.num_sge = 3;
  ASSERT_EQ(post_send(client, wr), 0);
  EXPECT_EQ(next_received(server).byte_len, 100u);
  EXPECT_TRUE(same(client, 0, server, 8192, 100));
}

class ConformanceSizes : public Pair {
 protected:
  void send_all_sizes() {
    for (const uint32_t length :
         {1u, 7u, 8u, 9u, 47u, 48u, 49u, 63u, 64u, 65u, 4095u, 4096u, 4097u, 65536u, 262144u}) {
      fill(client, 0, length, static_cast<int>(length));
      ASSERT_EQ(post_recv(server, length, 524288, 262144), 0);
      ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, length, 0, length)), 0);
      const Wc received = next_received(server);
      ASSERT_EQ(received.status, IBV_WC_SUCCESS) << length;
      ASSERT_EQ(received.byte_len, length);
      ASSERT_TRUE(same(client, 0, server, 524288, length)) << length;
      ASSERT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceSizes, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

TEST_P(ConformanceSizes, MessagesOfAllSizesArriveWhole) {
  connect();
  send_all_sizes();
}

TEST_P(ConformanceSizes, MessagesLongerThanExpectedArriveWhole) {
  connect({}, {.qp = {.longest_receive_bytes = 64}});
  send_all_sizes();
}

TEST_P(ConformanceData, BothDirectionsRunAtOnce) {
  connect();
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_EQ(post_recv(server, i, 4096, 64), 0);
    ASSERT_EQ(post_recv(client, i, 4096, 64), 0);
  }
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, i, 0, 32)), 0);
    ASSERT_EQ(post_send(server, work(server, client, IBV_WR_SEND, i, 0, 32)), 0);
  }
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(next_received(server).wr_id, i);
    EXPECT_EQ(next_received(client).wr_id, i);
    EXPECT_EQ(next_sent(server).wr_id, i);
    EXPECT_EQ(next_sent(client).wr_id, i);
  }
}

// --- inline, signalling, slots

TEST_P(ConformanceData, InlineDataIsCapturedInThePost) {
  connect();
  // No receive yet: the request waits, while its buffer is reused. No key is needed either.
  uint64_t value = 0x1122334455667788;
  Sge sge{reinterpret_cast<uint64_t>(&value), sizeof(value), 0xdead};
  SendWr wr = work(client, server, IBV_WR_SEND, 3, 0, 0);
  wr.sg_list = &sge;
  wr.send_flags |= IBV_SEND_INLINE;
  ASSERT_EQ(post_send(client, wr), 0);
  value = 0;
  rig->settle();
  ASSERT_EQ(post_recv(server, 1, 4096, 64), 0);
  EXPECT_EQ(next_received(server).byte_len, 8u);
  std::memcpy(&value, server.buffer.data() + 4096, sizeof(value));
  EXPECT_EQ(value, 0x1122334455667788u);
}

TEST_P(ConformanceData, InlineBeyondTheLimitAndInlineReadAreRefused) {
  connect();
  SendWr wr = work(client, server, IBV_WR_RDMA_WRITE, 3, 0, 65);
  wr.send_flags |= IBV_SEND_INLINE;
  EXPECT_EQ(post_send(client, wr), EINVAL);
  wr = work(client, server, IBV_WR_RDMA_READ, 3, 0, 8);
  wr.send_flags |= IBV_SEND_INLINE;
  EXPECT_EQ(post_send(client, wr), EINVAL);
  EXPECT_TRUE(quiet(client));
  EXPECT_EQ(state_of(client), IBV_QPS_RTS);
}

TEST_P(ConformanceData, UnsignalledWorkMakesNoCompletionAndItsSlotComesBackWithTheNext) {
  connect({.qp = {.cap = {4, 4, 1, 1, 0}}});
  SendWr wr = work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 8);
  wr.send_flags = 0;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(post_send(client, wr), 0);
  EXPECT_TRUE(quiet(client));
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr_id = 2;
  ASSERT_EQ(post_send(client, wr), 0);
  EXPECT_EQ(next_sent(client).wr_id, 2u);
  // Four more fit, the fifth has no slot: nothing signalled gives any back.
  wr.send_flags = 0;
  for (int i = 0; i < 4; ++i) ASSERT_EQ(post_send(client, wr), 0);
  EXPECT_TRUE(quiet(client));
  EXPECT_EQ(post_send(client, wr), ENOMEM);
}

TEST_P(ConformanceData, SignalAllSignalsAll) {
  connect({.qp = {.signal_all = true}});
  SendWr wr = work(client, server, IBV_WR_RDMA_WRITE, 41, 0, 8);
  wr.send_flags = 0;
  ASSERT_EQ(post_send(client, wr), 0);
  EXPECT_EQ(next_sent(client).wr_id, 41u);
}

// --- chains and overflow

TEST_P(ConformanceData, AChainStopsAtItsFirstBadRequest) {
  connect();
  SendWr wr[3] = {work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 8),
                  work(client, server, IBV_WR_RDMA_WRITE, 2, 0, 8),
                  work(client, server, IBV_WR_RDMA_WRITE, 3, 0, 8)};
  wr[0].next = &wr[1];
  wr[1].next = &wr[2];
  wr[1].num_sge = 5;
  const SendWr* bad = nullptr;
  EXPECT_EQ(client.qp->post_send(wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr[1]);
  EXPECT_EQ(next_sent(client).wr_id, 1u);
  EXPECT_TRUE(quiet(client));

  RecvWr recv[2] = {{1, &recv[1], nullptr, 0}, {2, nullptr, nullptr, 9}};
  const RecvWr* bad_recv = nullptr;
  EXPECT_EQ(server.qp->post_recv(recv, &bad_recv), EINVAL);
  EXPECT_EQ(bad_recv, &recv[1]);
}

TEST_P(ConformanceData, OpcodesThatAreNotThereAreRefused) {
  connect();
  EXPECT_EQ(post_send(client, work(client, server, IBV_WR_TSO, 1, 0, 8)), EOPNOTSUPP);
  const auto unknown = static_cast<ibv_wr_opcode>(13);  // between those there are
  EXPECT_EQ(post_send(client, work(client, server, unknown, 1, 0, 8)), EINVAL);
}

TEST_P(ConformanceData, AFullSendQueueRefusesAndForgetsNothing) {
  connect({.qp = {.cap = {8, 8, 1, 1, 0}}});
  // Sends without a receive stay in the queue.
  for (uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, i, 0, 8)), 0);
  }
  const auto send = [&](uint64_t i) {
    return post_send(client, work(client, server, IBV_WR_SEND, i, 0, 8));
  };
  const uint64_t held = fill_up(8, send);
  EXPECT_EQ(send(held), ENOMEM);
  for (uint64_t i = 0; i < held; ++i) ASSERT_EQ(post_recv(server, i, 4096, 64), 0);
  for (uint64_t i = 0; i < held; ++i) EXPECT_EQ(next_sent(client).wr_id, i);
  EXPECT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 9, 0, 8)), 0);
}

TEST_P(ConformanceData, AFullReceiveQueueRefuses) {
  connect({}, {.qp = {.cap = {8, 8, 1, 1, 0}}});
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(post_recv(server, i, 0, 64), 0);
  const uint64_t held = fill_up(8, [&](uint64_t i) { return post_recv(server, i, 0, 64); });
  EXPECT_EQ(post_recv(server, held, 0, 64), ENOMEM);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), 0);
  EXPECT_EQ(next_received(server).wr_id, 0u);
  EXPECT_EQ(post_recv(server, 8, 0, 64), 0);
}

TEST_P(ConformanceData, AnOverrunCompletionQueueSaysSo) {
  connect({.cq_capacity = 4});
  for (uint64_t i = 0; i < 6; ++i) {
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, i, 0, 8)), 0);
  }
  rig->settle();
  Wc wc;
  EXPECT_EQ(client.send_cq->poll({&wc, 1}), -1);
  EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_ERR);
}

}  // namespace
}  // namespace braid::vhca::conformance
