// The verbs contract, atomics: what they do, who may, in what order, and what they answer.
#include <gtest/gtest.h>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

constexpr auto kAdd = IBV_WR_ATOMIC_FETCH_AND_ADD;
constexpr auto kSwap = IBV_WR_ATOMIC_CMP_AND_SWP;
constexpr uint32_t kWordBytes = 8;

class ConformanceAtomics : public Pair {
 protected:
  /// On the server's word at `remote_offset`; the client's at `offset` gets what it was.
  SendWr atomic(ibv_wr_opcode opcode, uint64_t wr_id, uint64_t compare_add, uint64_t swap = 0,
                size_t remote_offset = 0, size_t offset = 0, uint32_t length = kWordBytes) {
    SendWr wr = work(client, server, opcode, wr_id, offset, length);
    wr.wr.atomic.remote_addr = server.address(remote_offset);
    wr.wr.atomic.compare_add = compare_add;
    wr.wr.atomic.swap = swap;
    wr.wr.atomic.rkey = server.mr->rkey;
    return wr;
  }
  static uint64_t word(const End& end, size_t offset = 0) {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(end.buffer.data() + offset),
                           __ATOMIC_ACQUIRE);
  }
  static void set_word(End& end, size_t offset, uint64_t value) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(end.buffer.data() + offset), value,
                     __ATOMIC_RELEASE);
  }
  /// Posts it and gives the value that came back.
  uint64_t run_atomic(const SendWr& wr) {
    EXPECT_EQ(post_send(client, wr), 0);
    const Wc wc = next_sent(client);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, kWordBytes);
    EXPECT_EQ(wc.wr_id, wr.wr_id);
    EXPECT_EQ(wc.opcode, wr.opcode == kAdd ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP);
    return word(client);
  }
  void reconnect(const EndOptions& client_options = {}, const EndOptions& server_options = {},
                 const ConnectParameters& client_parameters = {},
                 const ConnectParameters& server_parameters = {}) {
    client = End{};
    server = End{};
    connect(client_options, server_options, client_parameters, server_parameters);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceAtomics, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

// --- what they do

TEST_P(ConformanceAtomics, FetchAddAddsAndGivesWhatWas) {
  connect();
  set_word(server, 8, 7);
  EXPECT_EQ(run_atomic(atomic(kAdd, 1, 5, 99, 8)), 7u);
  EXPECT_EQ(word(server, 8), 12u);
  EXPECT_EQ(run_atomic(atomic(kAdd, 2, UINT64_MAX, 0, 8)), 12u);
  EXPECT_EQ(word(server, 8), 11u) << "adds modulo 2^64";
  EXPECT_EQ(word(server, 0), 0u);
  EXPECT_EQ(word(server, 16), 0u);
}

TEST_P(ConformanceAtomics, CompareSwapSwapsWhatItExpectedOnly) {
  connect();
  constexpr uint64_t kWord = 0x1122334455667788, kOther = 0x99aabbccddeeff00;
  set_word(server, 0, kWord);
  EXPECT_EQ(run_atomic(atomic(kSwap, 1, kOther, 1)), kWord);
  EXPECT_EQ(word(server), kWord);
  EXPECT_EQ(run_atomic(atomic(kSwap, 2, kWord, kOther)), kWord);
  EXPECT_EQ(word(server), kOther);
  EXPECT_EQ(run_atomic(atomic(kSwap, 3, kWord, 1)), kOther);
  EXPECT_EQ(word(server), kOther);
}

TEST_P(ConformanceAtomics, TheAnswerMayBeScattered) {
  connect();
  constexpr uint64_t kWord = 0x1122334455667788;
  set_word(server, 0, kWord);
  Sge sges[3] = {{client.address(101), 3, client.mr->lkey},
                 {client.address(300), 0, 0},
                 {client.address(200), 5, client.mr->lkey}};
  SendWr wr = atomic(kAdd, 1, 1);
  wr.sg_list = sges;
  wr.num_sge = 3;
  ASSERT_EQ(post_send(client, wr), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(client.buffer.data() + 101, &kWord, 3), 0);
  EXPECT_EQ(
      std::memcmp(client.buffer.data() + 200, reinterpret_cast<const std::byte*>(&kWord) + 3, 5),
      0);
}

TEST_P(ConformanceAtomics, TheDeviceSaysWhatTheyAreAtomicWith) {
  EXPECT_EQ(rig->device(kServer).query().atomic_cap, IBV_ATOMIC_HCA);
  EXPECT_GT(rig->device(kServer).query().max_qp_rd_atom, 0);
}

TEST_P(ConformanceAtomics, BothEndsAddToOneWord) {
  connect();
  constexpr uint64_t kRounds = 50;
  for (uint64_t i = 0; i < kRounds; ++i) {
    SendWr from_server = work(server, server, kAdd, i, 64, kWordBytes);
    from_server.wr.atomic.remote_addr = client.address(8);
    from_server.wr.atomic.compare_add = 1;
    from_server.wr.atomic.rkey = client.mr->rkey;
    ASSERT_EQ(post_send(server, from_server), 0);
    ASSERT_EQ(post_send(client, atomic(kAdd, i, 1, 0, 8)), 0);
    ASSERT_EQ(next_sent(server).status, IBV_WC_SUCCESS);
    ASSERT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
    EXPECT_EQ(word(server, 64), i);
    EXPECT_EQ(word(client), i);
  }
}

// --- order

TEST_P(ConformanceAtomics, RequestsOfOneQpSeeEachOtherInOrder) {
  connect();
  set_word(client, 512, 40);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 1, 512, 8, 8)), 0);
  ASSERT_EQ(post_send(client, atomic(kAdd, 2, 2, 0, 8, 520)), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_READ, 3, 528, 8, 8)), 0);
  ASSERT_EQ(post_send(client, atomic(kSwap, 4, 42, 1, 8, 536)), 0);
  for (uint64_t i = 1; i <= 4; ++i) {
    const Wc wc = next_sent(client);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, i);
  }
  EXPECT_EQ(word(client, 520), 40u);
  EXPECT_EQ(word(client, 528), 42u);
  EXPECT_EQ(word(client, 536), 42u);
  EXPECT_EQ(word(server, 8), 1u);
}

