// What programs see when a port fails (docs/port-faults.md): nothing is lost or doubled while the
// fault is shorter than the connection's retries, and RETRY_EXC when it is not.
#include <gtest/gtest.h>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

/// A fault of one side's port, and what it does to requests of the client.
struct Fault {
  const char* name;
  int side;
  PortFaults faults;
  bool arrives;  // they are executed, and their answers lost
};

const std::vector<Fault>& silent_faults() {
  static const std::vector<Fault> kAll = {
      {"the client's port loses what it sends", kClient, {.lose_sent = true}, false},
      {"the client's port loses what it receives", kClient, {.lose_received = true}, true},
      {"the client's port is a black hole",
       kClient,
       {.lose_sent = true, .lose_received = true},
       false},
      {"the client's port is down", kClient, {.down = true}, false},
      {"the server's port loses what it receives", kServer, {.lose_received = true}, false},
      {"the server's port loses what it sends", kServer, {.lose_sent = true}, true},
      {"the server's port loses its answers", kServer, {.lose_answers = true}, true},
      {"the server's port is a black hole",
       kServer,
       {.lose_sent = true, .lose_received = true},
       false},
      {"the server's port is down", kServer, {.down = true}, false}};
  return kAll;
}

class ConformanceFaults : public Pair {
 protected:
  static constexpr uint32_t kMessages = 8;
  static constexpr uint32_t kBytes = 64;
  static constexpr size_t kCounterAt = 512 * 1024;
  static constexpr size_t kLongAt = 600 * 1024;
  static constexpr uint32_t kLongBytes = 100'000;

  /// Four minutes: no test gets there. Simulated, seven seconds, since what was lost is sent again
  /// after each seventh of it.
  static ConnectParameters patient() {
    ConnectParameters parameters;
    parameters.ack_timeout = GetParam().virtual_time ? 18 : 23;
    return parameters;
  }
  /// Of 0.13 s in all.
  static ConnectParameters impatient() {
    ConnectParameters parameters;
    parameters.ack_timeout = 14;
    parameters.retry_count = 1;
    return parameters;
  }
  static constexpr uint64_t kImpatientNs = (4096ull << 14) * 2;

  /// Gives the client's QP another time-out than that of its connection.
  void change_time_out(uint8_t timeout, uint8_t retry_cnt) {
    QpAttr attr{};
    attr.qp_state = IBV_QPS_SQD;
    ASSERT_TRUE(client.qp->modify(attr, IBV_QP_STATE).ok());
    attr.timeout = timeout;
    attr.retry_cnt = retry_cnt;
    ASSERT_TRUE(client.qp->modify(attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT).ok());
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_TRUE(client.qp->modify(attr, IBV_QP_STATE).ok());
    EXPECT_EQ(client.qp->query().timeout, timeout);
    EXPECT_EQ(client.qp->query().retry_cnt, retry_cnt);
  }
  /// Nothing ends while a write is lost for so long, and it goes on when the port is mended.
  void expect_patience(uint64_t for_ns) {
    if (!fail(kClient, {.lose_sent = true, .lose_received = true})) {
      GTEST_SKIP() << "no faults can be made on this rig";
    }
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 1, 0, kBytes)), 0);
    const uint64_t until_ns = rig->now_ns() + for_ns;
    ASSERT_TRUE(run_until([&] { return rig->now_ns() >= until_ns; }));
    EXPECT_EQ(state_of(client), IBV_QPS_RTS);
    mend();
    EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
  }

  void begin(const ConnectParameters& parameters) {
    client = End{};
    server = End{};
    EndOptions options;
    options.with_channel = true;
    connect(options, options, parameters, parameters);
  }
  bool fail(int side, const PortFaults& faults) { return rig->set_faults(side, faults); }
  void mend() {
    EXPECT_TRUE(fail(kClient, {}));
    EXPECT_TRUE(fail(kServer, {}));
  }

  /// Accepts whoever comes, with whatever result.
  static base::Task<void> accept_late(Listener& listener, base::Reactor& reactor, Qp& qp,
                                      std::unique_ptr<Connection>* to, bool* ended) {
    auto request = co_await listener.next();
    if (request.ok()) {
      const ConnectParameters parameters;
      auto result = co_await (*request)->accept(reactor, qp, parameters);
      if (result.ok()) *to = std::move(*result);
    }
    *ended = true;
  }

  bool armed_ = false;

  uint64_t counter(End& at) const {
    uint64_t value = 0;
    std::memcpy(&value, at.buffer.data() + kCounterAt, sizeof(value));
    return value;
  }
  SendWr add_one(uint64_t wr_id) {
    SendWr wr = work(client, server, IBV_WR_ATOMIC_FETCH_AND_ADD, wr_id, kCounterAt, 8);
    wr.wr.atomic = {.remote_addr = server.address(kCounterAt),
                    .compare_add = 1,
                    .swap = 0,
                    .rkey = server.mr->rkey};
    return wr;
  }
  /// SENDs, a long WRITE, FETCH_ADD, a READ of what the WRITE brought, a last SEND.
  void post_one_of_each() {
    for (uint32_t i = 0; i <= kMessages; ++i) {
      ASSERT_EQ(post_recv(server, 70 + i, 4096 + i * kBytes, kBytes), 0);
      fill(client, i * kBytes, kBytes, static_cast<int>(i));
    }
    fill(client, kLongAt, kLongBytes, 5);
    for (uint32_t i = 0; i < kMessages; ++i) {
      ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, i, i * kBytes, kBytes)), 0);
    }
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, kMessages, kLongAt,
                                     kLongBytes, kLongAt)),
              0);
    ASSERT_EQ(post_send(client, add_one(kMessages + 1)), 0);
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_READ, kMessages + 2, 8192, kBytes,
                                     kLongAt)),
              0);
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, kMessages + 3, kMessages * kBytes,
                                     kBytes)),
              0);
  }
  void expect_one_of_each() {
    for (uint64_t i = 0; i < kMessages + 4; ++i) {
      const Wc wc = next_sent(client);
      ASSERT_EQ(wc.wr_id, i);
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << i;
    }
    for (uint64_t i = 0; i <= kMessages; ++i) {
      const Wc wc = next_received(server);
      ASSERT_EQ(wc.wr_id, 70 + i);
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    }
    EXPECT_TRUE(same(client, 0, server, 4096, (kMessages + 1) * kBytes));
    EXPECT_TRUE(same(client, kLongAt, server, kLongAt, kLongBytes));
    EXPECT_TRUE(same(client, 8192, server, kLongAt, kBytes));
    EXPECT_EQ(counter(server), 1u);
    EXPECT_EQ(counter(client), 0u);
    EXPECT_TRUE(quiet(client));
    EXPECT_TRUE(quiet(server));
  }
};

