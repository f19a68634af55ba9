// The verbs contract, asynchronous events: what no completion tells, once, and nothing else.
#include <gtest/gtest.h>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

class ConformanceAsyncEvents : public Pair {
 protected:
  void reconnect(const EndOptions& server_options = {}) {
    client = End{};
    server = End{};
    connect({}, server_options);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceAsyncEvents, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

TEST_P(ConformanceAsyncEvents, ARefusedRequestTellsTheResponder) {
  struct Case {
    const char* name;
    EndOptions server;
    uint32_t key_change;
    ibv_event_type expected;
  };
  EndOptions read_only;
  read_only.qp_access = IBV_ACCESS_REMOTE_READ;
  const Case cases[] = {{"wrong key", {}, 1u << 31, IBV_EVENT_QP_ACCESS_ERR},
                        {"not allowed on the QP", read_only, 0, IBV_EVENT_QP_REQ_ERR}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    reconnect(each.server);
    ASSERT_EQ(post_recv(server, 71, 4096, 64), 0);
    SendWr wr = work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 64);
    wr.wr.rdma.rkey ^= each.key_change;
    ASSERT_EQ(post_send(client, wr), 0);
    const AsyncEvent event = next_event(kServer);
    EXPECT_EQ(event.type, each.expected);
    EXPECT_EQ(event.qp, server.qp.get());
    EXPECT_EQ(event.cq, nullptr);
    EXPECT_EQ(server.qp->query().qp_state, IBV_QPS_ERR);
    EXPECT_TRUE(no_events()) << "the initiator has a completion";
  }
}

TEST_P(ConformanceAsyncEvents, AnOverrunCqTellsOfItselfAndFailsItsQp) {
  connect({.cq_capacity = 4});
  for (uint64_t i = 0; i < 6; ++i) {
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, i, 0, 8)), 0);
  }
  // Unpolled: run_until() would make room.
  rig->settle();
  const std::optional<AsyncEvent> first = rig->device(kClient).next_async_event();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(first->cq, client.send_cq.get());
  EXPECT_EQ(first->qp, nullptr);
  const std::optional<AsyncEvent> second = rig->device(kClient).next_async_event();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(second->qp, client.qp.get());
  EXPECT_TRUE(no_events());
}

TEST_P(ConformanceAsyncEvents, TheEventWakesWhoSleeps) {
  connect();
  base::Reactor& reactor = rig->reactor(kServer);
  struct Seen : base::Watch {
    Device* device = nullptr;
    std::optional<AsyncEvent> event;
  } seen;
  seen.device = &rig->device(kServer);
  seen.ready = [](base::Watch& watch) {
    auto& self = static_cast<Seen&>(watch);
    if (const auto event = self.device->next_async_event()) self.event = event;
  };
  reactor.io().watch(rig->device(kServer).async_event(), seen);
  SendWr wr = work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 64);
  wr.wr.rdma.rkey = 0;
  ASSERT_EQ(post_send(client, wr), 0);
  EXPECT_TRUE(run_until([&] { return seen.event.has_value(); }));
  reactor.io().unwatch(seen);
  ASSERT_TRUE(seen.event.has_value());
  EXPECT_EQ(seen.event->type, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_P(ConformanceAsyncEvents, WhatACompletionTellsIsNoEvent) {
  // A receive that is too short, one that may not be written, and a receive that never came.
  connect();
  ASSERT_EQ(post_recv(server, 71, 4096, 4), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), 0);
  EXPECT_EQ(next_received(server).status, IBV_WC_LOC_LEN_ERR);
  EXPECT_TRUE(no_events());

  reconnect();
  Sge sge{server.address(0), 64, server.mr->lkey ^ (1u << 30)};
  RecvWr wr{71, nullptr, &sge, 1};
  const RecvWr* bad = nullptr;
  ASSERT_EQ(server.qp->post_recv(&wr, &bad), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), 0);
  EXPECT_EQ(next_received(server).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(no_events());

  // A local error, a disconnect.
  reconnect();
  SendWr local = work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 8);
  local.sg_list->lkey = 0;
  ASSERT_EQ(post_send(client, local), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(no_events());
  reconnect();
  server.connection->disconnect();
  EXPECT_TRUE(run_until([&] { return state_of(client) == IBV_QPS_ERR; }));
  EXPECT_TRUE(no_events());
}

TEST_P(ConformanceAsyncEvents, EventsOfWhatIsGoneOrBeganAnewAreGone) {
  const auto fail_server = [&] {
    SendWr wr = work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 64);
    wr.wr.rdma.rkey = 0;
    ASSERT_EQ(post_send(client, wr), 0);
    ASSERT_EQ(state_of(server), IBV_QPS_ERR);
  };
  connect();
  fail_server();
  server.connection.reset();
  server.qp.reset();
  EXPECT_TRUE(no_events());

  reconnect();
  fail_server();
  QpAttr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_TRUE(server.qp->modify(attr, IBV_QP_STATE).ok());
  EXPECT_TRUE(no_events());

  client = End{};
  server = End{};
  connect({.cq_capacity = 4});
  for (uint64_t i = 0; i < 6; ++i) {
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, i, 0, 8)), 0);
  }
  rig->settle();
  client = End{};
  EXPECT_FALSE(rig->device(kClient).next_async_event().has_value());
}

}  // namespace
}  // namespace braid::vhca::conformance