TEST_P(ConformanceAtomics, BeyondTheInitiatorDepthTheyWaitWithReads) {
  ConnectParameters parameters;
  parameters.initiator_depth = 2;
  connect({}, {}, parameters);
  constexpr uint32_t kCount = 60;
  for (uint32_t i = 0; i < kCount; ++i) {
    SendWr wr = i % 3 == 2 ? work(client, server, IBV_WR_RDMA_READ, i, i * 8, 8)
                           : atomic(kAdd, i, 1, 0, 0, i * 8);
    if (i % 5 == 4) wr.send_flags |= IBV_SEND_FENCE;
    ASSERT_EQ(post_send(client, wr), 0);
  }
  uint64_t added = 0;
  for (uint32_t i = 0; i < kCount; ++i) {
    const Wc wc = next_sent(client);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    ASSERT_EQ(wc.wr_id, i);
    EXPECT_EQ(word(client, i * 8), added);
    if (i % 3 != 2) ++added;
  }
}

TEST_P(ConformanceAtomics, AFencedSendCarriesWhatTheAtomicBeforeItFetched) {
  connect();
  set_word(server, 0, 77);
  ASSERT_EQ(post_recv(server, 71, 8192, 64), 0);
  SendWr add = atomic(kAdd, 1, 1, 0, 0, 4096);
  SendWr send = work(client, server, IBV_WR_SEND, 2, 4096, 8);
  send.send_flags |= IBV_SEND_FENCE;
  add.next = &send;
  ASSERT_EQ(post_send(client, add), 0);
  EXPECT_EQ(next_received(server).byte_len, 8u);
  EXPECT_EQ(word(server, 8192), 77u);
  EXPECT_EQ(next_sent(client).wr_id, 1u);
  EXPECT_EQ(next_sent(client).wr_id, 2u);
}

TEST_P(ConformanceAtomics, OneBehindASendThatWaitsIsExecutedOnce) {
  connect();
  ASSERT_EQ(post_send(client, atomic(kAdd, 1, 1, 0, 0, 64)), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 2, 0, 8)), 0);
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(post_send(client, atomic(kAdd, 3 + i, 1, 0, 0, 72 + 8 * i)), 0);
  }
  EXPECT_EQ(next_sent(client).wr_id, 1u);
  EXPECT_TRUE(quiet(client));
  EXPECT_EQ(word(server), 1u) << "an atomic overtook a send";
  ASSERT_EQ(post_recv(server, 71, 4096, 64), 0);
  for (uint64_t i = 2; i <= 7; ++i) EXPECT_EQ(next_sent(client).wr_id, i);
  EXPECT_EQ(word(server), 6u);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(word(client, 72 + 8 * i), i + 1);
}

