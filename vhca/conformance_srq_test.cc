// The verbs contract, shared receive queues: whose receive a message gets, what an empty queue
// means, what a QP leaves behind, limits.
#include <gtest/gtest.h>

#include <cerrno>
#include <numeric>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

constexpr size_t kSrqInbox = 512 << 10;  // where the server's receives lie in its buffer

class ConformanceSrq : public Pair {
 protected:
  static EndOptions with_srq(uint32_t max_wr = 64, uint32_t max_sge = 1) {
    EndOptions options;
    options.srq = {.max_wr = max_wr, .max_sge = max_sge};
    return options;
  }
  static ConnectParameters rnr_retries(uint8_t count) {
    ConnectParameters parameters;
    parameters.rnr_retry_count = count;
    return parameters;
  }
  /// Two clients at one SRQ of the server; its QPs and the SRQ are of one PD.
  void connect_two(const EndOptions& server_options, const ConnectParameters& parameters = {}) {
    connect({}, server_options, parameters);
    EndOptions shared;
    shared.qp.srq = server.srq.get();
    shared.qp_pd = server.pd.get();
    client_b = make_end(kClient);
    server_b = make_end(kServer, shared);
    connect_ends(client_b, server_b, parameters);
    ends.insert(ends.end(), {&client_b, &server_b});
  }
  int send(End& from, uint64_t wr_id, uint32_t length) {
    return post_send(from, work(from, server, IBV_WR_SEND, wr_id, 0, length));
  }
  base::Status set_limit(uint32_t limit) {
    SrqAttr attr{};
    attr.srq_limit = limit;
    return server.srq->modify(attr, IBV_SRQ_LIMIT);
  }
  base::Status set_max_wr(uint32_t max_wr) {
    SrqAttr attr{};
    attr.max_wr = max_wr;
    return server.srq->modify(attr, IBV_SRQ_MAX_WR);
  }

  End client_b, server_b;
};

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceSrq, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

// --- whose receive

TEST_P(ConformanceSrq, EachMessageTakesTheOldestReceive) {
  connect({}, with_srq());
  const uint32_t lengths[] = {8, 48, 49, 3000, 100'000, 0};
  for (uint64_t i = 0; i < std::size(lengths); ++i) {
    ASSERT_EQ(post_recv(server, 70 + i, kSrqInbox, 128 << 10), 0);
  }
  for (uint64_t i = 0; i < std::size(lengths); ++i) {
    fill(client, 0, lengths[i], static_cast<int>(i));
    ASSERT_EQ(send(client, i, lengths[i]), 0);
    const Wc received = next_received(server);
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.wr_id, 70 + i);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.byte_len, lengths[i]);
    EXPECT_EQ(received.qp_num, server.qp->number());
    EXPECT_TRUE(same(client, 0, server, kSrqInbox, lengths[i])) << lengths[i];
    const Wc sent = next_sent(client);
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent.wr_id, i);
  }
  EXPECT_TRUE(quiet(server));
}

TEST_P(ConformanceSrq, AStreamOfMessagesGoesThroughFewReceives) {
  connect({}, with_srq(3));
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(post_recv(server, i, kSrqInbox + i * 64, 64), 0);
  constexpr uint64_t kMessages = 300;
  uint64_t posted = 0;
  for (uint64_t i = 0; i < kMessages; ++i) {
    for (; posted < kMessages && posted < i + 20; ++posted) {
      SendWr wr = work(client, server, IBV_WR_SEND_WITH_IMM, posted, 0, 8);
      wr.imm_data = static_cast<uint32_t>(posted);
      ASSERT_EQ(post_send(client, wr), 0);
    }
    const Wc received = next_received(server);
    ASSERT_EQ(received.status, IBV_WC_SUCCESS);
    ASSERT_EQ(received.imm_data, i);
    ASSERT_EQ(received.wr_id, i % 3);
    ASSERT_EQ(post_recv(server, i % 3, kSrqInbox + i % 3 * 64, 64), 0);
    ASSERT_EQ(next_sent(client).wr_id, i);
  }
  EXPECT_TRUE(quiet(server));
}

TEST_P(ConformanceSrq, QpsShareTheReceives) {
  connect_two(with_srq());
  for (uint64_t i = 0; i < 40; ++i) ASSERT_EQ(post_recv(server, i, kSrqInbox, 64), 0);
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(send(client, i, 8), 0);
    ASSERT_EQ(send(client_b, i, 8), 0);
  }
  std::vector<uint64_t> taken;
  for (const auto& [from, at] : {std::pair{&client, &server}, std::pair{&client_b, &server_b}}) {
    for (uint64_t i = 0; i < 20; ++i) {
      const Wc wc = next_received(*at);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      EXPECT_EQ(wc.qp_num, at->qp->number());
      taken.push_back(wc.wr_id);
      EXPECT_EQ(next_sent(*from).wr_id, i);
    }
  }
  std::sort(taken.begin(), taken.end());
  std::vector<uint64_t> all(40);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(taken, all) << "each receive once";
}