TEST_P(ConformanceFaults, WhatAPortLosesGoesOnInOrderWhenItIsMended) {
  for (const Fault& fault : silent_faults()) {
    SCOPED_TRACE(fault.name);
    begin(patient());
    std::memset(client.buffer.data() + kCounterAt, 0xff, 8);
    if (!fail(fault.side, fault.faults)) GTEST_SKIP() << "no faults can be made on this rig";
    post_one_of_each();
    EXPECT_TRUE(quiet(client));
    EXPECT_EQ(quiet(server), !fault.arrives);
    EXPECT_EQ(same(client, 0, server, 4096, kBytes), fault.arrives);
    EXPECT_LE(counter(server), fault.arrives ? 1u : 0u);
    mend();
    expect_one_of_each();
  }
}

TEST_P(ConformanceFaults, WhatStaysLostEndsWithRetryExceededWhenItsTimeIsOver) {
  for (const Fault& fault : silent_faults()) {
    SCOPED_TRACE(fault.name);
    begin(impatient());
    if (!fail(fault.side, fault.faults)) GTEST_SKIP() << "no faults can be made on this rig";
    fill(client, 0, kBytes, 3);
    ASSERT_EQ(post_recv(server, 71, 4096, kBytes), 0);
    ASSERT_EQ(post_recv(client, 81, 4096, kBytes), 0);
    const uint64_t began_ns = rig->now_ns();
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, kBytes)), 0);
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 2, 0, kBytes, 8192)), 0);
    const Wc first = next_sent(client);
    const uint64_t took_ns = rig->now_ns() - began_ns;
    EXPECT_EQ(first.wr_id, 1u);
    EXPECT_EQ(first.status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_GE(took_ns, kImpatientNs);
    if (GetParam().virtual_time) {
      EXPECT_LT(took_ns, kImpatientNs + kImpatientNs / 4);
    }
    expect_flush(client, *client.send_cq, {2});
    expect_flush(client, *client.recv_cq, {81});
    EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_ERR);
    EXPECT_EQ(server.buffer[4096] == client.buffer[0], fault.arrives);
    mend();
  }
}

