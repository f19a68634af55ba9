// A session whose server dies, hangs, vanishes or comes back different: requests are held, sent
// again in order, and each completes once.
#include <gmock/gmock.h>

#include "trs/session_rig.h"

namespace braid::trs::testing {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;
using ::testing::HasSubstr;

class SessionFault : public SessionRig {
 protected:
  void black_hole(bool on) {
    world.fabric().set_black_hole(kClientIp, kServerIp, on);
    world.fabric().set_black_hole(kServerIp, kClientIp, on);
  }
  void restart_server() {
    kill_server();
    start_server();
  }
  /// An admin request without data.
  base::Task<Errc> admin_write() {
    const StoreOp op;
    AdminRequest request;
    request.what = "admin write";
    request.direction = Direction::kWrite;
    request.user_header = std::as_bytes(std::span(&op, 1));
    auto answer = co_await client->session->admin(request);
    co_return answer.ok() ? *answer : answer.code();
  }
  bool until_connected() {
    return until([&] { return client->session->state() == SessionState::kConnected; });
  }
  bool until_lost(unsigned times) {
    return until([&] { return client->disconnected_calls >= times; });
  }
};

TEST_F(SessionFault, RequestsOutliveTheServersProcess) {
  connect();
  store.hold = true;
  std::vector<std::unique_ptr<Io>> ios;
  for (unsigned i = 0; i < 10; ++i) {
    ios.push_back(client->make_io(Direction::kWrite, i * 4096, 4096));
    fill(ios.back()->buffer, i);
    client->submit(*ios.back());
  }
  ASSERT_TRUE(until([&] { return server->held.size() == 10; }));
  store.hold = false;
  kill_server();
  ASSERT_TRUE(until_lost(1));
  for (unsigned i = 10; i < 15; ++i) {  // these are held from the start
    ios.push_back(client->make_io(Direction::kWrite, i * 4096, 4096));
    fill(ios.back()->buffer, i);
    client->submit(*ios.back());
  }
  world.run_for(kSecond);
  EXPECT_EQ(client->session->queue(0).statistics().held, 15u);
  EXPECT_THAT(client->session->explain(), HasSubstr("reconnecting to 10.0.0.1:1234 for 1."));
  start_server();
  ASSERT_TRUE(until([&] { return ios.back()->done; }));
  ASSERT_TRUE(until([&] { return client->session->queue(0).statistics().in_flight == 0; }));
  for (unsigned i = 0; i < 15; ++i) {
    EXPECT_EQ(ios[i]->completions, 1u);
    EXPECT_EQ(ios[i]->status, Errc::kOk);
    EXPECT_TRUE(filled(std::span(store.bytes).subspan(i * 4096, 4096), i));
    EXPECT_EQ(store.write_log[i], i * 4096u) << "sent again in the order of submission";
  }
  EXPECT_EQ(client->reconnected_calls, 1u);
  EXPECT_EQ(client->disconnected_calls, 1u);
  EXPECT_EQ(client->session->queue(0).statistics().resent, 10u);
  EXPECT_EQ(client->session->queue(0).statistics().reconnects, 1u);
  expect_all_permits_back();
}

/// Nothing is under way: who waits for nothing asks seldom (HeartbeatDriver::kSeldom).
constexpr uint64_t kNothingGoesNs = 4 * kSecond;

TEST_F(SessionFault, BlackHoleIsNoticedOnBothSidesWhileNothingGoes) {
  connect();
  world.run_for(kSecond);
  const uint64_t cut_at_ns = world.now_ns();
  black_hole(true);
  ASSERT_TRUE(until_lost(1));
  EXPECT_LT(client->disconnected_at_ns - cut_at_ns, kNothingGoesNs);
  ASSERT_TRUE(until([&] { return store.closed == 1; }));
  EXPECT_LT(world.now_ns() - cut_at_ns, kNothingGoesNs);
  black_hole(false);
  ASSERT_TRUE(until_connected());
}

TEST_F(SessionFault, StoppedServerIsNoticedByItsSilence) {
  connect();
  world.run_for(kSecond);
  const uint64_t stopped_at_ns = world.now_ns();
  server_host->pause();  // its NIC still answers
  ASSERT_TRUE(until_lost(1));
  EXPECT_LT(client->disconnected_at_ns - stopped_at_ns, kNothingGoesNs);
  EXPECT_GT(client->disconnected_at_ns - stopped_at_ns, 150 * kMillisecond);
  EXPECT_THAT(client->disconnected_why, HasSubstr("no sign of life from the server"));
  server_host->resume();
  ASSERT_TRUE(until_connected());
}

TEST_F(SessionFault, StoppedClientLosesItsSessionAndComesBack) {
  connect();
  client_host->pause();
  ASSERT_TRUE(until([&] { return store.closed == 1; }));
  client_host->resume();
  ASSERT_TRUE(until([&] { return client->reconnected_calls == 1; }));
  ASSERT_TRUE(until_connected());
  auto io = client->make_io(Direction::kWrite, 0, 512);
  client->submit(*io);
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(io->status, Errc::kOk);
}

TEST_F(SessionFault, AbandonedWriteNeverLandsAfterANewerOne) {
  connect();
  store.hold = true;  // the disk is slow
  auto old_write = client->make_io(Direction::kWrite, 0, 4096);
  fill(old_write->buffer, 1);
  client->submit(*old_write);
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  black_hole(true);
  ASSERT_TRUE(until_lost(1));
  auto new_write = client->make_io(Direction::kWrite, 0, 4096);
  fill(new_write->buffer, 2);
  client->submit(*new_write);  // held behind the old one
  black_hole(false);
  world.run_for(12 * kSecond);
  EXPECT_EQ(store.opened, 1u) << "the new path waits for the request of the old one";
  EXPECT_FALSE(old_write->done);
  store.hold = false;
  server->release();
  ASSERT_TRUE(until([&] { return old_write->done && new_write->done; }));
  EXPECT_EQ(store.opened, 2u);
  EXPECT_TRUE(filled(std::span(store.bytes).first(4096), 2));
  EXPECT_EQ(store.write_log.size(), 2u);  // the old one, then the new one
  expect_all_permits_back();
}

TEST_F(SessionFault, UserHasItsTurnBeforeRequestsFlow) {
  connect();
  restart_server();
  ASSERT_TRUE(until_lost(1));
  auto io = client->make_io(Direction::kWrite, 0, 512);
  client->submit(*io);
  Errc admin = Errc::kBusy;
  uint64_t requests_seen = 0;
  client->on_reconnected = [&]() -> base::Task<base::Status> {
    admin = co_await admin_write();
    co_await client->home().sleep_ns(200 * kMillisecond);
    requests_seen = store.requests;
    co_return base::Status();
  };
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(admin, Errc::kOk);
  EXPECT_EQ(requests_seen, 1u) << "only the admin request";
}

TEST_F(SessionFault, UserWhoFailsInItsTurnIsAskedAgain) {
  connect();
  restart_server();
  client->on_reconnected = [&]() -> base::Task<base::Status> {
    if (client->reconnected_calls < 3) co_return base::make_error(Errc::kIo, "not yet");
    co_return base::Status();
  };
  ASSERT_TRUE(until([&] { return client->reconnected_calls == 3; }));
  ASSERT_TRUE(until_connected());
  EXPECT_EQ(client->disconnected_calls, 3u) << "once for the loss, once for each turn that failed";
  EXPECT_EQ(client->returned_calls, 3u);
  EXPECT_EQ(client->restored_calls, 1u);
}

TEST_F(SessionFault, PathLostInTheUsersTurnFailsItsAdminRequest) {
  connect();
  restart_server();
  Errc first = Errc::kOk;
  client->on_reconnected = [&]() -> base::Task<base::Status> {
    if (client->reconnected_calls == 1) store.hold = true;
    const Errc status = co_await admin_write();
    if (client->reconnected_calls == 1) first = status;
    if (status != Errc::kOk) co_return base::make_error(status, "admin failed");
    co_return base::Status();
  };
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  store.hold = false;
  EXPECT_EQ(client->disconnected_calls, 1u);
  kill_server();
  ASSERT_TRUE(until_lost(2)) << "told, though no server is there to make a new path with";
  EXPECT_EQ(client->restored_calls, 0u);
  start_server();
  ASSERT_TRUE(until_connected());
  EXPECT_EQ(first, Errc::kDisconnected);
  EXPECT_EQ(client->reconnected_calls, 2u);
  EXPECT_EQ(client->restored_calls, 1u);
}

TEST_F(SessionFault, PathLostAtTheEndOfTheUsersTurnIsTold) {
  connect();
  restart_server();
  client->on_reconnected = [&]() -> base::Task<base::Status> {
    if (client->reconnected_calls == 1) client->session->drop_path("the test asks for it");
    co_return base::Status();
  };
  ASSERT_TRUE(until([&] { return client->reconnected_calls == 2; }));
  ASSERT_TRUE(until_connected());
  EXPECT_EQ(client->disconnected_calls, 2u);
  EXPECT_EQ(client->restored_calls, 1u);
}

TEST_F(SessionFault, ServerThatComesBackSmallerIsNotUsed) {
  connect();
  adjust_server = [](ServerOptions& options) { options.queue_depth = 8; };
  restart_server();
  ASSERT_TRUE(until_lost(1));
  world.run_for(3 * kSecond);
  EXPECT_NE(client->session->state(), SessionState::kConnected);
  EXPECT_THAT(client->session->explain(), HasSubstr("came back with smaller limits"));
}

TEST_F(SessionFault, ServerThatComesBackLargerIsUsedWithTheOldLimits) {
  connect();
  adjust_server = [](ServerOptions& options) {
    options.queue_depth = 100;
    options.max_io_bytes = 64 << 10;
  };
  restart_server();
  ASSERT_TRUE(until_lost(1));
  ASSERT_TRUE(until_connected());
  EXPECT_EQ(client->session->limits().queue_depth, 16u);
  std::vector<std::unique_ptr<Io>> ios;
  for (unsigned i = 0; i < 15; ++i) {
    ios.push_back(client->make_io(Direction::kWrite, i * 16384, 16384));
    client->submit(*ios.back());
  }
  ASSERT_TRUE(until([&] { return client->session->queue(0).statistics().in_flight == 0; }));
  for (auto& io : ios) EXPECT_EQ(io->status, Errc::kOk);
  expect_all_permits_back();
}

TEST_F(SessionFault, CloseWithoutAPathIsQuick) {
  connect();
  auto io = client->make_io(Direction::kWrite, 0, 512);
  kill_server();
  ASSERT_TRUE(until_lost(1));
  client->submit(*io);
  world.run_for(2 * kSecond);
  client->close();
  ASSERT_TRUE(until([&] { return client->closed; }, 100 * kMillisecond));
  EXPECT_EQ(io->status, Errc::kCanceled);
  EXPECT_EQ(io->completions, 1u);
}

TEST_F(SessionFault, CloseCutsAnAttemptShort) {
  connect();
  black_hole(true);
  ASSERT_TRUE(until_lost(1));
  world.run_for(700 * kMillisecond);  // in the middle of an attempt
  client->close();
  ASSERT_TRUE(until([&] { return client->closed; }, 100 * kMillisecond));
}

TEST_F(SessionFault, CloseInTheUsersTurnEndsIt) {
  connect();
  restart_server();
  store.hold = true;
  Errc admin = Errc::kOk;
  client->on_reconnected = [&]() -> base::Task<base::Status> {
    admin = co_await admin_write();
    co_return base::make_error(admin, "admin");
  };
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  client->close();
  ASSERT_TRUE(until([&] { return client->closed; }, 100 * kMillisecond));
  EXPECT_EQ(admin, Errc::kDisconnected);
}

TEST_F(SessionFault, KilledClientLeavesNothingAtTheServer) {
  connect();
  store.hold = true;
  auto io = client->make_io(Direction::kWrite, 0, 512);
  client->submit(*io);
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  io.reset();
  client_host->kill();
  world.run_for(2 * kSecond);
  EXPECT_EQ(store.closed, 0u);
  server->release();
  ASSERT_TRUE(until([&] { return store.closed == 1; }));
  EXPECT_TRUE(server->server->sessions().empty());
}

/// Reactors, seed.
class SessionSoak : public SessionRig,
                    public ::testing::WithParamInterface<std::tuple<size_t, uint64_t>> {
 protected:
  SessionSoak() : SessionRig(std::get<0>(GetParam()), std::get<1>(GetParam())) {
    adjust_server = [](ServerOptions& options) {
      options.guard = static_cast<ChunkGuard>(std::get<1>(GetParam()) % 3);
    };
  }

  /// A lane owns a block: writes it with a new stamp, reads it back, compares; for ever.
  struct Lane {
    std::unique_ptr<Io> io;
    size_t reactor = 0;
    uint64_t stamp = 0;
  };
  void start_lanes(unsigned per_reactor) {
    for (size_t reactor = 0; reactor < reactor_count; ++reactor) {
      for (unsigned i = 0; i < per_reactor; ++i) {
        auto lane = std::make_unique<Lane>();
        const uint64_t number = lanes.size();
        lane->reactor = reactor;
        lane->stamp = number;
        lane->io = client->make_io(Direction::kWrite, number * 16384,
                                   static_cast<uint32_t>(1 + world.random().below(16384)));
        lane->io->after = [this, self = lane.get()](Io&) { step(*self); };
        lanes.push_back(std::move(lane));
      }
    }
    running = static_cast<unsigned>(lanes.size());
    for (auto& lane : lanes) {
      fill(lane->io->buffer, lane->stamp);
      client->submit(*lane->io, lane->reactor);
    }
  }
  void step(Lane& lane) {
    Io& io = *lane.io;
    ++completed;
    if (io.status != Errc::kOk) ++wrong;
    if (io.request.direction == Direction::kWrite) {
      io.request.direction = Direction::kRead;
      std::memset(io.buffer.data(), 0, io.buffer.size());
    } else {
      if (!filled(io.buffer, lane.stamp)) ++wrong;
      if (stopping) {
        --running;
        return;
      }
      io.request.direction = Direction::kWrite;
      fill(io.buffer, ++lane.stamp);
    }
    client->submit(io, lane.reactor);
  }
  void one_fault() {
    auto& fabric = world.fabric();
    switch (world.random().below(6)) {
      case 0:
        kill_server();
        world.run_for(world.random().below(500 * kMillisecond));
        start_server();
        break;
      case 1:
        fabric.set_black_hole(kClientIp, kServerIp, true);
        world.run_for(world.random().below(2 * kSecond));
        break;
      case 2:
        fabric.set_black_hole(kServerIp, kClientIp, true);
        world.run_for(world.random().below(2 * kSecond));
        break;
      case 3:
        server_host->pause();
        world.run_for(world.random().below(2 * kSecond));
        server_host->resume();
        break;
      case 4:
        client_host->pause();
        world.run_for(world.random().below(2 * kSecond));
        client_host->resume();
        break;
      default:
        fabric.set_lose_answers(kClientIp, kServerIp, true);
        world.run_for(world.random().below(kSecond));
        break;
    }
    fabric.heal_all();
  }

  std::vector<std::unique_ptr<Lane>> lanes;
  bool stopping = false;
  unsigned running = 0;
  uint64_t completed = 0, wrong = 0;
};

TEST_P(SessionSoak, EveryRequestCompletesOnceWhateverHappens) {
  connect();
  start_lanes(static_cast<unsigned>(7 / reactor_count));
  for (int i = 0; i < 12; ++i) {
    world.run_for(world.random().below(20 * kMillisecond));
    one_fault();
  }
  world.run_for(20 * kMillisecond);
  stopping = true;
  ASSERT_TRUE(until([&] { return running == 0; })) << client->session->explain();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(completed, 500u);
  expect_all_permits_back();
  client->close();
  ASSERT_TRUE(until([&] { return client->closed; }));
}

INSTANTIATE_TEST_SUITE_P(Seeds, SessionSoak,
                         ::testing::Combine(::testing::Values(1u, 2u, 3u),
                                            ::testing::Range(uint64_t{1}, uint64_t{4})),
                         [](const auto& param) {
                           return "Reactors" + std::to_string(std::get<0>(param.param)) + "Seed" +
                                  std::to_string(std::get<1>(param.param));
                         });

}  // namespace
}  // namespace braid::trs::testing
