// The connection manager's contract: private data, reject, refusal, time-outs, disconnect, death.
#include <gtest/gtest.h>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

using base::Errc;
using base::Result;
using base::Task;

/// A server that has accepted nothing yet.
class ConformanceCm : public Pair {
 protected:
  void listen(int backlog = 4) {
    listener = std::move(
        *rig->device(kServer).listen(rig->reactor(kServer), rig->server_address(), backlog));
  }
  /// Starts to connect; the result comes to `*to`.
  void start_connect(Qp& qp, const ConnectParameters& parameters,
                     std::optional<Result<ConnectResult>>* to,
                     uint64_t timeout_ns = 20 * base::kSecond) {
    base::Reactor& reactor = rig->reactor(kClient);
    reactor.spawn(
        keep(rig->device(kClient).connect(reactor, qp, listener->address(), parameters, timeout_ns),
             to));
    reactor.wake();
  }
  Result<ConnectResult> connect_to(const Address& address, Qp& qp,
                                   const ConnectParameters& parameters = {},
                                   uint64_t timeout_ns = 20 * base::kSecond) {
    return run(kClient, rig->device(kClient).connect(rig->reactor(kClient), qp, address, parameters,
                                                     timeout_ns));
  }
  std::unique_ptr<ConnectRequest> next_request() {
    auto request = run(kServer, listener->next());
    EXPECT_TRUE(request.ok());
    return std::move(*request);
  }

  /// What came is what was sent; then zeroes, if the devices pad.
  static void expect_private_data(std::span<const std::byte> came,
                                  const std::vector<std::byte>& sent) {
    ASSERT_GE(came.size(), sent.size());
    EXPECT_EQ(copy(came.first(sent.size())), sent);
    const auto padding = came.subspan(sent.size());
    EXPECT_TRUE(padding.empty() || GetParam().pads_private_data);
    for (const std::byte each : padding) EXPECT_EQ(each, std::byte{0});
  }
  static std::vector<std::byte> copy(std::span<const std::byte> data) {
    return {data.begin(), data.end()};
  }

  std::unique_ptr<Listener> listener;

