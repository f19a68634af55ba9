// Who is alive: a stuck thread of the peer is noticed within a second, connection by connection,
// within four where nothing goes; a thread that is merely late, here or there, is not taken for
// dead.
#include <gmock/gmock.h>

#include "trs/heartbeat.h"
#include "trs/session_rig.h"
#include "trs/watched_device.h"
#include "trs/wire.h"

namespace braid::trs::testing {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;
using ::testing::HasSubstr;

/// Where nothing but heartbeats goes: HeartbeatDriver::kSeldom intervals, and what judging takes.
constexpr uint64_t kIdleNs = 4 * kSecond;

/// Reactors of the client and the server.
class Liveness : public SessionRig, public ::testing::WithParamInterface<size_t> {
 protected:
  Liveness() : SessionRig(GetParam()) {}
  void SetUp() override { connect(); }
  /// Writes by every reactor, each again a moment after it is done.
  void start_load() {
    for (size_t i = 0; i < reactor_count; ++i) {
      load.push_back(client->make_io(Direction::kWrite, i * 4096, 4096));
      load.back()->after = [this, i](Io& io) {
        if (io.status != Errc::kOk) ++failed;
        client->reactors[i]->spawn(submit_later(io, i));
      };
      client->submit(*load.back(), i);
    }
  }
  base::Task<void> submit_later(Io& io, size_t reactor) {
    co_await client->reactors[reactor]->sleep_ns(kMillisecond);
    client->submit(io, reactor);
  }
  bool until_connected() {
    return until([&] { return client->session->state() == SessionState::kConnected; });
  }
  void expect_io_by_every_reactor() {
    for (size_t i = 0; i < reactor_count; ++i) {
      auto io = client->make_io(Direction::kWrite, i * 4096, 4096);
      client->submit(*io, i);
      ASSERT_TRUE(until([&] { return io->done; }));
      EXPECT_EQ(io->status, Errc::kOk);
    }
  }
  void hang_each_server_reactor(uint64_t noticed_ns) {
    for (size_t i = 0; i < reactor_count; ++i) {
      world.run_for(kSecond + world.random().below(150 * kMillisecond));
      const unsigned lost_before = client->disconnected_calls;
      const uint64_t hung_at_ns = world.now_ns();
      server_host->hang(*server->reactors[i]);
      ASSERT_TRUE(until([&] { return client->disconnected_calls > lost_before; }, 2 * noticed_ns))
          << "reactor " << i << " hung unnoticed";
      EXPECT_LT(client->disconnected_at_ns - hung_at_ns, noticed_ns);
      EXPECT_THAT(client->disconnected_why, HasSubstr("no sign of life from the server"));
      world.run_for(8 * kSecond);  // an attempt or two that cannot succeed
      EXPECT_NE(client->session->state(), SessionState::kConnected);
      server_host->unhang(*server->reactors[i]);
      ASSERT_TRUE(until_connected());
    }
  }