TEST_P(ConformanceSrq, AnIdleQpHoldsNoReceives) {
  connect_two(with_srq());
  ASSERT_EQ(post_recv(server, 1, kSrqInbox, 64), 0);
  ASSERT_EQ(send(client, 1, 8), 0);
  EXPECT_EQ(next_received(server).wr_id, 1u);
  for (uint64_t i = 2; i < 6; ++i) {
    ASSERT_EQ(post_recv(server, i, kSrqInbox, 64), 0);
    ASSERT_EQ(send(client_b, i, 8), 0);
    EXPECT_EQ(next_received(server_b).wr_id, i);
  }
}

TEST_P(ConformanceSrq, AWriteWithImmediateTakesOneReceive) {
  connect({}, with_srq());
  fill(client, 0, 4096, 3);
  ASSERT_EQ(post_recv_without_sge(server, 71), 0);
  SendWr wr = work(client, server, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 4096, 8192);
  wr.imm_data = 55;
  ASSERT_EQ(post_send(client, wr), 0);
  const Wc wc = next_received(server);
  EXPECT_EQ(wc.wr_id, 71u);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.imm_data, 55u);
  EXPECT_EQ(wc.byte_len, 4096u);
  EXPECT_TRUE(same(client, 0, server, 8192, 4096));
  EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
}

TEST_P(ConformanceSrq, RequestsWithoutReceiveNeedNobodyAtThePeer) {
  connect({}, with_srq());
  fill(client, 0, 64, 3);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 64, 8192)), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_READ, 2, 512, 64, 8192)), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same(client, 0, client, 512, 64));
}

// --- none left

TEST_P(ConformanceSrq, AnEmptyQueueIsReceiverNotReady) {
  connect_two(with_srq(), rnr_retries(0));
  ASSERT_EQ(send(client, 1, 8), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_RNR_RETRY_EXC_ERR);
  ASSERT_EQ(post_recv(server, 71, kSrqInbox, 64), 0);
  EXPECT_TRUE(quiet(server)) << "a message that failed was received";
  ASSERT_EQ(send(client_b, 2, 8), 0);
  EXPECT_EQ(next_received(server_b).wr_id, 71u);
}

TEST_P(ConformanceSrq, RnrRetriesLastAsManyTimers) {
  connect({}, with_srq(), rnr_retries(3));
  const uint64_t start_ns = rig->now_ns();
  ASSERT_EQ(send(client, 1, 8), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_GE(rig->now_ns() - start_ns, 3 * kRnrTimerNs);
  if (GetParam().virtual_time) {
    EXPECT_LT(rig->now_ns() - start_ns, 4 * kRnrTimerNs);
  }
}

TEST_P(ConformanceSrq, RnrRetriesAreCountedAnewForEachMessage) {
  connect({}, with_srq(), rnr_retries(2));
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(send(client, i, 8), 0);
    const uint64_t until_ns = rig->now_ns() + kRnrTimerNs / 2;
    run_until([&] { return rig->now_ns() >= until_ns; });
    ASSERT_EQ(post_recv(server, i, kSrqInbox, 64), 0);
    ASSERT_EQ(next_sent(client).status, IBV_WC_SUCCESS) << i;
  }
}

TEST_P(ConformanceSrq, NothingOvertakesAMessageThatWaitsForAReceive) {
  connect({}, with_srq());
  fill(client, 0, 64, 9);
  ASSERT_EQ(send(client, 1, 64), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 2, 0, 64, 8192)), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE_WITH_IMM, 3, 0, 64, 16384)),
            0);
  EXPECT_TRUE(quiet(client));
  EXPECT_EQ(server.buffer[8192], std::byte{0}) << "a write overtook a send";
  ASSERT_EQ(post_recv(server, 71, kSrqInbox, 64), 0);
  EXPECT_EQ(next_sent(client).wr_id, 1u);
  EXPECT_EQ(next_sent(client).wr_id, 2u);
  EXPECT_TRUE(quiet(client));
  EXPECT_EQ(server.buffer[16384], std::byte{0}) << "a write with immediate came before a receive";
  ASSERT_EQ(post_recv(server, 72, kSrqInbox, 64), 0);
  EXPECT_EQ(next_sent(client).wr_id, 3u);
  EXPECT_EQ(next_received(server).wr_id, 71u);
  EXPECT_EQ(next_received(server).wr_id, 72u);
}