 private:
  static Task<void> keep(Task<Result<ConnectResult>> task,
                         std::optional<Result<ConnectResult>>* to) {
    to->emplace(co_await std::move(task));
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceCm, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

std::vector<std::byte> bytes(size_t count, int seed) {
  std::vector<std::byte> data(count);
  for (size_t i = 0; i < count; ++i)
    data[i] = static_cast<std::byte>(i * 3 + static_cast<size_t>(seed));
  return data;
}
// --- private data

TEST_P(ConformanceCm, PrivateDataOfAllSizesReachesTheOtherSide) {
  for (const auto& [from_client, from_server] :
       {std::pair<size_t, size_t>{0, 0}, {1, 1}, {56, 196}}) {
    client.clear();
    server.clear();
    const auto hello = bytes(from_client, 1);
    const auto answer = bytes(from_server, 2);
    ConnectParameters client_parameters, server_parameters;
    client_parameters.private_data = hello;
    server_parameters.private_data = answer;
    client = make_end(kClient);
    server = make_end(kServer);
    listen();
    std::optional<Result<ConnectResult>> connected;
    start_connect(*client.qp, client_parameters, &connected);
    const auto request = next_request();
    expect_private_data(request->private_data(), hello);
    EXPECT_FALSE(request->peer_text().empty());
    auto accepted =
        run(kServer, request->accept(rig->reactor(kServer), *server.qp, server_parameters));
    ASSERT_TRUE(accepted.ok()) << accepted.error().message();
    ASSERT_TRUE(rig->run_until([&] { return connected.has_value(); }));
    ASSERT_TRUE(connected->ok()) << connected->error().message();
    client.connection = std::move((*connected)->connection);
    server.connection = std::move(*accepted);
    ASSERT_NE(client.connection, nullptr);
    expect_private_data(client.connection->peer_private_data(), answer);
    EXPECT_FALSE(client.connection->disconnected());
    EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_RTS);
    EXPECT_EQ(server.qp->query().qp_state, IBV_QPS_RTS);
  }
}

TEST_P(ConformanceCm, MorePrivateDataThanFitsIsRefusedAtHome) {
  client = make_end(kClient);
  server = make_end(kServer);
  listen();
  const auto hello = bytes(57, 1);
  ConnectParameters parameters;
  parameters.private_data = hello;
  EXPECT_EQ(connect_to(listener->address(), *client.qp, parameters).code(), Errc::kInvalid);

  std::optional<Result<ConnectResult>> connected;
  start_connect(*client.qp, {}, &connected);
  const auto request = next_request();
  const auto answer = bytes(197, 1);
  parameters.private_data = answer;
  EXPECT_EQ(run(kServer, request->accept(rig->reactor(kServer), *server.qp, parameters)).code(),
            Errc::kInvalid);
  // Nothing was decided by that.
  parameters.private_data = {};
  EXPECT_TRUE(run(kServer, request->accept(rig->reactor(kServer), *server.qp, parameters)).ok());
  ASSERT_TRUE(rig->run_until([&] { return connected.has_value(); }));
}

TEST_P(ConformanceCm, WhatIsBeyondABoundIsRefusedAtHomeByName) {
  using Set = void (*)(ConnectParameters&);
  const std::pair<const char*, Set> beyond[] = {
      {"retry_count", [](ConnectParameters& p) { p.retry_count = 8; }},
      {"rnr_retry_count", [](ConnectParameters& p) { p.rnr_retry_count = 8; }},
      {"ack_timeout", [](ConnectParameters& p) { p.ack_timeout = 32; }},
      {"ack_timeout", [](ConnectParameters& p) { p.ack_timeout = 255; }},
      {"responder_resources", [](ConnectParameters& p) { p.responder_resources = 17; }},
      {"initiator_depth", [](ConnectParameters& p) { p.initiator_depth = 17; }}};
  ConnectParameters most;
  most.retry_count = most.rnr_retry_count = 7;
  most.ack_timeout = 31;
  client = make_end(kClient);
  server = make_end(kServer);
  listen();
  const auto parameters_of = [](Set set) {
    ConnectParameters parameters;
    set(parameters);
    return parameters;
  };
  for (const auto& [name, set] : beyond) {
    const auto result = connect_to(listener->address(), *client.qp, parameters_of(set));
    ASSERT_EQ(result.code(), Errc::kInvalid) << name;
    EXPECT_NE(result.error().message().find(name), std::string::npos) << result.error().message();
    EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_RESET);
  }
  std::optional<Result<ConnectResult>> connected;
  start_connect(*client.qp, most, &connected);
  const auto request = next_request();  // the first that the server hears of
  for (const auto& [name, set] : beyond) {
    const auto result =
        run(kServer, request->accept(rig->reactor(kServer), *server.qp, parameters_of(set)));
    ASSERT_EQ(result.code(), Errc::kInvalid) << name;
    EXPECT_NE(result.error().message().find(name), std::string::npos) << result.error().message();
  }
  EXPECT_FALSE(connected.has_value()) << "nothing was decided by that";
  auto accepted = run(kServer, request->accept(rig->reactor(kServer), *server.qp, most));
  ASSERT_TRUE(accepted.ok()) << accepted.error().message();
  ASSERT_TRUE(rig->run_until([&] { return connected.has_value(); }));
  ASSERT_TRUE(connected->ok()) << connected->error().message();
  client.connection = std::move((*connected)->connection);
  server.connection = std::move(*accepted);
  EXPECT_NE(client.connection, nullptr);
}

TEST_P(ConformanceCm, ReceivesPostedBeforeConnectingCount) {
  client = make_end(kClient, {.qp_access = IBV_ACCESS_REMOTE_WRITE});
  server = make_end(kServer, {.qp_access = IBV_ACCESS_REMOTE_WRITE});
  ASSERT_EQ(post_recv(server, 71, 4096, 64), 0);
  ASSERT_EQ(post_recv(client, 72, 4096, 64), 0);
  listen();
  ConnectParameters parameters;
  parameters.rnr_retry_count = 0;
  std::optional<Result<ConnectResult>> connected;
  start_connect(*client.qp, parameters, &connected);
  const auto request = next_request();
  auto accepted = run(kServer, request->accept(rig->reactor(kServer), *server.qp, parameters));
  ASSERT_TRUE(accepted.ok());
  server.connection = std::move(*accepted);
  // The acceptor may speak as soon as its accept() is done.
  ASSERT_EQ(post_send(server, work(server, client, IBV_WR_SEND, 1, 0, 8)), 0);
  EXPECT_EQ(next_received(client).wr_id, 72u);
  ASSERT_TRUE(rig->run_until([&] { return connected.has_value(); }));
  client.connection = std::move((*connected)->connection);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 2, 0, 8)), 0);
  EXPECT_EQ(next_received(server).wr_id, 71u);
}

// --- no connection