  std::vector<std::unique_ptr<Io>> load;
  unsigned failed = 0;
};

TEST_P(Liveness, HungReactorOfAnIdleServerIsNoticed) {
  hang_each_server_reactor(kIdleNs);
  expect_io_by_every_reactor();
}

TEST_P(Liveness, HungReactorIsNoticedWhileTheOthersAreBusy) {
  start_load();
  hang_each_server_reactor(kSecond);
  EXPECT_EQ(failed, 0u);
}

TEST_P(Liveness, HungReactorOfTheClientIsNoticedByTheServer) {
  for (size_t i = 0; i < reactor_count; ++i) {
    world.run_for(kSecond + world.random().below(150 * kMillisecond));
    const uint64_t closed_before = store.closed;
    const uint64_t hung_at_ns = world.now_ns();
    client_host->hang(*client->reactors[i]);
    ASSERT_TRUE(until([&] { return store.closed > closed_before; }, 2 * kIdleNs))
        << "reactor " << i;
    EXPECT_LT(world.now_ns() - hung_at_ns, kIdleNs);
    client_host->unhang(*client->reactors[i]);
    ASSERT_TRUE(until([&] { return client->disconnected_calls == i + 1; }));
    ASSERT_TRUE(until_connected());
  }
  expect_io_by_every_reactor();
}

TEST_P(Liveness, SilenceWhereNothingGoesIsNoticedAtAnyPhase) {
  for (int i = 0; i < 20; ++i) {
    world.run_for(kSecond + world.random().below(60 * kSecond));
    const unsigned lost_before = client->disconnected_calls;
    const uint64_t stopped_at_ns = world.now_ns();
    server_host->pause();
    ASSERT_TRUE(until([&] { return client->disconnected_calls > lost_before; }, 2 * kIdleNs));
    EXPECT_LT(client->disconnected_at_ns - stopped_at_ns, kIdleNs);
    EXPECT_GT(client->disconnected_at_ns - stopped_at_ns, 600 * kMillisecond);
    server_host->resume();
    ASSERT_TRUE(until_connected());
  }
}

/// However seldom checks were before.
TEST_P(Liveness, SilenceIsNoticedWithinASecondOfARequestAtAnyPhase) {
  for (size_t i = 0; i < 20; ++i) {
    world.run_for(kSecond + world.random().below(4 * kSecond));
    const unsigned lost_before = client->disconnected_calls;
    server_host->pause();
    const auto io = client->make_io(Direction::kRead, 0, 4096);
    const uint64_t submitted_at_ns = world.now_ns();
    client->submit(*io, i % reactor_count);
    ASSERT_TRUE(until([&] { return client->disconnected_calls > lost_before; }, 2 * kSecond));
    EXPECT_LT(client->disconnected_at_ns - submitted_at_ns, kSecond);
    server_host->resume();
    ASSERT_TRUE(until([&] { return io->done; }));
    EXPECT_EQ(io->status, Errc::kOk);
    ASSERT_TRUE(until_connected());
  }
}

/// Threads and processes that are not scheduled for up to half a second, again and again, as on a
/// machine with far more to do than cores.
TEST_P(Liveness, StallsOfHalfASecondCutNobodyOff) {
  if (world.random().one_in(2)) start_load();
  for (int i = 0; i < 200; ++i) {
    const uint64_t kind = world.random().below(4);
    const uint64_t stall_ns = world.random().below(550 * kMillisecond);
    base::Reactor& client_reactor = *client->reactors[world.random().below(reactor_count)];
    base::Reactor& server_reactor = *server->reactors[world.random().below(reactor_count)];
    if (kind == 0 || kind == 2) client_host->pause();
    if (kind == 1 || kind == 2) server_host->pause();
    if (kind == 3) client_host->hang(client_reactor);
    if (kind == 3) server_host->hang(server_reactor);
    world.run_for(stall_ns);
    if (kind == 0 || kind == 2) client_host->resume();
    if (kind == 2) world.run_for(world.random().below(20 * kMillisecond));
    if (kind == 1 || kind == 2) server_host->resume();
    if (kind == 3) client_host->unhang(client_reactor);
    if (kind == 3) server_host->unhang(server_reactor);
    // From a moment, in which all can speak once, to more than two checks.
    const uint64_t pause_max_ns = (world.random().one_in(2) ? 20 : 400) * kMillisecond;
    world.run_for(world.random().between(kMillisecond, pause_max_ns));
    ASSERT_EQ(client->disconnected_calls, 0u)
        << "stall " << i << " of kind " << kind << " and " << stall_ns / kMillisecond
        << " ms: " << client->disconnected_why;
    ASSERT_EQ(store.closed, 0u) << "stall " << i << " of kind " << kind;
  }
  EXPECT_EQ(failed, 0u);
}

/// The reactor that judges is late to every turn by more than half an interval: it may be unable to
/// tell, but must not cut off a peer that answers.
TEST_P(Liveness, ReactorThatIsAlwaysLateCutsNobodyOff) {
  for (int i = 0; i < 100; ++i) {
    client_host->pause();
    world.run_for(world.random().between(80 * kMillisecond, 300 * kMillisecond));
    client_host->resume();
    world.run_for(100 * base::kMicrosecond);
    ASSERT_EQ(client->disconnected_calls, 0u) << client->disconnected_why;
    ASSERT_EQ(store.closed, 0u);
  }
}

/// Each attempt leaves a session that cannot end, as one of its reactors does not answer.
TEST_P(Liveness, HungReactorDoesNotUseUpTheServersSessions) {
  server_host->hang(*server->reactors[reactor_count - 1]);
  for (int i = 0; i < 60; ++i) {
    world.run_for(10 * kSecond);
    ASSERT_LE(server->server->statistics().sessions, 3u) << "after " << i << " times 10 s";
  }
  server_host->unhang(*server->reactors[reactor_count - 1]);
  ASSERT_TRUE(until_connected());
  expect_io_by_every_reactor();
  EXPECT_TRUE(until([&] { return server->server->statistics().sessions == 1; }));
}

INSTANTIATE_TEST_SUITE_P(Reactors, Liveness, ::testing::Values(1u, 2u, 3u),
                         [](const auto& param) { return std::to_string(param.param); });

/// Whether connection 0's heartbeat speaks for an idle connection 1.
struct Speaker {
  const char* name;
  size_t reactors;
  bool tcp;
  uint32_t features;
  bool speaks;
};

class IdleConnection : public SessionRig, public ::testing::WithParamInterface<Speaker> {
 protected:
  IdleConnection() : SessionRig(GetParam().reactors) {}
  void SetUp() override {
    process_size.tcp = GetParam().tcp;
    connect([](ClientOptions& options) { options.features = GetParam().features; });
    world.run_for(kSecond);
  }
  uint64_t heard(size_t cid) const {
    return client->session->paths()[0].connections[cid].messages_received;
  }
};

TEST_P(IdleConnection, HasHeartbeatsUnlessAnotherSpeaksForIt) {
  const uint64_t by_admin = heard(0), by_data = heard(1);
  world.run_for(30 * kSecond);
  EXPECT_GE(heard(0) - by_admin, 9u);
  if (GetParam().speaks)
    EXPECT_EQ(heard(1), by_data);
  else
    EXPECT_GE(heard(1) - by_data, 9u);
}

/// Of each side, while the other does not ask.
class BusyConnection : public SessionRig, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    const bool client_asks = GetParam();
    const auto asks = [](bool so, HeartbeatOptions& options) {
      if (!so) options.interval_ns = 1000 * kSecond;
    };
    adjust_server = [=](ServerOptions& options) { asks(!client_asks, options.heartbeat); };
    connect([=](ClientOptions& options) { asks(client_asks, options.heartbeat); });
    world.run_for(kSecond);
  }
  uint64_t heard() const { return client->session->paths()[0].connections[1].messages_received; }
};

