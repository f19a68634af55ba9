// Connections that sleep because they are silent: nobody polls them, and each message wakes them at
// once. Heartbeats would hide a wake-up that was lost, so there are none.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "trs/hostile_client_rig.h"
#include "trs/session_rig.h"
#include "trs/threads_rig.h"
#include "trs/wire.h"

namespace braid::trs {
namespace {

using base::kMillisecond;
using testing::on;

constexpr uint64_t kNoHeartbeatsNs = 1000 * base::kSecond;

/// Keeps its reactor awake, as another that is busy would.
class Busy final : public base::Poller {
 public:
  bool poll() override { return true; }
  bool arm() override { return false; }
};

/// (over TCP, other work keeps both reactors awake)
class Sleeping : public testing::SessionRig,
                 public ::testing::WithParamInterface<std::tuple<bool, bool>> {
 protected:
  void SetUp() override {
    const auto [tcp, busy] = GetParam();
    process_size.tcp = tcp;
    world.timing().late_per_million = 0;  // each reactor has its processor
    adjust_server = [](ServerOptions& options) { options.heartbeat.interval_ns = kNoHeartbeatsNs; };
    connect([](ClientOptions& options) { options.heartbeat.interval_ns = kNoHeartbeatsNs; });
    if (busy) server->home().add(server_busy);
    if (busy) client->home().add(client_busy);
    io = client->make_io(Direction::kRead, 0, 4096);
  }
  void TearDown() override {
    server_busy.unlink();
    client_busy.unlink();
  }
  uint64_t polls() const { return server->server->statistics().polls; }
  void fall_asleep() {
    world.run_for(5 * kMillisecond);
    const uint64_t before = polls();
    world.run_for(5 * kMillisecond);
    ASSERT_EQ(polls(), before) << "it is polled still";
    began_ns = world.now_ns();
  }
  void expect_soon(const std::function<bool()>& done, uint64_t limit_ns = kMillisecond) {
    ASSERT_TRUE(until(done));
    EXPECT_LT(world.now_ns() - began_ns, limit_ns);
  }
  void expect_done_soon() {
    expect_soon([&] { return io->done; });
    EXPECT_EQ(io->status, base::Errc::kOk);
  }

  Busy server_busy, client_busy;
  std::unique_ptr<testing::Io> io;
  uint64_t began_ns = 0;
};

INSTANTIATE_TEST_SUITE_P(Wires, Sleeping, ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param) ? "Tcp" : "Messages") +
                                  (std::get<1>(each.param) ? "Busy" : "Idle");
                         });

TEST_P(Sleeping, ARequestWakesTheServerAndItsAnswerTheClient) {
  for (int i = 0; i < 20; ++i) {
    fall_asleep();
    client->submit(*io);
    expect_done_soon();
  }
}

/// After a millisecond of silence they wait for a fence: what comes then is late by one seldom
/// poll, the server's, and not by that of the client, who has asked.
TEST_P(Sleeping, ARequestWhileBothDozeIsAnsweredSoon) {
  const auto answered_in_ns = [&] {
    const uint64_t submitted_ns = world.now_ns();
    client->submit(*io);
    EXPECT_TRUE(until([&] { return io->done; }, 10 * kMillisecond));
    return world.now_ns() - submitted_ns;
  };
  const uint64_t little_ns = 10 * base::kMicrosecond;
  uint64_t awake_ns = 0, dozing_ns = 0, woken_ns = 0;
  for (int i = 0; i < 40; ++i) awake_ns = std::max(awake_ns, answered_in_ns());
  for (uint64_t i = 0; i < 40; ++i) {
    world.run_for(kMillisecond + 100'000 + 1'700 * i);
    dozing_ns = std::max(dozing_ns, answered_in_ns());
    if (HasFailure()) return;
    woken_ns = std::max(woken_ns, answered_in_ns());
  }
  EXPECT_LE(dozing_ns, awake_ns + base::Reactor::kSeldomNs + little_ns);
  EXPECT_LE(woken_ns, awake_ns + little_ns);
}