TEST_P(ConformanceSrq, AReceiveThatComesLateWakesAStalledSender) {
  connect({}, with_srq());
  for (uint64_t i = 0; i < 10; ++i) ASSERT_EQ(send(client, i, i % 2 == 0 ? 8 : 40'000), 0);
  EXPECT_TRUE(quiet(client));
  for (uint64_t i = 0; i < 10; ++i) {
    ASSERT_EQ(post_recv(server, i, kSrqInbox, 64 << 10), 0);
    EXPECT_EQ(next_received(server).wr_id, i);
    EXPECT_EQ(next_sent(client).wr_id, i);
  }
}

// --- receives that do not fit

TEST_P(ConformanceSrq, TheLengthIsThatOfTheReceiveTaken) {
  connect_two(with_srq());
  ASSERT_EQ(post_recv(server, 71, kSrqInbox, 64), 0);
  ASSERT_EQ(post_recv(server, 72, kSrqInbox, 8), 0);
  ASSERT_EQ(post_recv(server, 73, kSrqInbox, 64), 0);
  ASSERT_EQ(send(client, 1, 32), 0);
  ASSERT_EQ(send(client, 2, 32), 0);
  ASSERT_EQ(send(client, 3, 32), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_received(server).wr_id, 71u);
  EXPECT_EQ(next_sent(client).status, IBV_WC_REM_INV_REQ_ERR);
  const Wc short_one = next_received(server);
  EXPECT_EQ(short_one.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(short_one.wr_id, 72u);
  expect_flush(client, *client.send_cq, {3});
  ASSERT_EQ(send(client_b, 4, 32), 0);
  EXPECT_EQ(next_received(server_b).wr_id, 73u) << "the QP that failed took no more";
}

TEST_P(ConformanceSrq, AReceiveThatMayNotBeWrittenFailsItsMessage) {
  connect({}, with_srq());
  Sge sge{server.address(kSrqInbox), 64, server.mr->lkey ^ (1u << 30)};
  ASSERT_EQ(post(server, RecvWr{71, nullptr, &sge, 1}), 0);
  ASSERT_EQ(send(client, 1, 32), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_REM_OP_ERR);
  const Wc wc = next_received(server);
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(wc.wr_id, 71u);
}

TEST_P(ConformanceSrq, ReceivesAreOfTheProtectionDomainOfTheQueue) {
  connect({}, with_srq());
  auto other_pd = std::move(*rig->device(kServer).alloc_pd());
  auto other_mr = std::move(*other_pd->reg_mr(server.buffer.data(), 64, kAllAccess));
  auto srq = std::move(*other_pd->create_srq({.td = server.td.get()}));
  EndOptions options;
  options.qp.srq = srq.get();
  client_b = make_end(kClient);
  server_b = make_end(kServer, options);
  connect_ends(client_b, server_b);
  ends.insert(ends.end(), {&client_b, &server_b});
  Sge sge{server.address(), 64, other_mr->lkey};
  const RecvWr good{71, nullptr, &sge, 1};
  const RecvWr* bad = nullptr;
  ASSERT_EQ(srq->post_recv(&good, &bad), 0);
  Sge foreign{server_b.address(), 64, server_b.mr->lkey};
  const RecvWr wrong{72, nullptr, &foreign, 1};
  ASSERT_EQ(srq->post_recv(&wrong, &bad), 0);
  ASSERT_EQ(send(client_b, 1, 32), 0);
  ASSERT_EQ(send(client_b, 2, 32), 0);
  EXPECT_EQ(next_received(server_b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_received(server_b).status, IBV_WC_LOC_PROT_ERR);
  ends = {&client, &server};
  server_b = End{};
}

TEST_P(ConformanceSrq, ARefusedWriteTakesNoReceive) {
  connect_two(with_srq());
  ASSERT_EQ(post_recv(server, 71, kSrqInbox, 64), 0);
  SendWr wr = work(client, server, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 64, 8192);
  wr.wr.rdma.rkey ^= 1u << 31;
  ASSERT_EQ(post_send(client, wr), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(state_of(server), IBV_QPS_ERR);
  ASSERT_EQ(send(client_b, 2, 32), 0);
  EXPECT_EQ(next_received(server_b).wr_id, 71u);
}

// --- the end of a QP

TEST_P(ConformanceSrq, AQpInErrorLeavesTheReceivesAndTells) {
  connect_two(with_srq());
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(post_recv(server, i, kSrqInbox, 64), 0);
  ASSERT_EQ(send(client, 1, 32), 0);
  EXPECT_EQ(next_received(server).wr_id, 0u);
  EXPECT_TRUE(no_events());
  server.connection->disconnect();
  const AsyncEvent event = next_event(kServer);
  EXPECT_EQ(event.type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event.qp, server.qp.get());
  EXPECT_TRUE(quiet(server)) << "receives of the SRQ were flushed";
  EXPECT_TRUE(no_events()) << "once";
  for (uint64_t i = 1; i < 3; ++i) {
    ASSERT_EQ(send(client_b, i, 32), 0);
    EXPECT_EQ(next_received(server_b).wr_id, i);
  }
}

TEST_P(ConformanceSrq, ADestroyedQpLeavesTheReceives) {
  connect_two(with_srq());
  ASSERT_EQ(post_recv(server, 71, kSrqInbox, 64), 0);
  ASSERT_EQ(send(client, 1, 32), 0);
  // The message may or may not be taken by now; its receive is not lost with it.
  server.connection.reset();
  server.qp.reset();
  ASSERT_EQ(post_recv(server, 72, kSrqInbox, 64), 0);
  ASSERT_EQ(send(client_b, 2, 32), 0);
  const uint64_t taken = next_received(server_b).wr_id;
  EXPECT_TRUE(taken == 71 || taken == 72) << taken;
  EXPECT_TRUE(no_events());
}

TEST_P(ConformanceSrq, AQpWithSharedReceivesTakesNoneOfItsOwn) {
  connect({}, with_srq());
  Sge sge{server.address(), 64, server.mr->lkey};
  const RecvWr wr{1, nullptr, &sge, 1};
  const RecvWr* bad = nullptr;
  EXPECT_EQ(server.qp->post_recv(&wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  EXPECT_EQ(server.qp->query().cap.max_recv_wr, 0u);
}

// --- limits

TEST_P(ConformanceSrq, TheLimitTellsOncePerArming) {
  connect({}, with_srq());
  for (uint64_t i = 0; i < 6; ++i) ASSERT_EQ(post_recv(server, i, kSrqInbox, 64), 0);
  ASSERT_TRUE(set_limit(4).ok());
  EXPECT_EQ(server.srq->query().srq_limit, 4u);
  ASSERT_EQ(send(client, 0, 8), 0);
  ASSERT_EQ(send(client, 1, 8), 0);
  EXPECT_EQ(next_received(server).wr_id, 0u);
  EXPECT_EQ(next_received(server).wr_id, 1u);
  EXPECT_TRUE(no_events()) << "four are left";
  ASSERT_EQ(send(client, 2, 8), 0);
  const AsyncEvent event = next_event(kServer);
  EXPECT_EQ(event.type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.srq, server.srq.get());
  EXPECT_EQ(event.qp, nullptr);
  EXPECT_EQ(server.srq->query().srq_limit, 0u);
  ASSERT_EQ(send(client, 3, 8), 0);
  EXPECT_EQ(next_received(server).wr_id, 2u);
  EXPECT_EQ(next_received(server).wr_id, 3u);
  EXPECT_TRUE(no_events()) << "not armed again";
  ASSERT_TRUE(set_limit(2).ok());
  EXPECT_TRUE(no_events());
  ASSERT_EQ(send(client, 4, 8), 0);
  EXPECT_EQ(next_event(kServer).type, IBV_EVENT_SRQ_LIMIT_REACHED);
}

TEST_P(ConformanceSrq, ALimitThatIsReachedAlreadyTellsAtOnce) {
  connect({}, with_srq());
  ASSERT_EQ(post_recv(server, 1, kSrqInbox, 64), 0);
  ASSERT_TRUE(set_limit(2).ok());
  EXPECT_EQ(next_event(kServer).type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_TRUE(no_events());
}

// An armed limit is never above what is posted, and so below what the queue may shrink to.
TEST_P(ConformanceSrq, ItDoesNotShrinkBelowItsLimit) {
  connect({}, with_srq(16));
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(post_recv(server, i, kSrqInbox, 64), 0);
  ASSERT_TRUE(set_limit(6).ok());
  EXPECT_EQ(set_max_wr(5).code(), base::Errc::kInvalid);
  EXPECT_EQ(server.srq->query().srq_limit, 6u);
  EXPECT_TRUE(no_events());
  for (uint64_t i = 0; i < 2; ++i) {
    ASSERT_EQ(send(client, i, 8), 0);
    EXPECT_EQ(next_received(server).wr_id, i);
  }
  EXPECT_EQ(set_max_wr(5).code(), base::Errc::kInvalid) << "six are posted";
  EXPECT_EQ(server.srq->query().srq_limit, 6u);
  ASSERT_EQ(send(client, 2, 8), 0);
  EXPECT_EQ(next_received(server).wr_id, 2u);
  EXPECT_EQ(next_event(kServer).type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_TRUE(set_max_wr(5).ok());
  EXPECT_EQ(server.srq->query().srq_limit, 0u);
}

TEST_P(ConformanceSrq, ItHoldsWhatItWasMadeFor) {
  connect({}, with_srq(4, 2));
  EXPECT_EQ(server.srq->query().max_wr, 4u);
  EXPECT_EQ(server.srq->query().max_sge, 2u);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post_recv(server, i, kSrqInbox, 64), 0);
  EXPECT_EQ(post_recv(server, 4, kSrqInbox, 64), ENOMEM);
  Sge sges[3] = {};
  EXPECT_EQ(post(server, RecvWr{5, nullptr, sges, 3}), EINVAL);
  EXPECT_EQ(set_max_wr(3).code(), base::Errc::kInvalid);
  EXPECT_EQ(set_max_wr(1u << 30).code(), base::Errc::kInvalid);
  EXPECT_EQ(set_limit(5).code(), base::Errc::kInvalid);
  EXPECT_EQ(server.srq->modify({}, 1 << 5).code(), base::Errc::kInvalid);
  ASSERT_TRUE(set_max_wr(7).ok());
  EXPECT_EQ(server.srq->query().max_wr, 7u);
  for (uint64_t i = 4; i < 7; ++i) ASSERT_EQ(post_recv(server, i, kSrqInbox, 64), 0);
  EXPECT_EQ(post_recv(server, 7, kSrqInbox, 64), ENOMEM);
  for (uint64_t i = 0; i < 7; ++i) {
    ASSERT_EQ(send(client, i, 8), 0);
    EXPECT_EQ(next_received(server).wr_id, i);
  }
  ASSERT_TRUE(set_max_wr(2).ok());
}

TEST_P(ConformanceSrq, OptionsAreChecked) {
  connect();
  EXPECT_EQ(server.pd->create_srq({.max_wr = 0}).code(), base::Errc::kInvalid);
  EXPECT_EQ(server.pd->create_srq({.max_wr = 1u << 30}).code(), base::Errc::kInvalid);
  EXPECT_EQ(server.pd->create_srq({.max_sge = 1000}).code(), base::Errc::kInvalid);
  const DeviceAttr attr = rig->device(kServer).query();
  EXPECT_GE(attr.max_srq, 1);
  EXPECT_GE(attr.max_srq_wr, 1024);
  EXPECT_GE(attr.max_srq_sge, 1);
}

// --- sleep

TEST_P(ConformanceSrq, AMessageWakesWhoSleeps) {
  EndOptions options = with_srq();
  options.with_channel = true;
  for (const bool solicited_only : {false, true}) {
    client = End{};
    server = End{};
    connect({}, options);
    ASSERT_EQ(post_recv(server, 71, kSrqInbox, 64 << 10), 0);
    server.recv_cq->arm(solicited_only);
    SendWr wr = work(client, server, IBV_WR_SEND, 1, 0, 40'000);
    wr.send_flags |= IBV_SEND_SOLICITED;
    ASSERT_EQ(post_send(client, wr), 0);
    Cq* told = nullptr;
    Wc sent[1];
    bool completed = false;
    EXPECT_TRUE(rig->run_until([&] {
      completed = completed || client.send_cq->poll(sent) == 1;
      if (told == nullptr) told = server.channel->next_event();
      return told != nullptr && completed;
    }));
    EXPECT_EQ(told, server.recv_cq.get());
    server.recv_cq->ack_events(1);
    EXPECT_EQ(next_received(server).byte_len, 40'000u);
  }
}

TEST_P(ConformanceSrq, AnAnswerWakesTheSender) {
  EndOptions sleeping;
  sleeping.with_channel = true;
  connect(sleeping, with_srq());
  client.send_cq->arm();
  ASSERT_EQ(send(client, 1, 8), 0);
  Wc received[1];
  int count = 0;
  ASSERT_EQ(post_recv(server, 71, kSrqInbox, 64), 0);
  Cq* told = nullptr;
  EXPECT_TRUE(rig->run_until([&] {
    if (count == 0) count = server.recv_cq->poll(received);
    if (told == nullptr) told = client.channel->next_event();
    return told != nullptr && count == 1;
  }));
  EXPECT_EQ(told, client.send_cq.get());
  client.send_cq->ack_events(1);
  EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace braid::vhca::conformance