TEST_P(BusyConnection, HasHeartbeatsOfItsOwnWhileARequestIsUnderWay) {
  store.hold = true;
  const auto io = client->make_io(Direction::kRead, 0, 4096);
  const uint64_t before = heard();
  world.run_for(3 * kSecond);
  EXPECT_EQ(heard(), before);
  client->submit(*io);
  // A server is in no hurry: its next check may be a seldom one.
  world.run_for(6 * kSecond);
  EXPECT_GE(heard() - before, 9u);
  EXPECT_FALSE(io->done);
  server->release();
  server->home().wake();
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(io->status, Errc::kOk);
}

INSTANTIATE_TEST_SUITE_P(Sides, BusyConnection, ::testing::Bool(), [](const auto& each) {
  return std::string(each.param ? "ClientAsks" : "ServerAsks");
});

class WaitingConnection : public SessionRig {
 protected:
  void SetUp() override {
    adjust_server = [](ServerOptions& options) { options.heartbeat.interval_ns = 1000 * kSecond; };
    connect();
  }
  uint64_t heard() const { return client->session->paths()[0].connections[1].messages_received; }
};

/// An adapter whose peer has acknowledged all would find a loss by the next check only.
TEST_F(WaitingConnection, AsksForAnAnswerThatStaysOutInMilliseconds) {
  const auto io = client->make_io(Direction::kRead, 0, 4096);
  io->after = [this](Io& done) { client->submit(done, 0); };
  client->submit(*io);
  world.run_for(kSecond);
  store.hold = true;
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  const uint64_t before = heard();
  world.run_for(2 * HeartbeatDriver::kLookNs + kMillisecond);
  EXPECT_EQ(heard() - before, 1u);
  world.run_for(100 * kMillisecond);
  EXPECT_LE(heard() - before, 2u) << "a disk that is slow is asked once between two checks";
  io->after = nullptr;
  server->release();
  server->home().wake();
  ASSERT_TRUE(until([&] { return io->done; }));
}