TEST_P(ConformanceAtomics, UnsignalledOnesCompleteSilently) {
  connect();
  for (uint64_t i = 0; i < 20; ++i) {
    SendWr wr = atomic(kAdd, i, 1);
    if (i != 19) wr.send_flags = 0;
    ASSERT_EQ(post_send(client, wr), 0);
  }
  EXPECT_EQ(next_sent(client).wr_id, 19u);
  EXPECT_EQ(word(server), 20u);
  EXPECT_EQ(word(client), 19u);
}

// --- refused by the peer

struct Refusal {
  const char* name;
  EndOptions server;
  ibv_wc_status expected;
  // Changes the request that would have been right.
  std::function<void(SendWr&, const End& server, const Mr& other_pd)> spoil;
};

std::vector<Refusal> refusals() {
  constexpr auto kAccessError = IBV_WC_REM_ACCESS_ERR;
  constexpr auto kInvalid = IBV_WC_REM_INV_REQ_ERR;
  constexpr int kWithoutAtomic =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const auto keep = [](SendWr&, const End&, const Mr&) {};
  const auto unaligned = [](SendWr& wr, const End&, const Mr&) { wr.wr.atomic.remote_addr += 4; };
  const auto wrong_key = [](SendWr& wr, const End&, const Mr&) { wr.wr.atomic.rkey ^= 1u << 31; };
  const auto wrong_key_unaligned = [](SendWr& wr, const End&, const Mr&) {
    wr.wr.atomic.rkey ^= 1u << 31;
    wr.wr.atomic.remote_addr += 1;
  };
  EndOptions qp_without;
  qp_without.qp_access = kWithoutAtomic;
  EndOptions mr_without;
  mr_without.mr_access = kWithoutAtomic;
  return {
      {"QP without remote atomic", qp_without, kInvalid, keep},
      {"QP without remote atomic, and a wrong key", qp_without, kInvalid, wrong_key},
      {"MR without remote atomic", mr_without, kAccessError, keep},
      {"another tag", {}, kAccessError, wrong_key},
      {"key 0", {}, kAccessError, [](SendWr& wr, const End&, const Mr&) { wr.wr.atomic.rkey = 0; }},
      {"the word behind the end",
       {},
       kAccessError,
       [](SendWr& wr, const End& server, const Mr&) {
         wr.wr.atomic.remote_addr = server.address(kBufferBytes);
       }},
      {"an address that wraps",
       {},
       kAccessError,
       [](SendWr& wr, const End&, const Mr&) { wr.wr.atomic.remote_addr = UINT64_MAX - 7; }},
      {"memory of another PD",
       {},
       kAccessError,
       [](SendWr& wr, const End&, const Mr& other) { wr.wr.atomic.rkey = other.rkey; }},
      {"not aligned", {}, kInvalid, unaligned},
      {"not aligned, and a wrong key", {}, kAccessError, wrong_key_unaligned}};
}

TEST_P(ConformanceAtomics, WhatIsNotAllowedIsRefusedAndChangesNothing) {
  for (const ibv_wr_opcode opcode : {kAdd, kSwap}) {
    for (const Refusal& refusal : refusals()) {
      SCOPED_TRACE(fmt::format("opcode {}, {}", static_cast<int>(opcode), refusal.name));
      reconnect({}, refusal.server);
      const auto other_pd = std::move(*rig->device(kServer).alloc_pd());
      const auto other =
          std::move(*other_pd->reg_mr(server.buffer.data(), server.buffer.size(), kAllAccess));
      ASSERT_EQ(post_recv(server, 71, 4096, 64), 0);
      set_word(client, 0, 1234);
      SendWr wr = atomic(opcode, 7, 0, 1, 4096);
      if (opcode == kAdd) wr.wr.atomic.compare_add = 1;
      refusal.spoil(wr, server, *other);
      ASSERT_EQ(post_send(client, wr), 0);
      const Wc wc = next_sent(client);
      EXPECT_EQ(wc.status, refusal.expected) << wc_status_text(wc.status);
      EXPECT_EQ(wc.wr_id, 7u);
      EXPECT_EQ(state_of(client), IBV_QPS_ERR);
      EXPECT_EQ(state_of(server), IBV_QPS_ERR);
      expect_flush(server, *server.recv_cq, {71});
      EXPECT_EQ(word(client), 1234u);
      for (const std::byte each : server.buffer) ASSERT_EQ(each, std::byte{0});
    }
  }
}

