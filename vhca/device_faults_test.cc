// Adapters that fail by themselves: what programs see, on every software device.
#include "vhca/device_faults.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "vhca/conformance/pair.h"

namespace braid::vhca {
namespace {

using conformance::kClient;

class DeviceFaults : public conformance::Pair {
 protected:
  /// Skips devices that nobody can tell to fail.
  void SetUp() override {
    Pair::SetUp();
    auto nothing = strike(DeviceFault::kQpError, 0);
    if (!nothing.ok()) GTEST_SKIP() << nothing.error().message();
    EXPECT_FALSE(*nothing) << "nothing is connected";
  }
  base::Result<bool> strike(DeviceFault fault, uint64_t which) {
    return inject_device_fault(rig->device(kClient), fault, which);
  }
  std::optional<AsyncEvent> event() { return rig->device(kClient).next_async_event(); }
  /// What the other end sends gets no answer that it was done.
  void expect_peer_fails() {
    ASSERT_EQ(post_send(server, work(server, client, IBV_WR_RDMA_WRITE, 5, 0, 8)), 0);
    EXPECT_NE(next_sent(server).status, IBV_WC_SUCCESS);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, DeviceFaults, ::testing::ValuesIn(conformance::rigs()),
                         [](const auto& each) { return each.param.name; });

TEST_P(DeviceFaults, AQueuePairThatFailsByItselfTellsAndIsFlushed) {
  connect();
  ASSERT_EQ(post_recv(client, 71, 4096, 64), 0);
  ASSERT_TRUE(*strike(DeviceFault::kQpError, 3));
  rig->settle();
  const std::optional<AsyncEvent> told = event();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(told->qp, client.qp.get());
  EXPECT_FALSE(event().has_value());
  EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_ERR);
  expect_flush(client, *client.recv_cq, {71});
  expect_peer_fails();
  EXPECT_FALSE(*strike(DeviceFault::kQpError, 0)) << "nothing is left";
}

TEST_P(DeviceFaults, ACqThatIsOverrunByItselfTellsAndFailsItsQps) {
  connect();
  ASSERT_TRUE(*strike(DeviceFault::kCqOverrun, 0));
  rig->settle();
  const std::optional<AsyncEvent> first = event();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->type, IBV_EVENT_CQ_ERR);
  const std::optional<AsyncEvent> second = event();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(second->qp, client.qp.get());
  std::array<Wc, 1> one;
  EXPECT_EQ(first->cq->poll(one), -1);
  EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_ERR);
  expect_peer_fails();
}

}  // namespace
}  // namespace braid::vhca
