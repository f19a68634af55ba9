// The verbs contract, when things go wrong: RNR, refused access, lengths, flush, local errors.
#include <gtest/gtest.h>

#include <cstring>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

using ConformanceErrors = Pair;

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceErrors, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

ConnectParameters rnr_retries(uint8_t count) {
  ConnectParameters parameters;
  parameters.rnr_retry_count = count;
  return parameters;
}

// --- no receive

TEST_P(ConformanceErrors, WithoutRnrRetriesASendFailsAtOnce) {
  connect({}, {}, rnr_retries(0));
  const uint64_t start_ns = rig->now_ns();
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), 0);
  const Wc wc = next_sent(client);
  EXPECT_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(wc.wr_id, 1u);
  if (GetParam().virtual_time) {
    EXPECT_LT(rig->now_ns() - start_ns, kRnrTimerNs);
  }
  EXPECT_EQ(state_of(client), IBV_QPS_ERR);
}

TEST_P(ConformanceErrors, RnrRetriesLastAsManyTimers) {
  connect({}, {}, rnr_retries(3));
  const uint64_t start_ns = rig->now_ns();
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_RNR_RETRY_EXC_ERR);
  const uint64_t lasted_ns = rig->now_ns() - start_ns;
  EXPECT_GE(lasted_ns, 3 * kRnrTimerNs);
  if (GetParam().virtual_time) {
    EXPECT_LT(lasted_ns, 4 * kRnrTimerNs);
  }
}

TEST_P(ConformanceErrors, RnrRetriesAreCountedAnewForEachMessage) {
  connect({}, {}, rnr_retries(2));
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, i, 0, 8)), 0);
    const uint64_t until_ns = rig->now_ns() + kRnrTimerNs / 2;
    run_until([&] { return rig->now_ns() >= until_ns; });
    ASSERT_EQ(post_recv(server, i, 4096, 64), 0);
    ASSERT_EQ(next_sent(client).status, IBV_WC_SUCCESS) << i;
  }
}

TEST_P(ConformanceErrors, SevenRnrRetriesWaitForEverAndKeepTheOrder) {
  connect();
  fill(client, 0, 64, 9);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 64)), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 2, 0, 64, 8192)), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_READ, 3, 512, 64, 8192)), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 4, 0, 32)), 0);
  EXPECT_TRUE(quiet(client));
  EXPECT_EQ(server.buffer[8192], std::byte{0}) << "a write overtook a send";
  ASSERT_EQ(post_recv(server, 71, 4096, 64), 0);
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(next_sent(client).wr_id, i);
  EXPECT_TRUE(same(client, 0, client, 512, 64)) << "the read saw the write";
  EXPECT_TRUE(quiet(client));
  ASSERT_EQ(post_recv(server, 72, 4096, 64), 0);
  EXPECT_EQ(next_sent(client).wr_id, 4u);
  EXPECT_EQ(next_received(server).wr_id, 71u);
  EXPECT_EQ(next_received(server).byte_len, 32u);
}

TEST_P(ConformanceErrors, WriteWithImmediateWithoutReceiveMovesNoDataBeforeItsTurn) {
  connect({}, {}, rnr_retries(0));
  fill(client, 0, 64, 9);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 64, 8192)), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(server.buffer[8192], std::byte{0});
}

// --- the order of checks: what the QP allows, then a receive, then the key

TEST_P(ConformanceErrors, AMissingReceiveIsToldBeforeABadKey) {
  connect({}, {}, rnr_retries(0));
  SendWr wr = work(client, server, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 64, 8192);
  wr.wr.rdma.rkey ^= 1u << 31;
  ASSERT_EQ(post_send(client, wr), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_TRUE(no_events()) << "nothing was refused";
}

TEST_P(ConformanceErrors, WhatTheQpDoesNotAllowIsToldBeforeAMissingReceive) {
  connect({}, {.qp_access = IBV_ACCESS_REMOTE_READ}, rnr_retries(0));
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 64, 8192)), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(state_of(server), IBV_QPS_ERR);
}

// --- refused by the peer

struct Access {
  const char* name;
  EndOptions server;
  ibv_wr_opcode opcode;
  ibv_wc_status expected;
  // Changes the request that would have been right.
  std::function<void(SendWr&, const End& server, const Mr& other_pd)> spoil;
};