TEST_P(ConformanceAtomics, WithoutResponderResourcesNothingThatReturnsDataIsTaken) {
  ConnectParameters none;
  none.responder_resources = 0;
  EndOptions all_flags;
  all_flags.qp_access = kAllAccess;
  for (const EndOptions& options : {EndOptions{}, all_flags}) {
    for (const ibv_wr_opcode opcode : {kAdd, kSwap, IBV_WR_RDMA_READ}) {
      reconnect({}, options, {}, none);
      const SendWr wr = opcode == IBV_WR_RDMA_READ ? work(client, server, opcode, 1, 0, 8)
                                                   : atomic(opcode, 1, 0, 1);
      ASSERT_EQ(post_send(client, wr), 0);
      EXPECT_EQ(next_sent(client).status, IBV_WC_REM_INV_REQ_ERR);
      EXPECT_EQ(word(server), 0u);
    }
  }
}

TEST_P(ConformanceAtomics, TheLastWordOfARegistrationMayBeUsed) {
  connect();
  EXPECT_EQ(run_atomic(atomic(kAdd, 1, 3, 0, kBufferBytes - 8)), 0u);
  EXPECT_EQ(word(server, kBufferBytes - 8), 3u);
}

TEST_P(ConformanceAtomics, AQpWhosePeerFailedIsNotAnsweredByItAnyMore) {
  connect();
  QpAttr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_TRUE(server.qp->modify(attr, IBV_QP_STATE).ok());
  ASSERT_EQ(post_send(client, atomic(kAdd, 1, 1)), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(word(server), 0u);
}

// --- refused at home

TEST_P(ConformanceAtomics, AnAnswerHasEightBytes) {
  for (const ibv_wr_opcode opcode : {kAdd, kSwap}) {
    for (const uint32_t length : {0u, 4u, 7u, 9u, 16u}) {
      SCOPED_TRACE(fmt::format("opcode {}, {} bytes", static_cast<int>(opcode), length));
      reconnect();
      ASSERT_EQ(post_send(client, atomic(opcode, 1, 0, 1, 0, 0, length)), 0);
      EXPECT_EQ(next_sent(client).status, IBV_WC_LOC_LEN_ERR);
      EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_ERR);
      EXPECT_EQ(word(server), 0u);
    }
  }
}

TEST_P(ConformanceAtomics, TheAnswerNeedsMemoryThatMayBeWritten) {
  for (int spoilt = 0; spoilt < 3; ++spoilt) {
    SCOPED_TRACE(spoilt);
    reconnect();
    const auto read_only =
        std::move(*client.pd->reg_mr(client.buffer.data(), client.buffer.size(), 0));
    // A key that is wrong is found before a length that is.
    SendWr wr = atomic(kAdd, 1, 1, 0, 0, 0, spoilt == 2 ? 4 : kWordBytes);
    wr.sg_list->lkey = spoilt == 0 ? read_only->lkey : client.mr->lkey ^ 1u << 31;
    ASSERT_EQ(post_send(client, wr), 0);
    EXPECT_EQ(next_sent(client).status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(word(server), 0u);
  }
}

TEST_P(ConformanceAtomics, WithoutInitiatorDepthTheyAreALocalError) {
  ConnectParameters parameters;
  parameters.initiator_depth = 0;
  for (const ibv_wr_opcode opcode : {kAdd, kSwap}) {
    reconnect({}, {}, parameters);
    ASSERT_EQ(post_send(client, atomic(opcode, 1, 0, 1)), 0);
    EXPECT_EQ(next_sent(client).status, IBV_WC_LOC_QP_OP_ERR);
    EXPECT_EQ(word(server), 0u);
  }
}

TEST_P(ConformanceAtomics, TheyCannotBeInline) {
  connect();
  for (const ibv_wr_opcode opcode : {kAdd, kSwap}) {
    SendWr wr = atomic(opcode, 1, 0, 1);
    wr.send_flags |= IBV_SEND_INLINE;
    EXPECT_EQ(post_send(client, wr), EINVAL);
  }
  EXPECT_EQ(run_atomic(atomic(kAdd, 2, 1)), 0u);
}

}  // namespace
}  // namespace braid::vhca::conformance