/// Loses what is posted to all queue pairs but the first, when told to.
class MuteDevice : public WatchedDevice {
 public:
  MuteDevice(const bool& mute, std::unique_ptr<vhca::Device> behind)
      : WatchedDevice(std::move(behind)), mute_(mute) {}

 private:
  void posts(WatchedPd&, vhca::Qp& qp, const vhca::SendWr&) override {
    if (first_ == nullptr) first_ = &qp;
  }
  bool loses(const vhca::Qp& qp) override { return mute_ && &qp != first_; }
  const bool& mute_;
  const vhca::Qp* first_ = nullptr;
};

class MuteConnection : public SessionRig {
 protected:
  void SetUp() override {
    process_size.wrap_context = &mute;
    process_size.wrap = [](void* context, const std::string& ip, ProcessSize::Device device) {
      if (ip != kServerIp) return device;
      return ProcessSize::Device(
          std::make_unique<MuteDevice>(*static_cast<bool*>(context), std::move(device)));
    };
    connect();
    world.run_for(kSecond);
  }
  bool mute = false;
};

/// Connection 0 lives, and speaks for idle ones only.
TEST_F(MuteConnection, IsNoticedWithinASecondOfARequest) {
  mute = true;
  world.run_for(3 * kSecond);
  ASSERT_EQ(client->disconnected_calls, 0u) << "nobody asks it anything";
  const auto io = client->make_io(Direction::kRead, 0, 4096);
  const uint64_t submitted_at_ns = world.now_ns();
  client->submit(*io);
  ASSERT_TRUE(until([&] { return client->disconnected_calls == 1; }, 2 * kSecond));
  EXPECT_LT(client->disconnected_at_ns - submitted_at_ns, kSecond);
  EXPECT_THAT(client->disconnected_why, HasSubstr("connection 1: no sign of life from the server"));
  mute = false;
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(io->status, Errc::kOk);
}

/// Its connection 1 never drains, and leaves outside the client's turn when it is given up: the
/// last one of that client, who takes turns no more.
TEST_F(MuteConnection, IsGivenUpAndItsDeadClientForgotten) {
  constexpr uint64_t kDrainNs = 100 * kMillisecond;  // Session::kDrainNs
  const auto turn_clients = [this] { return server->server->statistics().turn_clients; };
  ASSERT_EQ(turn_clients(), 1u);
  mute = true;
  const uint64_t killed_at_ns = world.now_ns();
  client_host->kill();
  client = nullptr;
  world.run_for(kDrainNs / 2);
  ASSERT_EQ(store.closed, 0u);
  EXPECT_EQ(turn_clients(), 1u) << "connection 1 is not drained";
  ASSERT_TRUE(until([&] { return store.closed == 1; }));
  EXPECT_GE(world.now_ns() - killed_at_ns, kDrainNs);
  world.run_for(300 * kMillisecond);
  EXPECT_EQ(turn_clients(), 0u);
  mute = false;
  start_client();
  client->open();
  ASSERT_TRUE(until([&] { return client->opened; }));
  const auto io = client->make_io(Direction::kRead, 0, 4096);
  client->submit(*io);
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(io->status, Errc::kOk);
  EXPECT_EQ(turn_clients(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Peers, IdleConnection,
                         ::testing::Values(Speaker{"OneThread", 1, false, kAllFeatures, true},
                                           Speaker{"TwoThreads", 2, false, kAllFeatures, false},
                                           Speaker{"Tcp", 1, true, kAllFeatures, false},
                                           Speaker{"Older", 1, false,
                                                   kAllFeatures & ~wire::kFeatureOneThread, false}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace braid::trs::testing