std::vector<Access> refused_accesses() {
  const auto keep = [](SendWr&, const End&, const Mr&) {};
  constexpr auto kWrite = IBV_WR_RDMA_WRITE;
  constexpr auto kWriteImm = IBV_WR_RDMA_WRITE_WITH_IMM;
  constexpr auto kRead = IBV_WR_RDMA_READ;
  constexpr auto kAccessError = IBV_WC_REM_ACCESS_ERR;
  constexpr auto kInvalid = IBV_WC_REM_INV_REQ_ERR;
  std::vector<Access> all;
  for (const ibv_wr_opcode opcode : {kWrite, kWriteImm, kRead}) {
    all.push_back({"another tag", {}, opcode, kAccessError, [](SendWr& wr, const End&, const Mr&) {
                     wr.wr.rdma.rkey ^= 1u << 31;
                   }});
    all.push_back({"key 0", {}, opcode, kAccessError, [](SendWr& wr, const End&, const Mr&) {
                     wr.wr.rdma.rkey = 0;
                   }});
    all.push_back({"one byte past the end",
                   {},
                   opcode,
                   kAccessError,
                   [](SendWr& wr, const End& server, const Mr&) {
                     wr.wr.rdma.remote_addr = server.address(kBufferBytes + 1) - wr.sg_list->length;
                   }});
    all.push_back({"one byte before the start",
                   {},
                   opcode,
                   kAccessError,
                   [](SendWr& wr, const End& server, const Mr&) {
                     wr.wr.rdma.remote_addr = server.address() - 1;
                   }});
    all.push_back(
        {"an address that wraps", {}, opcode, kAccessError, [](SendWr& wr, const End&, const Mr&) {
           wr.wr.rdma.remote_addr = UINT64_MAX - 10;
         }});
    all.push_back({"memory of another PD",
                   {},
                   opcode,
                   kAccessError,
                   [](SendWr& wr, const End&, const Mr& other) { wr.wr.rdma.rkey = other.rkey; }});
  }
  constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;
  all.push_back({"MR without remote write",
                 {.mr_access = kLocal | IBV_ACCESS_REMOTE_READ},
                 kWrite,
                 kAccessError,
                 keep});
  all.push_back({"MR without remote read",
                 {.mr_access = kLocal | IBV_ACCESS_REMOTE_WRITE},
                 kRead,
                 kAccessError,
                 keep});
  all.push_back(
      {"QP without remote write", {.qp_access = IBV_ACCESS_REMOTE_READ}, kWrite, kInvalid, keep});
  all.push_back({"QP without remote write",
                 {.qp_access = IBV_ACCESS_REMOTE_READ},
                 kWriteImm,
                 kInvalid,
                 keep});
  all.push_back(
      {"QP without remote read", {.qp_access = IBV_ACCESS_REMOTE_WRITE}, kRead, kInvalid, keep});
  return all;
}

