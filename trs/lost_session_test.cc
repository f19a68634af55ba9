// A session whose path stays away longer than its loss timer: it ends for good, and says so.
#include <gmock/gmock.h>

#include "trs/multipath_rig.h"

namespace braid::trs::testing {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;
using ::testing::HasSubstr;

constexpr uint64_t kFailNs = 2 * kSecond;
constexpr uint64_t kLostNs = 5 * kSecond;

/// Reactors of the client and the server.
class LostSession : public MultipathRig, public ::testing::WithParamInterface<size_t> {
 protected:
  LostSession() : MultipathRig(GetParam()) {}
  void open(uint64_t give_up_after_ns, uint64_t lost_after_ns) {
    connect_both([=](ClientOptions& options) {
      options.reconnect.give_up_after_ns = give_up_after_ns;
      options.reconnect.lost_after_ns = lost_after_ns;
      options.reconnect.delay_max_ns = 100 * kMillisecond;
    });
  }
  std::unique_ptr<Io> submit_write() {
    auto io = client->make_io(Direction::kWrite, 0, 512);
    const size_t reactor = reactor_count - 1;
    client->reactors[reactor]->post(
        [this, reactor, raw = io.get()] { client->submit(*raw, reactor); });
    return io;
  }
  Errc outcome_of(Io& io, uint64_t limit_ns = 30 * kSecond) {
    EXPECT_TRUE(until([&] { return io.done; }, limit_ns));
    EXPECT_EQ(io.completions, io.done ? 1u : 0u);
    return io.status;
  }
  void lose_server() {
    kill_server();
    ASSERT_TRUE(until([&] { return client->disconnected_calls == 1; }));
  }
  bool until_lost() {
    return until([&] { return client->lost_calls == 1; });
  }
  uint64_t away_ns() const { return client->lost_at_ns - client->disconnected_at_ns; }
};

TEST_P(LostSession, RequestsFailFirstAndLaterTheSessionEndsForGood) {
  open(kFailNs, kLostNs);
  lose_server();
  auto held = submit_write();
  EXPECT_EQ(outcome_of(*held), Errc::kTimedOut);
  EXPECT_EQ(client->lost_calls, 0u);
  ASSERT_TRUE(until_lost());
  EXPECT_GE(away_ns(), kLostNs);
  EXPECT_LT(away_ns(), kLostNs + 50 * kMillisecond);
  EXPECT_THAT(client->lost_why, HasSubstr("no path to 10.0.0.1:1234 for 5000 ms, and none is"));
  EXPECT_EQ(client->session->state(), SessionState::kLost);
  EXPECT_THAT(client->session->explain(), HasSubstr("lost: no path to"));
  auto later = submit_write();
  EXPECT_EQ(outcome_of(*later, 10 * kMillisecond), Errc::kDisconnected);

  start_server();
  world.run_for(30 * kSecond);
  EXPECT_EQ(store.opened, 1u) << "it was tried again";
  EXPECT_EQ(client->reconnected_calls, 0u);
  EXPECT_EQ(client->lost_calls, 1u);
  EXPECT_EQ(client->session->reconnect_path(0).code(), Errc::kDisconnected);
  EXPECT_EQ(client->session->add_path({{kServerIp, kPort}, 0}).code(), Errc::kDisconnected);
  expect_all_permits_back();
  client->close();
  ASSERT_TRUE(until([&] { return client->closed; }));
}

TEST_P(LostSession, WhatIsHeldEndsWithTheSessionThatNeverFailsFast) {
  open(base::kNever, kLostNs);
  store.hold = true;
  auto in_flight = submit_write();
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  store.hold = false;
  lose_server();
  auto held = submit_write();
  EXPECT_EQ(outcome_of(*in_flight), Errc::kDisconnected);
  EXPECT_EQ(outcome_of(*held), Errc::kDisconnected);
  EXPECT_GE(in_flight->done_at_ns - client->disconnected_at_ns, kLostNs);
  EXPECT_EQ(client->gave_up_calls, 0u);
  client->close();
  ASSERT_TRUE(until([&] { return client->closed; }));
}

TEST_P(LostSession, NeverIsNever) {
  open(kFailNs, base::kNever);
  lose_server();
  world.run_for(60 * kSecond);
  EXPECT_EQ(client->lost_calls, 0u);
  start_server();
  ASSERT_TRUE(until([&] { return client->restored_calls == 1; }));
  auto io = submit_write();
  EXPECT_EQ(outcome_of(*io), Errc::kOk);
}

TEST_P(LostSession, PathThatIsBackInTimeStopsTheTimer) {
  open(base::kNever, kLostNs);
  lose_server();
  auto held = submit_write();
  world.run_for(kLostNs - kSecond);
  start_server();
  EXPECT_EQ(outcome_of(*held), Errc::kOk);
  world.run_for(10 * kLostNs);
  EXPECT_EQ(client->lost_calls, 0u);
  EXPECT_EQ(client->session->state(), SessionState::kConnected);
}

TEST_P(LostSession, OneOfTwoPathsIsEnough) {
  open(kFailNs, kLostNs);
  cut_a(true);
  world.run_for(10 * kLostNs);
  EXPECT_EQ(client->lost_calls + client->gave_up_calls, 0u);
  cut_b(true);
  ASSERT_TRUE(until_lost());
  EXPECT_GE(away_ns(), kLostNs);
  EXPECT_LT(away_ns(), kLostNs + 50 * kMillisecond) << "an attempt that nobody answers goes on";
}

TEST_P(LostSession, UsersTurnThatEndsWellAfterTheTimeKeepsTheSession) {
  bool go_on = false;
  open(base::kNever, kLostNs);
  client->on_reconnected = [&]() -> base::Task<base::Status> {
    while (!go_on) co_await client->home().sleep_ns(kMillisecond);
    co_return base::Status();
  };
  lose_server();
  start_server();
  ASSERT_TRUE(until([&] { return client->reconnected_calls == 1; }));
  world.run_for(2 * kLostNs);
  EXPECT_EQ(client->lost_calls, 0u);
  go_on = true;
  ASSERT_TRUE(until([&] { return client->restored_calls == 1; }));
  auto io = submit_write();
  EXPECT_EQ(outcome_of(*io), Errc::kOk);
  world.run_for(2 * kLostNs);
  EXPECT_EQ(client->lost_calls, 0u);
}

TEST_P(LostSession, UsersTurnThatFailsAfterTheTimeIsTheLastOne) {
  open(base::kNever, kLostNs);
  client->on_reconnected = [&]() -> base::Task<base::Status> {
    co_await client->home().sleep_ns(2 * kLostNs);
    co_return base::make_error(Errc::kIo, "the user does not like it");
  };
  lose_server();
  start_server();
  ASSERT_TRUE(until_lost());
  EXPECT_EQ(client->reconnected_calls, 1u);
  EXPECT_THAT(client->lost_why, HasSubstr("the user does not like it"));
}

TEST_P(LostSession, TimeIsChangedWhileThePathIsAway) {
  open(base::kNever, base::kNever);
  lose_server();
  world.run_for(kLostNs);
  client->session->set_lost_after(2 * kLostNs);
  client->home().wake();
  ASSERT_TRUE(until_lost());
  EXPECT_GE(away_ns(), 2 * kLostNs);
  EXPECT_LT(away_ns(), 2 * kLostNs + 50 * kMillisecond);
}

INSTANTIATE_TEST_SUITE_P(Reactors, LostSession, ::testing::Values(1u, 2u),
                         [](const auto& param) { return "R" + std::to_string(param.param); });

}  // namespace
}  // namespace braid::trs::testing