TEST_P(ConformanceCm, ARejectIsAResultWithItsData) {
  client = make_end(kClient);
  listen();
  for (const size_t size : {size_t{0}, size_t{148}}) {
    const auto data = bytes(size, 7);
    std::optional<Result<ConnectResult>> connected;
    start_connect(*client.qp, {}, &connected);
    next_request()->reject(data);
    ASSERT_TRUE(rig->run_until([&] { return connected.has_value(); }));
    ASSERT_TRUE(connected->ok()) << connected->error().message();
    EXPECT_EQ((*connected)->connection, nullptr);
    expect_private_data((*connected)->reject_private_data, data);
    EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_RESET) << "the QP can try again";
  }
}

TEST_P(ConformanceCm, ARequestDroppedUndecidedIsRejectedWithoutData) {
  client = make_end(kClient);
  listen();
  std::optional<Result<ConnectResult>> connected;
  start_connect(*client.qp, {}, &connected);
  next_request().reset();
  ASSERT_TRUE(rig->run_until([&] { return connected.has_value(); }));
  ASSERT_TRUE(connected->ok());
  EXPECT_EQ((*connected)->connection, nullptr);
  expect_private_data((*connected)->reject_private_data, {});
}

TEST_P(ConformanceCm, NobodyListensIsRefused) {
  client = make_end(kClient);
  EXPECT_EQ(connect_to(rig->server_address(), *client.qp).code(), Errc::kRefused);
  listen();
  const Address address = listener->address();
  listener.reset();
  EXPECT_EQ(connect_to(address, *client.qp).code(), Errc::kRefused);
}

TEST_P(ConformanceCm, APeerThatDoesNotDecideTimesOutAndAcceptingLaterFails) {
  client = make_end(kClient);
  server = make_end(kServer);
  listen();
  std::optional<Result<ConnectResult>> connected;
  start_connect(*client.qp, {}, &connected, GetParam().connect_ns);
  const auto request = next_request();
  ASSERT_TRUE(rig->run_until([&] { return connected.has_value(); }));
  EXPECT_EQ(connected->code(), Errc::kTimedOut);
  EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_RESET);
  rig->settle();
  const auto late = run(kServer, request->accept(rig->reactor(kServer), *server.qp, {}));
  EXPECT_EQ(late.code(), Errc::kDisconnected) << (late.ok() ? "" : late.error().message());
}

TEST_P(ConformanceCm, OnlyAQpInResetOrInitCanBeConnected) {
  connect();
  listen();
  const auto result = connect_to(listener->address(), *client.qp);
  EXPECT_EQ(result.code(), Errc::kInvalid);
  EXPECT_NE(result.error().message().find("RTS"), std::string::npos);
}

TEST_P(ConformanceCm, RequestsBeyondTheBacklogAreRefused) {
  listen(2);
  std::vector<End> ends(3);
  std::optional<Result<ConnectResult>> connected[3];
  for (int i = 0; i < 3; ++i) {
    ends[static_cast<size_t>(i)] = make_end(kClient);
    start_connect(*ends[static_cast<size_t>(i)].qp, {}, &connected[i]);
    rig->settle();
  }
  ASSERT_TRUE(connected[2].has_value());
  EXPECT_EQ(connected[2]->code(), Errc::kRefused);
  EXPECT_FALSE(connected[0].has_value());
  next_request().reset();
  next_request().reset();
  EXPECT_TRUE(rig->run_until([&] { return connected[0].has_value() && connected[1].has_value(); }));
}

TEST_P(ConformanceCm, AnAddressIsListenedOnByOne) {
  listen();
  const auto second = rig->device(kServer).listen(rig->reactor(kServer), listener->address(), 4);
  EXPECT_EQ(second.code(), Errc::kExists);
}

TEST_P(ConformanceCm, PortZeroChoosesOne) {
  Address address = rig->server_address();
  address.port = 0;
  auto one = *rig->device(kServer).listen(rig->reactor(kServer), address, 4);
  auto other = *rig->device(kServer).listen(rig->reactor(kServer), address, 4);
  EXPECT_NE(one->address().port, 0);
  EXPECT_NE(one->address().port, other->address().port);
}

TEST_P(ConformanceCm, ClosingAListenerEndsWhoWaits) {
  listen();
  std::optional<Result<std::unique_ptr<ConnectRequest>>> got;
  struct Waiter {
    static Task<void> wait(Task<Result<std::unique_ptr<ConnectRequest>>> task,
                           std::optional<Result<std::unique_ptr<ConnectRequest>>>* to) {
      to->emplace(co_await std::move(task));
    }
  };
  rig->reactor(kServer).spawn(Waiter::wait(listener->next(), &got));
  rig->settle();
  listener.reset();
  ASSERT_TRUE(rig->run_until([&] { return got.has_value(); }));
  EXPECT_EQ(got->code(), Errc::kCanceled);
}

