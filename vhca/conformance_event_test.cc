// The verbs contract, completion channels: events come when armed, once, and none is lost.
#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

using ConformanceEvents = Pair;

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceEvents, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

/// The CQ with an event; waits for one.
Cq* wait_event(Rig& rig, CompChannel& channel) {
  Cq* cq = nullptr;
  rig.run_until([&] {
    cq = channel.next_event();
    return cq != nullptr;
  });
  return cq;
}

TEST_P(ConformanceEvents, AnArmedCqTellsOfItsNextCompletionOnce) {
  connect({}, {.with_channel = true});
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post_recv(server, i, 0, 64), 0);
  server.recv_cq->arm();
  rig->settle();
  EXPECT_EQ(server.channel->next_event(), nullptr) << "nothing has come yet";
  for (uint64_t i = 0; i < 2; ++i) {
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, i, 0, 8)), 0);
  }
  EXPECT_EQ(wait_event(*rig, *server.channel), server.recv_cq.get());
  server.recv_cq->ack_events(1);
  rig->settle();
  EXPECT_EQ(server.channel->next_event(), nullptr) << "one arming, one event";
  EXPECT_EQ(next_received(server).wr_id, 0u);
  EXPECT_EQ(next_received(server).wr_id, 1u);
  // Not armed: silence.
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 2, 0, 8)), 0);
  rig->settle();
  EXPECT_EQ(server.channel->next_event(), nullptr);
}

TEST_P(ConformanceEvents, WhoTakesAnArmingBackIsToldNothingAndMayArmAgain) {
  connect({}, {.with_channel = true});
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post_recv(server, i, 0, 64), 0);
  const auto send = [&] {
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), 0);
  };
  for (uint64_t i = 0; i < 4; i += 2) {
    server.recv_cq->arm();
    server.recv_cq->disarm();
    send();
    rig->settle();
    EXPECT_EQ(server.channel->next_event(), nullptr);
    EXPECT_EQ(next_received(server).wr_id, i);
    server.recv_cq->arm();
    send();
    EXPECT_EQ(wait_event(*rig, *server.channel), server.recv_cq.get());
    EXPECT_EQ(next_received(server).wr_id, i + 1);
  }
}

TEST_P(ConformanceEvents, ALocalCompletionTellsToo) {
  connect({.with_channel = true}, {});
  client.send_cq->arm();
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 8)), 0);
  EXPECT_EQ(wait_event(*rig, *client.channel), client.send_cq.get());
  EXPECT_EQ(next_sent(client).wr_id, 1u);
}

TEST_P(ConformanceEvents, SolicitedOnlyWaitsForASolicitedOrFailedOne) {
  connect({}, {.with_channel = true});
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post_recv(server, i, 0, 64), 0);
  server.recv_cq->arm(true);
  SendWr wr = work(client, server, IBV_WR_SEND, 1, 0, 8);
  ASSERT_EQ(post_send(client, wr), 0);
  rig->settle();
  EXPECT_EQ(server.channel->next_event(), nullptr);
  wr.send_flags |= IBV_SEND_SOLICITED;
  ASSERT_EQ(post_send(client, wr), 0);
  EXPECT_EQ(wait_event(*rig, *server.channel), server.recv_cq.get());
  EXPECT_EQ(next_received(server).wr_id, 0u);
  EXPECT_EQ(next_received(server).wr_id, 1u);

  server.recv_cq->arm(true);
  server.connection->disconnect();
  EXPECT_EQ(wait_event(*rig, *server.channel), server.recv_cq.get()) << "a failed one";
}

TEST_P(ConformanceEvents, ASleeperIsToldOfTheEndOfTheConnection) {
  connect({}, {.with_channel = true});
  ASSERT_EQ(post_recv(server, 71, 0, 64), 0);
  server.recv_cq->arm();
  client.connection->disconnect();
  EXPECT_EQ(wait_event(*rig, *server.channel), server.recv_cq.get());
  expect_flush(server, *server.recv_cq, {71});
}

TEST_P(ConformanceEvents, OneChannelServesSeveralCqs) {
  connect({.with_channel = true}, {});
  client.send_cq->arm();
  client.recv_cq->arm();
  ASSERT_EQ(post_recv(client, 71, 0, 64), 0);
  ASSERT_EQ(post_send(server, work(server, client, IBV_WR_SEND, 1, 0, 8)), 0);
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, 1, 0, 8)), 0);
  Cq* const first = wait_event(*rig, *client.channel);
  Cq* const second = wait_event(*rig, *client.channel);
  EXPECT_NE(first, second);
  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, nullptr);
}

/// Asks its channel when it is woken, until there is none.
class Woken {
 public:
  Woken(base::Reactor& reactor, CompChannel& channel) : reactor_(reactor), channel_(channel) {
    watch_.ready = [](base::Watch& watch) { static_cast<Woken*>(watch.context)->ask(); };
    watch_.context = this;
    reactor_.io().watch(channel_.event(), watch_);
    reactor_.wake();
  }
  ~Woken() { reactor_.io().unwatch(watch_); }
  std::set<Cq*> told;

 private:
  void ask() {
    do {
      while (Cq* cq = channel_.next_event()) {
        cq->ack_events(1);
        told.insert(cq);
      }
    } while (channel_.more());
  }
  base::Reactor& reactor_;
  CompChannel& channel_;
  base::Watch watch_;
};