TEST_P(Sleeping, AnAnswerThatComesLateWakesTheClient) {
  store.hold = true;
  for (int i = 0; i < 20; ++i) {
    client->submit(*io);
    ASSERT_TRUE(until([&] { return !server->held.empty(); }));
    fall_asleep();
    server->release();
    server->home().wake();
    expect_done_soon();
  }
}

TEST_P(Sleeping, TheEndOfAPathIsSeenAtOnce) {
  fall_asleep();
  client->close();
  expect_soon([&] { return client->closed && store.closed == 1; }, 10 * kMillisecond);
}

TEST_P(Sleeping, ANoticeWakesTheClient) {
  fall_asleep();
  server->server->sessions()[0]->raise_notice();
  server->home().wake();
  expect_soon([&] { return client->notice_calls == 1; });
}

/// Two I/O connections of a client on one reactor of the server, of whose turns it has a part, as
/// another session has begun. One of them asks for more than that.
class SleepingBesideAFlood : public testing::HostileClient {
 protected:
  static constexpr size_t kFlood = 60;
  static constexpr uint64_t kTurnMaxNs = 4000;
  SleepingBesideAFlood() : HostileClient({}, 2) {}
  void SetUp() override {
    world.timing().late_per_million = 0;
    world.timing().turn_min_ns = kTurnMaxNs / 2;
    world.timing().turn_max_ns = kTurnMaxNs;
    adjust_server = [](ServerOptions& options) {
      options.reactors.resize(1);
      options.queue_depth = 128;
      options.heartbeat.interval_ns = kNoHeartbeatsNs;
    };
    HostileClient::SetUp();
    handshake();
    io = client->make_io(Direction::kRead, 0, 512);
    for (size_t i = 0; i < kFlood; ++i) {
      flood.push_back(client->make_io(Direction::kRead, 0, 512));
      flood.back()->after = [this](testing::Io& each) {
        ++flooded;
        if (floods) client->submit(each, 0);
      };
      client->submit(*flood.back(), 0);
    }
  }
  void TearDown() override {
    floods = false;
    const auto done = [](const auto& each) { return each->done; };
    ASSERT_TRUE(until([&] { return std::ranges::all_of(flood, done); }));
    HostileClient::TearDown();
  }
  /// By the other connection.
  uint64_t answered_in_ns() {
    const uint64_t submitted_ns = world.now_ns();
    client->submit(*io, 1);
    EXPECT_TRUE(until([&] { return io->done; }, 10 * kMillisecond));
    return world.now_ns() - submitted_ns;
  }

  std::vector<std::unique_ptr<testing::Io>> flood;
  std::unique_ptr<testing::Io> io;
  bool floods = true;
  uint64_t flooded = 0;
};

/// It is polled in each second of the turns in which those that doze are.
TEST_F(SleepingBesideAFlood, WhoDozesHasItsTurn) {
  uint64_t awake_ns = 0, dozing_ns = 0;
  for (int i = 0; i < 40; ++i) awake_ns = std::max(awake_ns, answered_in_ns());
  for (uint64_t i = 0; i < 40; ++i) {
    const uint64_t before = flooded;
    world.run_for(kMillisecond + 100'000 + 1'700 * i);
    ASSERT_GT(flooded, before + kFlood) << "no flood";
    dozing_ns = std::max(dozing_ns, answered_in_ns());
    if (HasFailure()) return;
  }
  EXPECT_LE(dozing_ns, awake_ns + 2 * base::Reactor::kSeldomNs + 4 * kTurnMaxNs);
}