/// (how long): the TCP wire puts what is longer than its buffer into its place by another way.
class ConformanceLengths : public Pair {
 protected:
  static constexpr uint32_t kLengths[] = {64, 100'000};
  static constexpr uint32_t kOnePacketBytes = 256;  // of the least MTU that there is
  void refuses(const Access& access, uint32_t bytes) {
    client = End{};
    server = End{};
    connect({}, access.server);
    const auto other_pd = std::move(*rig->device(kServer).alloc_pd());
    const auto other =
        std::move(*other_pd->reg_mr(server.buffer.data(), server.buffer.size(), kAllAccess));
    fill(client, 0, bytes, 5);
    ASSERT_EQ(post_recv_without_sge(server, 71), 0);
    ASSERT_EQ(post_recv_without_sge(server, 72), 0);
    SendWr wr = work(client, server, access.opcode, 1, 0, bytes, 8192);
    access.spoil(wr, server, *other);
    wr.send_flags = 0;  // an error makes a completion all the same
    ASSERT_EQ(post_send(client, wr), 0);
    const Wc wc = next_sent(client);
    EXPECT_EQ(wc.status, access.expected);
    EXPECT_EQ(wc.wr_id, 1u);
    EXPECT_EQ(wc.qp_num, client.qp->number());
    EXPECT_EQ(state_of(client), IBV_QPS_ERR);
    EXPECT_EQ(state_of(server), IBV_QPS_ERR);
    std::vector<uint64_t> flushed{71, 72};
    // The immediate is in the last packet, and what is refused is so at the first one.
    if (GetParam().refusal_takes_receive && bytes <= kOnePacketBytes &&
        access.opcode == IBV_WR_RDMA_WRITE_WITH_IMM && access.expected == IBV_WC_REM_ACCESS_ERR) {
      EXPECT_EQ(next_received(server).status, access.expected);
      flushed.erase(flushed.begin());
    }
    expect_flush(server, *server.recv_cq, flushed);
    const std::vector<std::byte> nothing(server.buffer.size());
    EXPECT_EQ(std::memcmp(server.buffer.data(), nothing.data(), nothing.size()), 0);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceLengths, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

TEST_P(ConformanceLengths, AccessThatIsNotAllowedIsRefusedAndChangesNothing) {
  for (const uint32_t bytes : kLengths) {
    for (const Access& access : refused_accesses()) {
      SCOPED_TRACE(fmt::format("opcode {}, {}, {} bytes", static_cast<int>(access.opcode),
                               access.name, bytes));
      refuses(access, bytes);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ConformanceErrors, AKeyIsGoneWhenItsRegistrationIs) {
  connect();
  SendWr wr = work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 64, 8192);
  server.mr.reset();
  // The same place in the table, another tag.
  server.mr = std::move(*server.pd->reg_mr(server.buffer.data(), kBufferBytes, kAllAccess));
  EXPECT_NE(wr.wr.rdma.rkey, server.mr->rkey);
  ASSERT_EQ(post_send(client, wr), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_P(ConformanceErrors, TheLastByteOfARegistrationMayBeUsed) {
  connect();
  fill(client, 0, 64, 5);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 64, kBufferBytes - 64)),
            0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same(client, 0, server, kBufferBytes - 64, 64));
}

TEST_P(ConformanceLengths, AMessageLongerThanItsReceiveFailsBothEnds) {
  for (const uint32_t bytes : kLengths) {
    SCOPED_TRACE(bytes);
    client = End{};
    server = End{};
    connect();
    ASSERT_EQ(post_recv(server, 70, 4096, bytes), 0);
    ASSERT_EQ(post_recv(server, 71, 4096, bytes - 1), 0);
    ASSERT_EQ(post_recv(server, 72, 4096, bytes), 0);
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, bytes)), 0);
    ASSERT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
    ASSERT_EQ(next_received(server).status, IBV_WC_SUCCESS);
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 2, 0, bytes)), 0);
    const Wc sent = next_sent(client);
    EXPECT_EQ(sent.status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(sent.wr_id, 2u);
    const Wc received = next_received(server);
    EXPECT_EQ(received.status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(received.wr_id, 71u);
    expect_flush(server, *server.recv_cq, {72});
  }
}

TEST_P(ConformanceErrors, AReceiveIntoMemoryThatMayNotBeWrittenFailsBothEnds) {
  connect();
  Sge sge{server.address(0), 64, server.mr->lkey ^ (1u << 30)};
  RecvWr wr{71, nullptr, &sge, 1};
  const RecvWr* bad = nullptr;
  ASSERT_EQ(server.qp->post_recv(&wr, &bad), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_REM_OP_ERR);
  const Wc received = next_received(server);
  EXPECT_EQ(received.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(received.wr_id, 71u);
  EXPECT_EQ(state_of(server), IBV_QPS_ERR);
}

// --- refused at home

TEST_P(ConformanceErrors, ABadLocalKeyFailsInItsTurn) {
  connect();
  // The first waits for a receive, so the bad one must wait too.
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), 0);
  SendWr wr = work(client, server, IBV_WR_RDMA_WRITE, 2, 0, 8);
  wr.sg_list->lkey ^= 1u << 31;
  wr.send_flags = 0;
  ASSERT_EQ(post_send(client, wr), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 3, 0, 8)), 0);
  EXPECT_TRUE(quiet(client));
  ASSERT_EQ(post_recv(server, 71, 4096, 64), 0);
  const Wc first = next_sent(client);
  EXPECT_EQ(first.wr_id, 1u);
  EXPECT_EQ(first.status, IBV_WC_SUCCESS);
  const Wc second = next_sent(client);
  EXPECT_EQ(second.wr_id, 2u);
  EXPECT_EQ(second.status, IBV_WC_LOC_PROT_ERR);
  expect_flush(client, *client.send_cq, {3});
}

