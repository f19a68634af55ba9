// A read whose client asks for the invalidation of its buffer's key, as Linux's does: the data, a
// SEND_WITH_INV and the answer, in this order (tests/golden/rtrs: invalidate, answer_invalidated).
#include "base/test_golden.h"
#include "trs/kernel_client_rig.h"

namespace braid::trs {
namespace {

using base::Errc;
using testing::KernelClient;
using testing::StoreOp;

class Invalidate : public KernelClient {
 protected:
  /// What connection 1 has received since the last call; waits for `count`.
  std::vector<vhca::Wc> arrivals(size_t count) {
    const auto arrived = [&] {
      cid1->poll();
      std::vector<vhca::Wc> all;
      for (const vhca::Wc& wc : cid1->completions) {
        if (wc.wr_id >= 1000) all.push_back(wc);
      }
      return all;
    };
    EXPECT_TRUE(until([&] { return arrived().size() >= seen + count; }));
    std::vector<vhca::Wc> all = arrived();
    all.erase(all.begin(), all.begin() + static_cast<ptrdiff_t>(std::min(seen, all.size())));
    seen += all.size();
    return all;
  }
  void post_receives(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      vhca::RecvWr wr{};
      wr.wr_id = 2000;
      const vhca::RecvWr* bad = nullptr;
      ASSERT_EQ(cid1->qp->post_recv(&wr, &bad), 0);
    }
  }
  static Imm immediate(const vhca::Wc& wc) {
    EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    return decode_imm(from_network(wc.imm_data));
  }
  static void expect_invalidation(const vhca::Wc& wc, uint32_t key) {
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_NE(wc.wc_flags & IBV_WC_WITH_INV, 0u);
    EXPECT_EQ(wc.invalidated_rkey, key);
    EXPECT_EQ(wc.byte_len, 0u);
  }

  size_t seen = 0;
};

TEST_F(Invalidate, DataThenInvalidationThenAnswerAsLinuxSaysIt) {
  const uint32_t key = bind(1);
  read(1, key, wire::kNeedInvalidate);
  const auto came = arrivals(2);
  ASSERT_EQ(came.size(), 2u);
  expect_invalidation(came[0], key);
  const auto told = base::read_golden("rtrs/always_invalidate_n/invalidate");
  EXPECT_TRUE(told.carried_by == "SEND" && told.invalidates && !told.imm) << "as ours came";
  EXPECT_EQ(came[0].byte_len, told.bytes.size());
  EXPECT_EQ(came[1].byte_len, 0u) << "the data went ahead";
  const auto golden = base::read_golden("rtrs/always_invalidate_n/answer_invalidated");
  EXPECT_EQ(golden.carried_by, "WRITE");
  EXPECT_EQ(from_network(came[1].imm_data), *golden.imm | 1) << "of chunk 1";
  EXPECT_TRUE(data_came(1));
}

TEST_F(Invalidate, TheKeyIsGoneWhenTheAnswerIsThere) {
  const uint32_t key = bind(1);
  read(1, key, wire::kNeedInvalidate);
  ASSERT_EQ(arrivals(2).size(), 2u);
  read(1, key, 0);
  expect_session_ended(100 * base::kMillisecond);
}

TEST_F(Invalidate, AReadThatFailsIsInvalidatedToo) {
  const uint32_t key = bind(2);
  StoreOp op;
  op.fail_errno = ENOSPC;
  read(2, key, wire::kNeedInvalidate, op);
  const auto came = arrivals(2);
  ASSERT_EQ(came.size(), 2u);
  expect_invalidation(came[0], key);
  const Imm imm = immediate(came[1]);
  EXPECT_EQ(imm.type, ImmType::kAnswerInvalidated);
  EXPECT_EQ(decode_answer(imm.payload).sys_errno, static_cast<uint32_t>(ENOSPC));
  EXPECT_EQ(decode_answer(imm.payload).request_id, 2u);
}

TEST_F(Invalidate, WhoDoesNotAskGetsDataAndAnswerInOneWrite) {
  const uint32_t key = bind(1);
  for (int i = 0; i < 2; ++i) {  // and the key stays
    std::fill(data_of(1).begin(), data_of(1).end(), std::byte{0});
    read(1, key, 0);
    const auto came = arrivals(1);
    ASSERT_EQ(came.size(), 1u);
    EXPECT_EQ(immediate(came[0]).type, ImmType::kAnswer);
    EXPECT_EQ(came[0].byte_len, kDataBytes);
    EXPECT_TRUE(data_came(1));
  }
}

TEST_F(Invalidate, AKeyThatIsNoWindowEndsTheSession) {
  read(1, raw->mr->rkey ^ 0x100, wire::kNeedInvalidate);
  expect_session_ended(100 * base::kMillisecond);
}

TEST_F(Invalidate, AskedForWithoutAKeyEndsTheSession) {
  const std::vector<uint8_t> message = {3, 0, 0, 0, wire::kNeedInvalidate, 0, 0, 0};
  request(*cid1, 1, 0, message, 0);
  expect_breach("asks to invalidate a key that it does not give");
}

/// Three work requests each: more than the send queue holds.
TEST_F(Invalidate, AnswersToAllPermitsAtOnceWaitForSendSlots) {
  for (int round = 0; round < 4; ++round) {
    std::fill(raw->memory.begin() + (64 << 10), raw->memory.begin() + (128 << 10), std::byte{0});
    store.hold = true;
    std::array<uint32_t, kDepth> keys{};
    for (uint32_t chunk = 0; chunk < kDepth; ++chunk) {
      keys[chunk] = bind(chunk);
      read(chunk, keys[chunk], wire::kNeedInvalidate);
      ASSERT_TRUE(until([&] { return server->held.size() == chunk + 1; }));
    }
    store.hold = false;
    server->release();
    const auto came = arrivals(size_t{2} * kDepth);
    ASSERT_EQ(came.size(), size_t{2} * kDepth);
    for (uint32_t chunk = 0; chunk < kDepth; ++chunk) {
      expect_invalidation(came[size_t{2} * chunk], keys[chunk]);
      const Imm imm = immediate(came[size_t{2} * chunk + 1]);
      EXPECT_EQ(imm.type, ImmType::kAnswerInvalidated);
      EXPECT_EQ(decode_answer(imm.payload).request_id, chunk);
      EXPECT_TRUE(data_came(chunk));
    }
    post_receives(size_t{2} * kDepth);
  }
}

}  // namespace
}  // namespace braid::trs