/// (over TCP, the client asks) Heartbeats, each 20 ms, while other work keeps both reactors awake.
class SleepingHeartbeats : public testing::SessionRig,
                           public ::testing::WithParamInterface<std::tuple<bool, bool>> {
 protected:
  static constexpr uint64_t kIntervalNs = 20 * kMillisecond;
  void SetUp() override {
    const auto [tcp, client_asks] = GetParam();
    process_size.tcp = tcp;
    world.timing().late_per_million = 0;
    const uint64_t of_server = client_asks ? kNoHeartbeatsNs : kIntervalNs;
    const uint64_t of_client = client_asks ? kIntervalNs : kNoHeartbeatsNs;
    adjust_server = [=](ServerOptions& options) { options.heartbeat.interval_ns = of_server; };
    connect([=](ClientOptions& options) {
      options.heartbeat.interval_ns = of_client;
      options.features &= ~wire::kFeatureOneThread;  // of both connections
    });
    server->home().add(server_busy);
    client->home().add(client_busy);
    world.run_for(3 * kMillisecond);
  }
  void TearDown() override {
    server_busy.unlink();
    client_busy.unlink();
  }
  uint64_t polls_in(uint64_t duration_ns) {
    const uint64_t before = server->server->statistics().polls;
    world.run_for(duration_ns);
    return server->server->statistics().polls - before;
  }
  Busy server_busy, client_busy;
};

INSTANTIATE_TEST_SUITE_P(Wires, SleepingHeartbeats,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param) ? "Tcp" : "Messages") +
                                  (std::get<1>(each.param) ? "ClientAsks" : "ServerAsks");
                         });

TEST_P(SleepingHeartbeats, KeepNobodyAwake) {
  const auto io = client->make_io(Direction::kRead, 0, 4096);
  client->submit(*io);
  const uint64_t of_a_request = polls_in(3 * kMillisecond);
  ASSERT_TRUE(io->done);
  constexpr unsigned kIntervals = 10;
  const uint64_t of_heartbeats = polls_in(kIntervals * kIntervalNs);
  EXPECT_GT(of_heartbeats, kIntervals) << "there are none";
  EXPECT_LT(of_heartbeats, kIntervals * of_a_request / 3);
}

/// The same in shared memory, between threads.
class SleepingThreads : public ::testing::Test, protected testing::ThreadsRig {
 protected:
  class User final : public ServerUser {
   public:
    void session_opened(ServerSession&) override {}
    void session_closed(ServerSession&) override {}
    void request(ServerRequest& request) override { request.answer(base::Errc::kOk); }
  };
  SleepingThreads() : ThreadsRig(user_, {.memory_bytes = 4096}) {}
  ~SleepingThreads() override { take_down(); }
  uint64_t polls() {
    uint64_t count = 0;
    on(server_threads_[0], [&] { count = server_->statistics().polls; });
    return count;
  }
  /// Each question is a turn of the server's reactor, in which who is awake is polled.
  void wait_for_sleep() {
    wait_until("the server's connections do not fall asleep", [&] {
      const uint64_t before = polls();
      return polls() == before && polls() == before;
    });
  }

  User user_;
};

TEST_F(SleepingThreads, ARequestWakesTheServerAndItsAnswerTheClient) {
  open();
  std::atomic<int> done{0};
  ClientRequest request;
  request.direction = Direction::kRead;
  request.data = {mr_.get(), memory_->data(), 4096};
  request.context = &done;
  request.done = [](ClientRequest& self, base::Errc status) {
    static_cast<std::atomic<int>*>(self.context)->fetch_add(status == base::Errc::kOk ? 1 : 1000);
  };
  for (int i = 0; i < 200; ++i) {
    wait_for_sleep();
    client_threads_[0].post([&] {
      request.permit = session_->queue(0).acquire();
      session_->queue(0).submit(request);
    });
    // Heartbeats come each ten seconds.
    const uint64_t began_ns = host_->now_ns();
    wait_until("no answer", [&] { return done == i + 1; });
    ASSERT_LT(host_->now_ns() - began_ns, testing::kThreadsPatienceNs / 2);
  }
  close();
}

}  // namespace
}  // namespace braid::trs