TEST_P(ConformanceErrors, LocalMemoryIsCheckedForRangeAccessAndProtectionDomain) {
  struct Case {
    const char* name;
    ibv_wr_opcode opcode;
    std::function<void(End&, Sge&, const Mr& read_only, const Mr& other_pd)> spoil;
  };
  const std::vector<Case> cases = {
      {"past the end", IBV_WR_SEND,
       [](End& at, Sge& sge, const Mr&, const Mr&) { sge.addr = at.address(kBufferBytes - 7); }},
      {"read into memory without local write", IBV_WR_RDMA_READ,
       [](End&, Sge& sge, const Mr& read_only, const Mr&) { sge.lkey = read_only.lkey; }},
      {"another PD", IBV_WR_RDMA_WRITE,
       [](End&, Sge& sge, const Mr&, const Mr& other) { sge.lkey = other.lkey; }}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    client = End{};
    server = End{};
    connect();
    const auto read_only =
        std::move(*client.pd->reg_mr(client.buffer.data(), client.buffer.size(), 0));
    const auto other_pd = std::move(*rig->device(kClient).alloc_pd());
    const auto other =
        std::move(*other_pd->reg_mr(client.buffer.data(), client.buffer.size(), kAllAccess));
    ASSERT_EQ(post_recv(server, 71, 4096, 64), 0);
    SendWr wr = work(client, server, each.opcode, 1, 0, 8);
    each.spoil(client, *wr.sg_list, *read_only, *other);
    ASSERT_EQ(post_send(client, wr), 0);
    EXPECT_EQ(next_sent(client).status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_ERR);
  }
}

TEST_P(ConformanceErrors, MemoryWithoutLocalWriteMayBeSent) {
  connect();
  const auto read_only =
      std::move(*client.pd->reg_mr(client.buffer.data(), client.buffer.size(), 0));
  SendWr wr = work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 8);
  wr.sg_list->lkey = read_only->lkey;
  ASSERT_EQ(post_send(client, wr), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
}

TEST_P(ConformanceErrors, RegistrationsThatMakeNoSenseAreRefused) {
  End end = make_end(kClient);
  std::byte* const memory = end.buffer.data();
  using base::Errc;
  EXPECT_EQ(end.pd->reg_mr(memory, 0, 0).code(), Errc::kInvalid);
  EXPECT_EQ(end.pd->reg_mr(nullptr, 10, 0).code(), Errc::kInvalid);
  EXPECT_EQ(end.pd->reg_mr(memory, UINT64_MAX, 0).code(), Errc::kInvalid);
  EXPECT_EQ(end.pd->reg_mr(memory, 10, IBV_ACCESS_REMOTE_WRITE).code(), Errc::kInvalid);
  EXPECT_EQ(end.pd->reg_mr(memory, 10, IBV_ACCESS_ON_DEMAND).code(), Errc::kNotSupported);
  EXPECT_TRUE(end.pd->reg_mr(memory, 10, IBV_ACCESS_RELAXED_ORDERING).ok());
}

// --- reads outstanding

TEST_P(ConformanceErrors, ReadsBeyondTheInitiatorDepthWaitTheirTurn) {
  ConnectParameters parameters;
  parameters.initiator_depth = 2;
  connect({}, {}, parameters);
  fill(server, 0, 32 * 64, 6);
  for (uint32_t i = 0; i < 32; ++i) {
    SendWr wr = work(client, server, IBV_WR_RDMA_READ, i, i * 64, 64, i * 64);
    if (i % 5 == 4) wr.send_flags |= IBV_SEND_FENCE;
    ASSERT_EQ(post_send(client, wr), 0);
  }
  for (uint64_t i = 0; i < 32; ++i) {
    const Wc wc = next_sent(client);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    ASSERT_EQ(wc.wr_id, i);
  }
  EXPECT_TRUE(same(server, 0, client, 0, 32 * 64));
}

