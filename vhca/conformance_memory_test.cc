// The verbs contract, memory whose registration ends while work requests name it: they fail in
// their turn, and nothing is read from it or written to it any more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

constexpr size_t kBriefly = 512 << 10;  // where the memory lies that is registered briefly
constexpr uint32_t kBytes = 400'000;    // of it

class ConformanceMemory : public Pair {
 protected:
  static std::unique_ptr<Mr> register_briefly(End& end) {
    return std::move(*end.pd->reg_mr(end.buffer.data() + kBriefly, kBytes, kAllAccess));
  }
  static SendWr with_key(const SendWr& wr, uint32_t lkey) {
    wr.sg_list->lkey = lkey;
    return wr;
  }
  int post_recv_briefly(uint64_t wr_id, uint32_t lkey) {
    Sge sge{server.address(kBriefly), kBytes, lkey};
    return post(server, {.wr_id = wr_id, .next = nullptr, .sg_list = &sge, .num_sge = 1});
  }
  static bool untouched(const End& end, size_t offset, size_t length) {
    const auto part = end.buffer.subspan(offset, length);
    return std::all_of(part.begin(), part.end(),
                       [](std::byte each) { return each == std::byte{}; });
  }
  /// A receive whose registration has ended when the message comes.
  void receive_too_late(const EndOptions& server_options, uint32_t length) {
    connect({}, server_options);
    std::unique_ptr<Mr> mr = register_briefly(server);
    ASSERT_EQ(post_recv_briefly(71, mr->lkey), 0);
    rig->settle();
    mr.reset();
    fill(client, 0, length, 1);
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, length)), 0);
    EXPECT_EQ(next_sent(client).status, IBV_WC_REM_OP_ERR);
    const Wc received = next_received(server);
    EXPECT_EQ(received.status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(received.wr_id, 71u);
    EXPECT_EQ(state_of(server), IBV_QPS_ERR);
    EXPECT_EQ(state_of(client), IBV_QPS_ERR);
    EXPECT_TRUE(untouched(server, kBriefly, length));
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceMemory, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

// --- at the requester

TEST_P(ConformanceMemory, ASendThatWaitsForAReceiveFailsWhenItsMemoryGoes) {
  for (const uint32_t length : {8u, 4096u, 100'000u}) {
    SCOPED_TRACE(length);
    connect();
    std::unique_ptr<Mr> mr = register_briefly(client);
    const SendWr wr = work(client, server, IBV_WR_SEND, 1, kBriefly, length);
    ASSERT_EQ(post_send(client, with_key(wr, mr->lkey)), 0);
    EXPECT_TRUE(quiet(client));
    mr.reset();
    const Wc failed = next_sent(client);
    EXPECT_EQ(failed.status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(failed.wr_id, 1u);
    EXPECT_EQ(state_of(client), IBV_QPS_ERR);
  }
}

TEST_P(ConformanceMemory, WhatWaitsBehindAMessageFailsInItsTurn) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    SCOPED_TRACE(opcode);
    const bool reads = opcode == IBV_WR_RDMA_READ;
    connect();
    std::unique_ptr<Mr> mr = register_briefly(client);
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 64)), 0);
    const SendWr wr = work(client, server, opcode, 2, kBriefly, 4096, 0);
    ASSERT_EQ(post_send(client, with_key(wr, mr->lkey)), 0);
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 3, 0, 8)), 0);
    if (reads) {
      fill(server, 0, 4096, 1);
    } else {
      fill(client, kBriefly, 4096, 1);
    }
    EXPECT_TRUE(quiet(client));
    mr.reset();
    EXPECT_TRUE(quiet(client)) << "it has not failed yet, and what had been sent of it was refused";
    ASSERT_EQ(post_recv(server, 71, 64 << 10, 64), 0);
    const Wc first = next_sent(client);
    EXPECT_EQ(first.wr_id, 1u);
    EXPECT_EQ(first.status, IBV_WC_SUCCESS);
    const Wc second = next_sent(client);
    EXPECT_EQ(second.wr_id, 2u);
    EXPECT_EQ(second.status, IBV_WC_LOC_PROT_ERR);
    expect_flush(client, *client.send_cq, {3});
    EXPECT_TRUE(reads ? untouched(client, kBriefly, 4096) : untouched(server, 0, 4096));
  }
}

// Devices that have executed it in the post are done before the memory goes.
TEST_P(ConformanceMemory, AnAnswerDoesNotLandInMemoryThatWent) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    for (const uint32_t length : {8u, 4096u, 300'000u}) {
      if (opcode != IBV_WR_RDMA_READ && length != 8) continue;
      SCOPED_TRACE(fmt::format("opcode {}, {} bytes", static_cast<int>(opcode), length));
      connect();
      fill(server, 0, length, 1);
      std::unique_ptr<Mr> mr = register_briefly(client);
      SendWr wr = with_key(work(client, server, opcode, 1, kBriefly, length), mr->lkey);
      if (opcode != IBV_WR_RDMA_READ) {
        wr.wr.atomic = {
            .remote_addr = server.address(), .compare_add = 1, .swap = 0, .rkey = server.mr->rkey};
      }
      ASSERT_EQ(post_send(client, wr), 0);
      mr.reset();
      const auto place = client.buffer.subspan(kBriefly, length);
      const std::vector<std::byte> before(place.begin(), place.end());
      const Wc done = next_sent(client);
      EXPECT_TRUE(std::equal(place.begin(), place.end(), before.begin()));
      if (done.status == IBV_WC_SUCCESS) {
        EXPECT_EQ(std::memcmp(before.data() + 1, server.buffer.data() + 1, length - 1), 0);
        continue;
      }
      EXPECT_EQ(done.status, IBV_WC_LOC_PROT_ERR);
      EXPECT_EQ(state_of(client), IBV_QPS_ERR);
    }
  }
}

// --- at the responder

TEST_P(ConformanceMemory, AReceiveWhoseMemoryWentFailsBothEnds) {
  for (const uint32_t length : {8u, 4096u, 100'000u}) {
    SCOPED_TRACE(length);
    receive_too_late({}, length);
  }
}

TEST_P(ConformanceMemory, ASharedReceiveWhoseMemoryWentFailsItsMessage) {
  EndOptions options;
  options.srq = SrqOptions{};
  receive_too_late(options, 4096);
}

TEST_P(ConformanceMemory, AReceiveOfSeveralRegistrationsWhoseOneMemoryWentIsNotFilled) {
  connect({}, {.qp = {.cap = {8, 8, 1, 2, 0}}});
  std::unique_ptr<Mr> mr = register_briefly(server);
  Sge sges[2] = {{server.address(0), 64, server.mr->lkey},
                 {server.address(kBriefly), kBytes, mr->lkey}};
  ASSERT_EQ(post(server, {.wr_id = 71, .next = nullptr, .sg_list = sges, .num_sge = 2}), 0);
  rig->settle();
  mr.reset();
  fill(client, 0, 4096, 1);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 4096)), 0);
  EXPECT_EQ(next_received(server).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(next_sent(client).status, IBV_WC_REM_OP_ERR);
  EXPECT_TRUE(untouched(server, kBriefly, kBytes));
}

}  // namespace
}  // namespace braid::vhca::conformance