TEST_P(ConformanceEvents, AWakeUpForTwoCqsTellsOfBoth) {
  connect({.with_channel = true}, {});
  Woken woken(rig->reactor(kClient), *client.channel);
  for (uint64_t round = 0; round < 20; ++round) {
    ASSERT_EQ(post_recv(client, round, 0, 64), 0);
    client.send_cq->arm();
    client.recv_cq->arm();
    // One tells of itself, the other is found by a look; nobody runs in between.
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_RDMA_WRITE, round, 0, 8)), 0);
    ASSERT_EQ(post_send(server, work(server, client, IBV_WR_SEND, round, 0, 8)), 0);
    ASSERT_TRUE(rig->run_until([&] { return woken.told.size() == 2; })) << "lost in " << round;
    woken.told.clear();
    EXPECT_EQ(next_sent(client).wr_id, round);
    EXPECT_EQ(next_received(client).wr_id, round);
    EXPECT_EQ(next_sent(server).wr_id, round);
  }
}

TEST_P(ConformanceEvents, AnEventOfOneOfManyCqsIsGivenOut) {
  connect({}, {.with_channel = true});
  std::deque<std::unique_ptr<Cq>> others;
  const auto add = [&] {
    auto made = rig->device(kServer).create_cq({.capacity = 4, .channel = server.channel.get()});
    ASSERT_TRUE(made.ok()) << made.error().message();
    others.push_back(std::move(*made));
    others.back()->arm();
  };
  for (int i = 0; i < 200; ++i) add();
  for (uint64_t i = 0; i < 300; ++i) {
    ASSERT_EQ(post_recv(server, i, 0, 64), 0);
    while (server.channel->next_event() != nullptr || server.channel->more()) {
    }
    server.recv_cq->arm();
    ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, i, 0, 8)), 0);
    Cq* cq = nullptr;
    ASSERT_TRUE(rig->run_until([&] {
      cq = server.channel->next_event();
      // While it looks, others come and go.
      if (cq == nullptr && server.channel->more()) add();
      return cq != nullptr;
    })) << "lost in round "
        << i;
    EXPECT_EQ(cq, server.recv_cq.get());
    server.recv_cq->ack_events(1);
    EXPECT_EQ(next_received(server).wr_id, i);
    while (others.size() > 200) others.pop_front();
  }
}

/// Answers each message from a poller of a reactor that sleeps whenever it can.
class Echo final : public base::Poller {
 public:
  Echo(base::Reactor& reactor, End& end, const SendWr& answer)
      : reactor_(reactor), end_(end), answer_(answer) {
    watch_.ready = [](base::Watch& watch) { static_cast<Echo*>(watch.context)->woken(); };
    watch_.context = this;
    reactor_.io().watch(end_.channel->event(), watch_);
    reactor_.add(*this);
  }
  ~Echo() override { reactor_.io().unwatch(watch_); }

  bool poll() override {
    Wc wc[4];
    bool any = false;
    while (end_.send_cq->poll(wc) > 0) any = true;
    for (int n; (n = end_.recv_cq->poll(wc)) > 0;) {
      any = true;
      for (int i = 0; i < n; ++i) answer(wc[i]);
    }
    return any;
  }
  bool arm() override {
    end_.recv_cq->arm();
    end_.send_cq->arm();
    ++arms;
    return !poll();
  }

  uint64_t received = 0;
  uint64_t failed = 0;
  uint64_t arms = 0;

 private:
  void woken() {
    while (Cq* cq = end_.channel->next_event()) cq->ack_events(1);
  }
  void answer(const Wc& wc) {
    if (wc.status != IBV_WC_SUCCESS) {
      ++failed;
      return;
    }
    ++received;
    RecvWr recv{wc.wr_id, nullptr, nullptr, 0};
    const RecvWr* bad_recv = nullptr;
    const SendWr* bad = nullptr;
    if (end_.qp->post_recv(&recv, &bad_recv) != 0 || end_.qp->post_send(&answer_, &bad) != 0) {
      ++failed;
    }
  }
  base::Reactor& reactor_;
  End& end_;
  const SendWr answer_;
  base::Watch watch_;
};

TEST_P(ConformanceEvents, NoWakeUpIsLostBetweenSleepers) {
  const uint64_t rounds = GetParam().slow ? 300 : 3000;
  connect({.with_channel = true}, {.with_channel = true});
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(post_recv_without_sge(client, i), 0);
    ASSERT_EQ(post_recv_without_sge(server, i), 0);
  }
  const SendWr ping = work(client, server, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 8);
  const SendWr pong = work(server, client, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 8);
  Echo client_echo(rig->reactor(kClient), client, ping);
  Echo server_echo(rig->reactor(kServer), server, pong);
  rig->reactor(kClient).wake();
  rig->reactor(kServer).wake();
  ASSERT_EQ(post_send(client, ping), 0);
  ASSERT_TRUE(rig->run_until([&] { return client_echo.received >= rounds; }))
      << "stuck after " << client_echo.received;
  EXPECT_EQ(client_echo.failed + server_echo.failed, 0u);
  if (GetParam().virtual_time) {
    EXPECT_GT(client_echo.arms, rounds / 2) << "they hardly slept";
  }
}

TEST_P(ConformanceEvents, ASenderThatSleepsTriesAgainWhenTheReceiveComes) {
  connect({.with_channel = true}, {});
  client.send_cq->arm();
  ASSERT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), 0);
  rig->settle();
  ASSERT_EQ(post_recv(server, 71, 0, 64), 0);
  // Nobody polls the client's CQ: the owner moves only when the event wakes it.
  Cq* cq = nullptr;
  ASSERT_TRUE(rig->run_until([&] {
    cq = client.channel->next_event();
    return cq != nullptr;
  })) << "nobody woke the sender";
  EXPECT_EQ(cq, client.send_cq.get());
  EXPECT_EQ(next_sent(client).status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace braid::vhca::conformance