TEST_P(ConformanceFaults, ATimeOutThatIsChangedInSqdHolds) {
  ConnectParameters parameters;
  parameters.ack_timeout = 23;  // four minutes
  begin(parameters);
  if (!fail(kClient, {})) GTEST_SKIP() << "no faults can be made on this rig";
  change_time_out(14, 1);
  ASSERT_TRUE(fail(kClient, {.lose_sent = true, .lose_received = true}));
  const uint64_t began_ns = rig->now_ns();
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 1, 0, kBytes)), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(rig->now_ns() - began_ns, kImpatientNs);
  if (GetParam().virtual_time) {
    EXPECT_LT(rig->now_ns() - began_ns, kImpatientNs + kImpatientNs / 4);
  }
  mend();
}

TEST_P(ConformanceFaults, ATimeOutThatIsMadeLongerInSqdHolds) {
  ConnectParameters parameters;
  parameters.ack_timeout = 10;  // 8 ms
  parameters.retry_count = 1;
  begin(parameters);
  if (!fail(kClient, {})) GTEST_SKIP() << "no faults can be made on this rig";
  change_time_out(18, 7);
  expect_patience(100 * base::kMillisecond);
}

TEST_P(ConformanceFaults, WithoutATimeOutNothingIsGivenUp) {
  ConnectParameters parameters;
  parameters.ack_timeout = 0;
  parameters.retry_count = 0;
  begin(parameters);
  EXPECT_EQ(client.qp->query().timeout, 0);
  expect_patience(100 * base::kMillisecond);
}

TEST_P(ConformanceFaults, ASleeperIsToldWhenTheTimeIsOver) {
  for (const Fault& fault : silent_faults()) {
    SCOPED_TRACE(fault.name);
    begin(impatient());
    if (!fail(fault.side, fault.faults)) GTEST_SKIP() << "no faults can be made on this rig";
    ASSERT_EQ(post_recv(server, 71, 4096, kBytes), 0);
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, kBytes)), 0);
    Wc wc{};
    int count = 0;
    ASSERT_TRUE(rig->run_until([&] {
      // Polls only when the channel says so.
      if (Cq* const with_event = client.channel->next_event(); with_event != nullptr) {
        with_event->ack_events(1);
        client.send_cq->arm();
        count = client.send_cq->poll({&wc, 1});
      } else if (!armed_) {
        armed_ = true;
        client.send_cq->arm();
        count = client.send_cq->poll({&wc, 1});
      }
      return count == 1;
    }));
    EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    armed_ = false;
    mend();
  }
}

TEST_P(ConformanceFaults, OneWayLossLetsTheOtherWayArriveUnanswered) {
  begin(patient());
  if (!fail(kClient, {.lose_sent = true})) GTEST_SKIP() << "no faults can be made on this rig";
  fill(server, 0, kBytes, 4);
  ASSERT_EQ(post_recv(client, 81, 4096, kBytes), 0);
  ASSERT_EQ(post_recv(server, 71, 4096, kBytes), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, kBytes)), 0);
  ASSERT_EQ(post_send(server, work(server, client, IBV_WR_SEND, 2, 0, kBytes)), 0);
  EXPECT_EQ(next_received(client).wr_id, 81u);
  EXPECT_TRUE(same(server, 0, client, 4096, kBytes));
  EXPECT_TRUE(quiet(server));
  mend();
  EXPECT_EQ(next_sent(server).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_received(server).wr_id, 71u);
}

TEST_P(ConformanceFaults, AConnectionThatIsIdleSurvivesAnyFault) {
  for (const Fault& fault : silent_faults()) {
    SCOPED_TRACE(fault.name);
    begin(impatient());
    if (!fail(fault.side, fault.faults)) GTEST_SKIP() << "no faults can be made on this rig";
    const uint64_t until_ns = rig->now_ns() + kImpatientNs * 5 / 4;
    ASSERT_TRUE(run_until([&] { return rig->now_ns() >= until_ns; }));
    EXPECT_EQ(state_of(client), IBV_QPS_RTS);
    EXPECT_EQ(state_of(server), IBV_QPS_RTS);
    mend();
    post_one_of_each();
    expect_one_of_each();
  }
}