TEST_P(ConformanceErrors, AFencedSendCarriesWhatTheReadBeforeItFetched) {
  connect();
  fill(server, 0, 64, 8);
  ASSERT_EQ(post_recv(server, 71, 8192, 64), 0);
  SendWr read = work(client, server, IBV_WR_RDMA_READ, 1, 4096, 64);
  SendWr send = work(client, server, IBV_WR_SEND, 2, 4096, 64);
  send.send_flags |= IBV_SEND_FENCE;
  read.next = &send;
  ASSERT_EQ(post_send(client, read), 0);
  EXPECT_EQ(next_received(server).byte_len, 64u);
  EXPECT_TRUE(same(server, 0, server, 8192, 64));
  EXPECT_EQ(next_sent(client).wr_id, 1u);
  EXPECT_EQ(next_sent(client).wr_id, 2u);
}

TEST_P(ConformanceErrors, AReadWithoutInitiatorDepthIsALocalError) {
  ConnectParameters parameters;
  parameters.initiator_depth = 0;
  connect({}, {}, parameters);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_READ, 1, 0, 8)), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_LOC_QP_OP_ERR);
}

// --- flush

TEST_P(ConformanceErrors, AnErrorFlushesBothQueuesInOrderSignalledOrNot) {
  connect();
  for (uint64_t i = 71; i <= 74; ++i) ASSERT_EQ(post_recv(client, i, 4096, 64), 0);
  SendWr wr = work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 8);
  wr.wr.rdma.rkey = 0;
  wr.send_flags = 0;
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 0, 0, 8)), 0);  // waits (RNR)
  ASSERT_EQ(post_send(client, wr), 0);
  for (uint64_t i = 2; i <= 5; ++i) {
    SendWr later = work(client, server, IBV_WR_RDMA_WRITE, i, 0, 8);
    if (i % 2 == 0) later.send_flags = 0;
    ASSERT_EQ(post_send(client, later), 0);
  }
  EXPECT_TRUE(quiet(client));
  ASSERT_EQ(post_recv(server, 1, 4096, 64), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_sent(client).status, IBV_WC_REM_ACCESS_ERR);
  expect_flush(client, *client.send_cq, {2, 3, 4, 5});
  expect_flush(client, *client.recv_cq, {71, 72, 73, 74});
  // And what is posted from now on, at once.
  ASSERT_EQ(post_recv(client, 75, 4096, 64), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 6, 0, 8)), 0);
  expect_flush(client, *client.recv_cq, {75});
  expect_flush(client, *client.send_cq, {6});
  EXPECT_TRUE(quiet(client));
}

TEST_P(ConformanceErrors, ModifyingToErrFlushes) {
  connect();
  ASSERT_EQ(post_recv(client, 71, 4096, 64), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), 0);
  QpAttr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_TRUE(client.qp->modify(attr, IBV_QP_STATE).ok());
  expect_flush(client, *client.send_cq, {1});
  expect_flush(client, *client.recv_cq, {71});
}

TEST_P(ConformanceErrors, ModifyingToResetForgetsEverything) {
  connect();
  ASSERT_EQ(post_recv(client, 71, 4096, 64), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), 0);
  QpAttr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_TRUE(client.qp->modify(attr, IBV_QP_STATE).ok());
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_TRUE(client.qp->modify(attr, IBV_QP_STATE).ok());
  EXPECT_TRUE(quiet(client));
  EXPECT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), EINVAL);
  EXPECT_EQ(post_recv(client, 71, 4096, 64), EINVAL);
}

TEST_P(ConformanceErrors, AQpWhosePeerFailedIsNotAnsweredByItAnyMore) {
  connect();
  QpAttr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_TRUE(server.qp->modify(attr, IBV_QP_STATE).ok());
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 8, 8192)), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(state_of(client), IBV_QPS_ERR);
}

TEST_P(ConformanceErrors, SendsWaitWhileTheQueueIsDrainedAndGoOnAfter) {
  connect();
  QpAttr attr{};
  attr.qp_state = IBV_QPS_SQD;
  ASSERT_TRUE(client.qp->modify(attr, IBV_QP_STATE).ok());
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 8)), 0);
  EXPECT_TRUE(quiet(client));
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_TRUE(client.qp->modify(attr, IBV_QP_STATE).ok());
  EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
}

TEST_P(ConformanceErrors, CompletionsOfADestroyedQpAreGone) {
  connect();
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 8)), 0);
  rig->settle();
  client.connection.reset();
  client.qp.reset();
  Wc wc;
  EXPECT_EQ(client.send_cq->poll({&wc, 1}), 0);
}

}  // namespace
}  // namespace braid::vhca::conformance
