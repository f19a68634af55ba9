// The verbs contract: CQs that change their size, send queues that are drained.
#include <gtest/gtest.h>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

class ConformanceResize : public Pair {
 protected:
  void SetUp() override {
    Pair::SetUp();
    if (IsSkipped()) return;
    const auto cq = std::move(*rig->device(kClient).create_cq({}));
    if (cq->resize(512).code() == base::Errc::kNotSupported) {
      GTEST_SKIP() << GetParam().name << ": the device does not resize CQs";
    }
  }
};
using ConformanceDrain = Pair;

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceResize, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });
INSTANTIATE_TEST_SUITE_P(Devices, ConformanceDrain, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

base::Status to_sqd(Qp& qp, bool notify) {
  QpAttr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = notify ? 1 : 0;
  return qp.modify(attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
}

base::Status to_rts(Qp& qp) {
  QpAttr attr{};
  attr.qp_state = IBV_QPS_RTS;
  return qp.modify(attr, IBV_QP_STATE);
}

TEST_P(ConformanceResize, ALargerCqTakesMoreAndKeepsWhatWaits) {
  connect({.cq_capacity = 4});
  const auto write = [&](uint64_t wr_id) {
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, wr_id, 0, 8)), 0);
    rig->settle();
  };
  for (uint64_t i = 0; i < 3; ++i) write(i);
  Wc wc[1];
  ASSERT_EQ(client.send_cq->poll(wc), 1);  // so that the ring does not begin at its beginning
  EXPECT_EQ(wc[0].wr_id, 0u);
  write(3);
  ASSERT_TRUE(client.send_cq->resize(40).ok());
  EXPECT_GE(client.send_cq->capacity(), 40);
  for (uint64_t i = 4; i < 40; ++i) write(i);
  for (uint64_t i = 1; i < 40; ++i) {
    const Wc done = next_sent(client);
    EXPECT_EQ(done.wr_id, i);
    EXPECT_EQ(done.status, IBV_WC_SUCCESS);
  }
}

TEST_P(ConformanceResize, ASmallerCqHoldsWhatWaitsOrIsRefused) {
  connect({.cq_capacity = 64});
  for (uint64_t i = 0; i < 10; ++i) {
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, i, 0, 8)), 0);
  }
  rig->settle();
  EXPECT_EQ(client.send_cq->resize(8).code(), base::Errc::kInvalid);
  EXPECT_EQ(client.send_cq->resize(0).code(), base::Errc::kInvalid);
  EXPECT_EQ(client.send_cq->resize(1 << 30).code(), base::Errc::kInvalid);
  EXPECT_GE(client.send_cq->capacity(), 64) << "nothing changed";
  ASSERT_TRUE(client.send_cq->resize(16).ok());
  EXPECT_LT(client.send_cq->capacity(), 64);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(next_sent(client).wr_id, i);
}

TEST_P(ConformanceDrain, AnIdleQueueIsDrainedAtOnce) {
  connect();
  ASSERT_TRUE(to_sqd(*client.qp, true).ok());
  const AsyncEvent event = next_event(kClient);
  EXPECT_EQ(event.type, IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(event.qp, client.qp.get());
  EXPECT_EQ(client.qp->query().sq_draining, 0);
  EXPECT_TRUE(no_events());
  ASSERT_TRUE(to_rts(*client.qp).ok());
  ASSERT_TRUE(to_sqd(*client.qp, false).ok());
  EXPECT_TRUE(no_events()) << "not asked for";
}

TEST_P(ConformanceDrain, WhatHadBegunIsFinishedWhatCameLaterWaits) {
  connect();
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 64)), 0);
  EXPECT_TRUE(quiet(client)) << "no receive";
  ASSERT_TRUE(to_sqd(*client.qp, true).ok());
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 2, 0, 64)), 0);
  EXPECT_TRUE(no_events());
  EXPECT_EQ(client.qp->query().sq_draining, 1);
  ASSERT_EQ(post_recv(server, 71, 4096, 64), 0);
  EXPECT_EQ(next_sent(client).wr_id, 1u);
  EXPECT_EQ(next_event(kClient).type, IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(client.qp->query().sq_draining, 0);
  EXPECT_TRUE(quiet(client)) << "posted in SQD";
  ASSERT_TRUE(to_rts(*client.qp).ok());
  EXPECT_EQ(next_sent(client).wr_id, 2u);
  EXPECT_TRUE(no_events());
}

TEST_P(ConformanceDrain, ResetAndErrorForgetTheWish) {
  connect();
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 64)), 0);
  ASSERT_TRUE(to_sqd(*client.qp, true).ok());
  QpAttr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_TRUE(client.qp->modify(attr, IBV_QP_STATE).ok());
  expect_flush(client, *client.send_cq, {1});
  EXPECT_TRUE(no_events());
}

}  // namespace
}  // namespace braid::vhca::conformance