// --- the end of a connection

TEST_P(ConformanceCm, DisconnectFlushesBothEndsAndTellsThePeerOnce) {
  for (const bool by_client : {true, false}) {
    client.clear();
    server.clear();
    connect();
    End& here = by_client ? client : server;
    End& there = by_client ? server : client;
    int told_here = 0;
    int told_there = 0;
    here.connection->on_disconnect([&] { ++told_here; });
    there.connection->on_disconnect([&] { ++told_there; });
    ASSERT_EQ(post_recv(here, 71, 0, 64), 0);
    ASSERT_EQ(post_recv(there, 72, 0, 64), 0);
    here.connection->disconnect();
    here.connection->disconnect();
    EXPECT_TRUE(here.connection->disconnected());
    expect_flush(here, *here.recv_cq, {71});
    expect_flush(there, *there.recv_cq, {72});
    ASSERT_TRUE(run_until([&] { return told_there > 0; }));
    EXPECT_TRUE(there.connection->disconnected());
    rig->settle();
    EXPECT_EQ(told_there, 1);
    EXPECT_EQ(told_here, 0) << "who disconnects knows";
    int told_late = 0;
    there.connection->on_disconnect([&] { ++told_late; });
    EXPECT_EQ(told_late, 1);
  }
}

TEST_P(ConformanceCm, DestroyingAConnectionDisconnects) {
  connect();
  ASSERT_EQ(post_recv(client, 71, 0, 64), 0);
  server.connection.reset();
  expect_flush(client, *client.recv_cq, {71});
  ASSERT_TRUE(run_until([&] { return client.connection->disconnected(); }));
}

TEST_P(ConformanceCm, AQpDestroyedBeforeItsConnectionIsNoTrouble) {
  connect();
  client.qp.reset();
  rig->settle();
  client.connection.reset();
  ASSERT_TRUE(run_until([&] { return server.connection->disconnected(); }));
}

TEST_P(ConformanceCm, AfterResetAQpConnectsAgain) {
  connect();
  client.connection->disconnect();
  ASSERT_TRUE(run_until([&] { return server.connection->disconnected(); }));
  QpAttr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_TRUE(client.qp->modify(attr, IBV_QP_STATE).ok());
  ASSERT_TRUE(server.qp->modify(attr, IBV_QP_STATE).ok());
  client.connection.reset();
  server.connection.reset();
  listen();
  std::optional<Result<ConnectResult>> connected;
  start_connect(*client.qp, {}, &connected);
  const auto request = next_request();
  auto accepted = run(kServer, request->accept(rig->reactor(kServer), *server.qp, {}));
  ASSERT_TRUE(accepted.ok());
  server.connection = std::move(*accepted);
  ASSERT_TRUE(rig->run_until([&] { return connected.has_value(); }));
  client.connection = std::move((*connected)->connection);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 8)), 0);
  EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
}

TEST_P(ConformanceCm, GivingUpWhileConnectingLeavesNothingBehind) {
  client = make_end(kClient);
  listen();
  base::Reactor& reactor = rig->reactor(kClient);
  {
    auto task =
        rig->device(kClient).connect(reactor, *client.qp, listener->address(), {}, base::kSecond);
    task.start();
    rig->settle();
  }
  EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_RESET);
  client.clear();
  auto request = next_request();
  rig->settle();
  server = make_end(kServer);
  EXPECT_FALSE(run(kServer, request->accept(rig->reactor(kServer), *server.qp, {})).ok());
}

TEST_P(ConformanceCm, APeerThatIsKilledIsNoticedAndEverythingCompletes) {
  connect();
  bool told = false;
  client.connection->on_disconnect([&] { told = true; });
  ASSERT_EQ(post_recv(client, 71, 0, 64), 0);
  // Waits for a receive that never comes.
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), 0);
  rig->settle();
  if (!rig->kill_server()) GTEST_SKIP() << "one process here; see conformance_process_test.cc";
  ASSERT_TRUE(rig->run_until([&] { return told; }));
  EXPECT_TRUE(client.connection->disconnected());
  EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_ERR);
  Wc wc;
  ASSERT_EQ(client.send_cq->poll({&wc, 1}), 1);
  EXPECT_EQ(wc.wr_id, 1u);
  EXPECT_TRUE(wc.status == IBV_WC_RETRY_EXC_ERR || wc.status == IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(client.recv_cq->poll({&wc, 1}), 1);
  EXPECT_EQ(wc.wr_id, 71u);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
}

}  // namespace
}  // namespace braid::vhca::conformance