TEST_P(ConformanceFaults, ADelayHoldsEachMessageButNotTheirNumber) {
  constexpr uint64_t kDelayNs = 40 * base::kMillisecond;
  begin(patient());
  if (!fail(kClient, {.delay_ns = kDelayNs})) GTEST_SKIP() << "no faults can be made on this rig";
  const uint64_t began_ns = rig->now_ns();
  post_one_of_each();
  const Wc first = next_sent(client);
  EXPECT_GE(rig->now_ns() - began_ns, kDelayNs);
  EXPECT_EQ(first.wr_id, 0u);
  for (uint64_t i = 1; i < kMessages + 4; ++i) {
    const Wc wc = next_sent(client);
    ASSERT_EQ(wc.wr_id, i);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  // One behind the other they would take twelve times as long.
  if (GetParam().virtual_time) {
    EXPECT_LT(rig->now_ns() - began_ns, 2 * kDelayNs);
  }
  for (uint64_t i = 0; i <= kMessages; ++i) EXPECT_EQ(next_received(server).wr_id, 70 + i);
  // Also what is sent when the delay has been there for longer than itself.
  const uint64_t posted_ns = rig->now_ns();
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 99, 0, kBytes)), 0);
  EXPECT_EQ(next_sent(client).wr_id, 99u);
  EXPECT_GE(rig->now_ns() - posted_ns, kDelayNs);
  mend();
}

TEST_P(ConformanceFaults, WhatComesTwiceIsExecutedOnce) {
  begin(patient());
  if (!fail(kClient, {.duplicate = true})) GTEST_SKIP() << "no faults can be made on this rig";
  ASSERT_TRUE(fail(kServer, {.duplicate = true}));
  post_one_of_each();
  expect_one_of_each();
  uint64_t twice = 0;
  for (const int side : {kClient, kServer}) twice += rig->fault_counts(side).duplicated;
  EXPECT_GE(twice, kMessages);
  mend();
}

TEST_P(ConformanceFaults, WhatWaitsForAReceiveWaitsThroughAFaultToo) {
  for (const Fault& fault : silent_faults()) {
    SCOPED_TRACE(fault.name);
    begin(patient());
    fill(client, 0, kBytes, 3);
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, kBytes)), 0);
    EXPECT_TRUE(quiet(client));  // RNR
    if (!fail(fault.side, fault.faults)) GTEST_SKIP() << "no faults can be made on this rig";
    EXPECT_TRUE(quiet(client));
    ASSERT_EQ(post_recv(server, 71, 4096, kBytes), 0);
    EXPECT_TRUE(quiet(client));
    mend();
    EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
    EXPECT_EQ(next_received(server).wr_id, 71u);
    EXPECT_TRUE(same(client, 0, server, 4096, kBytes));
    EXPECT_TRUE(quiet(server));
  }
}

TEST_P(ConformanceFaults, APortThatIsDownSaysSo) {
  PortAttr attr = *rig->device(kServer).query_port(1);
  ASSERT_EQ(attr.state, IBV_PORT_ACTIVE);
  if (!fail(kServer, {.down = true})) GTEST_SKIP() << "no faults can be made on this rig";
  AsyncEvent event = next_event(kServer);
  EXPECT_EQ(event.type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event.port, 1);
  attr = *rig->device(kServer).query_port(1);
  EXPECT_EQ(attr.state, IBV_PORT_DOWN);
  EXPECT_EQ(attr.phys_state, 3);  // Disabled
  EXPECT_EQ(rig->device(kClient).query_port(1)->state, IBV_PORT_ACTIVE);

  mend();
  event = next_event(kServer);
  EXPECT_EQ(event.type, IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(event.port, 1);
  EXPECT_EQ(rig->device(kServer).query_port(1)->state, IBV_PORT_ACTIVE);
  // What nobody takes does not pile up; the last one that is told is what holds.
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(fail(kServer, {.down = true}));
    mend();
  }
  EXPECT_EQ(next_event(kServer).type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(next_event(kServer).type, IBV_EVENT_PORT_ACTIVE);
  EXPECT_TRUE(no_events());
}

TEST_P(ConformanceFaults, AConnectThroughAPortThatIsDownGetsNoAnswer) {
  for (const int side : {kClient, kServer}) {
    SCOPED_TRACE(side == kClient ? "the client's" : "the server's");
    client = make_end(kClient);
    server = make_end(kServer);
    if (!fail(side, {.down = true})) GTEST_SKIP() << "no faults can be made on this rig";
    base::Reactor& reactor = rig->reactor(kServer);
    const auto listener =
        std::move(*rig->device(kServer).listen(reactor, rig->server_address(), 4));
    bool ended = false;
    reactor.spawn(accept_late(*listener, reactor, *server.qp, &server.connection, &ended));
    reactor.wake();
    const auto result =
        run(kClient, rig->device(kClient).connect(rig->reactor(kClient), *client.qp,
                                                  listener->address(), {}, 200 * 1'000'000ull));
    EXPECT_EQ(result.code(), base::Errc::kTimedOut);
    mend();
    rig->settle();
    client = End{};
    ASSERT_TRUE(rig->run_until([&] { return ended || side == kClient; }));
    server.connection.reset();
  }
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceFaults, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

}  // namespace braid::vhca::conformance
