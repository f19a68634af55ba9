// A session whose path stays away longer than its requests may wait: they fail in time, and nothing
// that is submitted after the path's return does.
#include <gmock/gmock.h>

#include "trs/session_rig.h"

namespace braid::trs::testing {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;
using ::testing::HasSubstr;

constexpr uint64_t kLimitNs = 3 * kSecond;

/// Reactors of the client and the server.
class GiveUp : public SessionRig, public ::testing::WithParamInterface<size_t> {
 protected:
  GiveUp() : SessionRig(GetParam()) {}
  void SetUp() override {
    connect([](ClientOptions& options) {
      options.reconnect.give_up_after_ns = kLimitNs;
      options.reconnect.delay_max_ns = 100 * kMillisecond;
    });
  }
  /// A write by the last reactor, submitted in its turn as a thread would.
  std::unique_ptr<Io> submit_write() {
    auto io = client->make_io(Direction::kWrite, 0, 512);
    const size_t reactor = reactor_count - 1;
    client->reactors[reactor]->post(
        [this, reactor, raw = io.get()] { client->submit(*raw, reactor); });
    return io;
  }
  void lose_path() {
    kill_server();
    ASSERT_TRUE(until([&] { return client->disconnected_calls == lost + 1; }));
    ++lost;
  }
  bool until_connected() {
    return until([&] { return client->session->state() == SessionState::kConnected; });
  }
  Errc outcome_of(Io& io, uint64_t limit_ns = 30 * kSecond) {
    EXPECT_TRUE(until([&] { return io.done; }, limit_ns));
    EXPECT_EQ(io.completions, io.done ? 1u : 0u);
    return io.status;
  }
  unsigned lost = 0;
};

TEST_P(GiveUp, WhatIsHeldFailsAtTheTimeAndWhatComesLaterAtOnce) {
  store.hold = true;
  auto in_flight = submit_write();
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  store.hold = false;
  lose_path();
  auto held = submit_write();
  EXPECT_EQ(outcome_of(*in_flight), Errc::kTimedOut);
  EXPECT_EQ(outcome_of(*held, 10 * kMillisecond), Errc::kTimedOut);
  for (const auto* io : {in_flight.get(), held.get()}) {
    EXPECT_GE(io->done_at_ns - client->disconnected_at_ns, kLimitNs - kMillisecond);
    EXPECT_LT(io->done_at_ns - client->disconnected_at_ns, kLimitNs + 50 * kMillisecond);
  }
  EXPECT_EQ(client->gave_up_calls, 1u);
  EXPECT_THAT(client->gave_up_why, HasSubstr("no path to 10.0.0.1:1234 for 3000 ms: "));
  EXPECT_THAT(client->session->explain(), HasSubstr("too long: requests fail"));
  auto later = submit_write();
  EXPECT_EQ(outcome_of(*later, 10 * kMillisecond), Errc::kTimedOut);
  EXPECT_EQ(client->gave_up_calls, 1u) << "told once";

  start_server();
  ASSERT_TRUE(until_connected());
  auto again = submit_write();
  EXPECT_EQ(outcome_of(*again), Errc::kOk);
  expect_all_permits_back();
}

TEST_P(GiveUp, WhatIsSubmittedInTheUsersTurnIsHeldAndSent) {
  lose_path();
  ASSERT_TRUE(until([&] { return client->gave_up_calls == 1; }));
  std::unique_ptr<Io> io;
  client->on_reconnected = [&]() -> base::Task<base::Status> {
    io = submit_write();
    co_await client->home().sleep_ns(200 * kMillisecond);
    EXPECT_FALSE(io->done);
    co_return base::Status();
  };
  start_server();
  ASSERT_TRUE(until_connected());
  EXPECT_EQ(outcome_of(*io), Errc::kOk);
  EXPECT_EQ(client->gave_up_calls, 1u);
}

TEST_P(GiveUp, TimeThatRunsOutInTheUsersTurnFailsNothingIfItSucceeds) {
  lose_path();
  auto held = submit_write();
  client->on_reconnected = [&]() -> base::Task<base::Status> {
    co_await client->home().sleep_ns(kLimitNs);
    co_return base::Status();
  };
  start_server();
  ASSERT_TRUE(until_connected());
  EXPECT_EQ(outcome_of(*held), Errc::kOk);
  EXPECT_EQ(client->gave_up_calls, 0u);
}

TEST_P(GiveUp, UsersTurnThatFailsAfterTheTimeFailsWhatWaitedForIt) {
  lose_path();
  ASSERT_TRUE(until([&] { return client->gave_up_calls == 1; }));
  std::unique_ptr<Io> io;
  client->on_reconnected = [&]() -> base::Task<base::Status> {
    if (client->reconnected_calls > 1) co_return base::Status();
    io = submit_write();
    co_await client->home().sleep_ns(100 * kMillisecond);
    co_return base::make_error(Errc::kIo, "not yet");
  };
  start_server();
  ASSERT_TRUE(until([&] { return client->gave_up_calls == 2; }));
  EXPECT_THAT(client->gave_up_why, HasSubstr("no path"));
  EXPECT_EQ(outcome_of(*io, 10 * kMillisecond), Errc::kTimedOut);
  ASSERT_TRUE(until_connected());
  auto after = submit_write();
  EXPECT_EQ(outcome_of(*after), Errc::kOk);
  expect_all_permits_back();
}

TEST_P(GiveUp, TimeBeginsAnewWithEachLoss) {
  for (int i = 0; i < 3; ++i) {
    lose_path();
    world.run_for(2 * kLimitNs / 3);
    auto held = submit_write();
    start_server();
    ASSERT_TRUE(until_connected());
    EXPECT_EQ(outcome_of(*held), Errc::kOk);
  }
  EXPECT_EQ(client->gave_up_calls, 0u);
}

/// The path returns at any moment around the end of the time.
TEST_P(GiveUp, NothingSubmittedAfterTheReturnIsEverRefused) {
  unsigned in_time = 0, too_late = 0;
  for (int i = 0; i < 60; ++i) {
    const unsigned gave_up_before = client->gave_up_calls;
    lose_path();
    auto held = submit_write();
    // The next attempt after this begins within 125 ms.
    world.run_for(kLimitNs - 150 * kMillisecond + world.random().below(160 * kMillisecond));
    start_server();
    ASSERT_TRUE(until_connected());
    auto after = submit_write();
    ASSERT_EQ(outcome_of(*after), Errc::kOk) << "round " << i;
    const bool gave_up = client->gave_up_calls != gave_up_before;
    ASSERT_EQ(outcome_of(*held), gave_up ? Errc::kTimedOut : Errc::kOk) << "round " << i;
    ++(gave_up ? too_late : in_time);
  }
  EXPECT_GT(in_time, 5u);
  EXPECT_GT(too_late, 5u);
  expect_all_permits_back();
}

TEST_P(GiveUp, CloseWhileRequestsFailIsQuick) {
  lose_path();
  ASSERT_TRUE(until([&] { return client->gave_up_calls == 1; }));
  client->close();
  ASSERT_TRUE(until([&] { return client->closed; }, 100 * kMillisecond));
}

INSTANTIATE_TEST_SUITE_P(Reactors, GiveUp, ::testing::Values(1u, 2u, 3u),
                         [](const auto& param) { return std::to_string(param.param); });

}  // namespace
}  // namespace braid::trs::testing
