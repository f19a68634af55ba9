// Several paths: requests spread, move from a lost path to another, and none is applied twice.
#include "trs/multipath_rig.h"

namespace braid::trs {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;
using ::testing::HasSubstr;
using testing::Io;

class Multipath : public testing::MultipathRig {};

TEST_F(Multipath, BothPathsJoinOneSession) {
  connect_both();
  EXPECT_EQ(store.opened, 1u);
  ASSERT_EQ(server->server->sessions().size(), 1u);
  EXPECT_EQ(server->server->sessions()[0]->paths(), 2u);
  EXPECT_THAT(client->session->explain(), HasSubstr("connected to 10.0.0.1:1234 by 2 of 2 paths"));
}

TEST_F(Multipath, RequestsInFlightAtTheUserAreAnsweredByTheOtherPath) {
  connect_both();
  store.hold = true;
  auto writes = make_writes(12);
  submit_all(writes);
  ASSERT_TRUE(until([&] { return server->held.size() == 12; }));
  cut_a(true);
  ASSERT_TRUE(until_up(1));
  server->release();
  store.hold = false;
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  expect_written_once(writes);
  EXPECT_EQ(store.requests, 12u) << "none was given to the user twice";
  EXPECT_EQ(client->disconnected_calls, 0u);
  EXPECT_EQ(store.closed, 0u);
  EXPECT_GT(client->session->paths()[0].failed_over, 0u);
  expect_all_permits_back();
}

TEST_F(Multipath, RequestsLeaveADeviceWhoseLinkIsDownAtOnce) {
  connect_both();
  cut_a(true);
  auto writes = make_writes(12);
  submit_all(writes);
  const uint64_t cut_ns = client->home().now_ns();
  const vhca::Device* const adapter[] = {client->device.get()};
  ASSERT_EQ(client->session->link_down(adapter, 1), 1u);
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  EXPECT_LT(client->home().now_ns() - cut_ns, 10 * kMillisecond);
  expect_written_once(writes);
  EXPECT_THAT(client->session->paths()[0].why, HasSubstr("the link of"));
  cut_a(false);
  ASSERT_TRUE(until_up(2));
}

TEST_F(Multipath, ALinkThatIsDownAndNoOtherChangesNothing) {
  connect_both();
  std::optional<base::Status> removed;
  remove_path(1, removed);
  ASSERT_TRUE(until([&] { return removed.has_value(); }));
  const vhca::Device* const adapter[] = {client->device.get()};
  EXPECT_EQ(client->session->link_down(adapter, 1), 0u);
  EXPECT_EQ(up(), 1u) << "it may come back before anybody has noticed";
}

TEST_F(Multipath, ALinkOfAnotherPortChangesNothing) {
  connect_both();
  const vhca::Device* const adapter[] = {client->device.get()};
  EXPECT_EQ(client->session->link_down(adapter, 2), 0u);
  EXPECT_EQ(up(), 2u);
}

TEST_F(Multipath, AnAdapterThatIsOpenTwiceIsNoOtherWay) {
  connect_both();
  const vhca::Device* const adapter[] = {client->device.get(), client->more_devices.at(0).get()};
  EXPECT_EQ(client->session->link_down(adapter, 1), 0u);
  EXPECT_EQ(up(), 2u);
}

TEST_F(Multipath, RequestsWhoseAnswersAreLostAreAnsweredAgain) {
  connect_both();
  to_client_a(true);
  auto writes = make_writes(12);
  submit_all(writes);
  ASSERT_TRUE(until([&] { return store.requests == 12; }));
  EXPECT_FALSE(all_done(writes)) << "those of path A have no answer";
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  expect_written_once(writes);
  EXPECT_EQ(store.requests, 12u);
  EXPECT_EQ(client->disconnected_calls, 0u);
}

TEST_F(Multipath, RequestsThatNeverArrivedAreDoneOnce) {
  connect_both();
  to_server_a(true);
  auto writes = make_writes(12);
  submit_all(writes);
  world.run_for(10 * kMillisecond);
  EXPECT_LT(store.requests, 12u);
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  expect_written_once(writes);
  EXPECT_EQ(store.requests, 12u);
}

TEST_F(Multipath, ReadsWhoseAnswersAreLostAreAnsweredAgain) {
  connect_both();
  fill(std::span(store.bytes).first(8 << 12), 5);
  for (const uint32_t from_store : {0u, 1u}) {
    to_client_a(true);
    std::vector<std::unique_ptr<Io>> reads;
    for (uint64_t i = 0; i < 8; ++i) {
      reads.push_back(client->make_io(Direction::kRead, 0, 4096));
      reads.back()->op.from_store = from_store;
    }
    submit_all(reads);
    ASSERT_TRUE(until([&] { return all_done(reads); }));
    for (const auto& io : reads) {
      EXPECT_EQ(io->status, Errc::kOk);
      EXPECT_TRUE(filled(io->buffer, 5));
    }
    to_client_a(false);
    ASSERT_TRUE(until_up(2));
  }
}

TEST_F(Multipath, LostPathComesBackAndCarriesRequestsAgain) {
  connect_both([](ClientOptions& options) { options.policy = PathPolicy::kRoundRobin; });
  cut_a(true);
  ASSERT_TRUE(until_up(1));
  EXPECT_THAT(client->session->explain(), HasSubstr("by 1 of 2 paths; path 0 to 10.0.0.1:1234"));
  cut_a(false);
  ASSERT_TRUE(until_up(2));
  EXPECT_EQ(client->session->paths()[0].reconnects, 1u);
  const uint64_t before = sent(0);
  auto writes = make_writes(8);
  submit_all(writes);
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  EXPECT_EQ(sent(0) - before, 4u);
  EXPECT_EQ(client->reconnected_calls, 0u) << "the session never was without a path";
}

TEST_F(Multipath, LastPathLostEndsTheIncarnationAndAnyPathBeginsTheNext) {
  connect_both();
  auto writes = make_writes(4);
  cut_a(true);
  ASSERT_TRUE(until_up(1));
  cut_b(true);
  ASSERT_TRUE(until([&] { return client->disconnected_calls == 1; }));
  submit_all(writes);
  world.run_for(2 * kSecond);
  EXPECT_FALSE(writes[0]->done);
  cut_b(false);
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  EXPECT_EQ(client->reconnected_calls, 1u);
  EXPECT_EQ(store.opened, 2u);
  expect_written_once(writes);
  cut_a(false);
  ASSERT_TRUE(until_up(2));
  expect_all_permits_back();
}

TEST_F(Multipath, ServerThatIsRestartedGetsBothPathsBack) {
  connect_both();
  auto writes = make_writes(12);
  store.hold = true;
  submit_all(writes);
  ASSERT_TRUE(until([&] { return server->held.size() == 12; }));
  kill_server();
  store.hold = false;
  ASSERT_TRUE(until([&] { return client->disconnected_calls == 1; }));
  start_server();
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  expect_written_once(writes);
  ASSERT_TRUE(until_up(2));
  expect_all_permits_back();
}

TEST_F(Multipath, RequestThatMovedEndsByItsAnswerOrWithTheIncarnation) {
  connect_both();
  store.hold = true;
  auto writes = make_writes(1);
  submit_all(writes);
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  const bool by_a = client->session->paths()[0].connections[1].in_flight == 1;
  ASSERT_TRUE(client->session->disconnect_path(by_a ? 0 : 1).ok());
  ASSERT_TRUE(until([&] {
    return client->session->paths()[by_a ? 1 : 0].connections[1].in_flight == 1;
  })) << "it moves";
  EXPECT_FALSE(client->session->queue(0).cancel(writes[0]->request)) << "it is on the wire";
  client->session->drop_path("the test asks for it");
  ASSERT_TRUE(until([&] { return client->returned_calls == 1; }));
  EXPECT_TRUE(client->session->queue(0).cancel(writes[0]->request));
  ASSERT_TRUE(until([&] { return writes[0]->done; }));
  EXPECT_EQ(writes[0]->status, Errc::kCanceled);
  EXPECT_EQ(writes[0]->completions, 1u);
  server->release();
  ASSERT_TRUE(until_up(1));
  expect_all_permits_back();
}

TEST_F(Multipath, HangingDiskHoldsUpNoOtherRequestWhenAPathIsLost) {
  connect_both();
  auto stuck = make_writes(2);
  for (auto& io : stuck) io->op.hang = 1;
  submit_all(stuck);
  ASSERT_TRUE(until([&] { return server->held.size() == 2; }));
  cut_a(true);
  ASSERT_TRUE(until_up(1));
  auto write = client->make_io(Direction::kWrite, 1 << 20, 4096);
  client->submit(*write);
  ASSERT_TRUE(until([&] { return write->done; }, kSecond));
  EXPECT_EQ(write->status, Errc::kOk);
  cut_a(false);
  ASSERT_TRUE(until_up(2)) << "a path joins though a disk hangs";
  server->release();
  ASSERT_TRUE(until([&] { return all_done(stuck); }));
  expect_written_once(stuck);
}

TEST_F(Multipath, PathsAreAddedAndRemovedAtRunTime) {
  connect_both();
  auto writes = make_writes(12);
  store.hold = true;
  submit_all(writes);
  ASSERT_TRUE(until([&] { return server->held.size() == 12; }));
  std::optional<base::Status> removed;
  remove_path(0, removed);
  ASSERT_TRUE(until([&] { return removed.has_value(); }));
  EXPECT_TRUE(removed->ok()) << removed->error().message();
  EXPECT_EQ(client->session->paths().size(), 1u);
  server->release();
  store.hold = false;
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  expect_written_once(writes);
  auto added = client->session->add_path({{testing::kServerIp, testing::kPort}, 0});
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(*added, 2u);
  ASSERT_TRUE(until_up(2));
  EXPECT_FALSE(client->session->add_path({{testing::kServerIp, testing::kPort}, 7}).ok());
  EXPECT_EQ(client->session->disconnect_path(0).error().code(), Errc::kNotFound);
}

TEST_F(Multipath, LastPathIsNotRemoved) {
  connect_both();
  ASSERT_TRUE(client->session->disconnect_path(1).ok());
  std::optional<base::Status> removed;
  remove_path(0, removed);
  ASSERT_TRUE(until([&] { return removed.has_value(); }));
  EXPECT_EQ(removed->error().code(), Errc::kInvalid);
}

TEST_F(Multipath, RoundRobinSharesAndMinInflightAvoidsWhatIsStuck) {
  connect_both([](ClientOptions& options) { options.policy = PathPolicy::kRoundRobin; });
  auto first = make_writes(8);
  submit_all(first);
  ASSERT_TRUE(until([&] { return all_done(first); }));
  EXPECT_EQ(sent(0), 4u);
  EXPECT_EQ(sent(1), 4u);
  client->session->set_policy(PathPolicy::kMinInflight);
  auto stuck = client->make_io(Direction::kWrite, 0, 512);
  stuck->op.hang = 1;
  client->submit(*stuck);
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  for (int i = 0; i < 10; ++i) {
    auto one = client->make_io(Direction::kWrite, 0, 512);
    client->submit(*one);
    ASSERT_TRUE(until([&] { return one->done; }));
  }
  EXPECT_EQ(std::min(sent(0), sent(1)), 4u) << "the path of what is stuck";
  EXPECT_EQ(std::max(sent(0), sent(1)), 14u);
  server->release();
  ASSERT_TRUE(until([&] { return stuck->done; }));
}

/// Two paths, of which B is slower.
class MinLatency : public testing::MultipathRig {
 protected:
  void connect_with_slow_b() {
    connect_both([](ClientOptions& options) { options.policy = PathPolicy::kMinLatency; });
    world.fabric().set_extra_delay(testing::kClientIpB, testing::kServerIpB, 5 * kMillisecond);
    run(40);
    ASSERT_GT(sent(0), 2 * sent(1));
  }
  /// In a turn of the reactor, as its users do: its time is that of the turn.
  void submit(Io& io) {
    client->home().post([this, &io] { client->submit(io); });
  }
  void run(int count) {
    for (int i = 0; i < count; ++i) {
      auto one = client->make_io(Direction::kWrite, 1 << 20, 512);
      submit(*one);
      ASSERT_TRUE(until([&] { return one->done; }));
    }
  }
};

// Silence is not waited for: a path that answers nothing is slower than any that does.
TEST_F(MinLatency, LeavesASilentPathBeforeItsEndIsNoticed) {
  connect_with_slow_b();
  const uint64_t by_b = sent(1);
  cut_a(true);
  auto writes = make_writes(12);
  for (auto& write : writes) {
    submit(*write);
    world.run_for(8 * kMillisecond);
  }
  EXPECT_EQ(up(), 2u) << "it has been noticed";
  EXPECT_GE(sent(1) - by_b, 10u) << "all but the first, and one in turn";
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  expect_written_once(writes);
}

TEST_F(MinLatency, DoesNotLeaveAPathForARequestThatHangs) {
  connect_with_slow_b();
  auto stuck = client->make_io(Direction::kWrite, 0, 512);
  stuck->op.hang = 1;
  submit(*stuck);
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  ASSERT_EQ(client->session->paths()[0].connections[1].in_flight, 1u);
  world.run_for(kSecond);  // nothing else: A looks silent, until it is tried again
  const uint64_t before = sent(1);
  run(400);
  EXPECT_LT(sent(1) - before, 100u);
  server->release();
  ASSERT_TRUE(until([&] { return stuck->done; }));
}

TEST_F(Multipath, MinLatencyPrefersTheFasterPathAndTriesTheOtherNowAndThen) {
  connect_both([](ClientOptions& options) { options.policy = PathPolicy::kMinLatency; });
  world.fabric().set_extra_delay(testing::kClientIp, testing::kServerIp, 5 * kMillisecond);
  for (int i = 0; i < 200; ++i) {
    auto one = client->make_io(Direction::kWrite, 0, 512);
    client->submit(*one);
    ASSERT_TRUE(until([&] { return one->done; }));
  }
  EXPECT_LT(sent(0), 20u);
  EXPECT_GT(sent(0), 2u);
  world.fabric().set_extra_delay(testing::kClientIp, testing::kServerIp, 0);
  world.fabric().set_extra_delay(testing::kClientIpB, testing::kServerIpB, 5 * kMillisecond);
  const uint64_t before = sent(1);
  for (int i = 0; i < 400; ++i) {
    auto one = client->make_io(Direction::kWrite, 0, 512);
    client->submit(*one);
    ASSERT_TRUE(until([&] { return one->done; }));
  }
  EXPECT_LT(sent(1) - before, 200u) << "it has noticed which is faster now";
}

TEST_F(Multipath, StatusAndWordsBeyondErrnoComeThroughTheAnswerSlot) {
  connect_both();
  auto write = client->make_io(Direction::kWrite, 0, 512);
  write->request.words = {7, 1ull << 60};
  write->request.has_words = true;
  client->submit(*write);
  auto read = client->make_io(Direction::kRead, 0, 512);
  read->request.words = {1, 2};
  read->request.has_words = true;
  client->submit(*read);
  auto plain = client->make_io(Direction::kRead, 0, 512);
  client->submit(*plain);
  auto beyond = client->make_io(Direction::kRead, 1ull << 40, 512);
  client->submit(*beyond);
  ASSERT_TRUE(until([&] { return write->done && read->done && plain->done && beyond->done; }));
  EXPECT_EQ(write->status, Errc::kOk);
  EXPECT_TRUE(write->request.has_answer_words);
  EXPECT_EQ(write->request.answer_words[0], 1ull << 60);
  EXPECT_EQ(read->status, Errc::kOk);
  EXPECT_EQ(read->request.answer_words[1], 1u);
  EXPECT_FALSE(plain->request.has_answer_words);
  EXPECT_EQ(beyond->status, Errc::kOutOfRange);
}

TEST_F(Multipath, PathThatIsNotThereDoesNotHoldUpTheSession) {
  cut_a(true);
  connect([](ClientOptions& options) { options.reconnect.attempt_timeout_ns = 2 * kSecond; });
  EXPECT_EQ(up(), 1u);
  EXPECT_FALSE(client->session->paths()[0].connected);
  cut_a(false);
  ASSERT_TRUE(until_up(2));
}

TEST_F(Multipath, ClosesWhileAPathIsBeingMadeAndWithRequestsInFlight) {
  connect_both();
  store.hold = true;
  auto writes = make_writes(12);
  submit_all(writes);
  ASSERT_TRUE(until([&] { return server->held.size() == 12; }));
  cut_a(true);
  ASSERT_TRUE(until_up(1));
  world.run_for(150 * kMillisecond);
  client->close();
  ASSERT_TRUE(until([&] { return client->closed; }, kSecond));
  EXPECT_TRUE(all_done(writes));
  server->release();
  ASSERT_TRUE(until([&] { return store.closed == 1; }));
}

// --- peers without numbers: an older Braid, and what a kernel peer does

TEST_F(Multipath, OlderServerTakesTwoPathsAndIsSentRequestsAgain) {
  adjust_server = [](ServerOptions& options) { options.features = 3; };
  connect_both();
  auto writes = make_writes(12);
  to_client_a(true);
  submit_all(writes);
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  for (const auto& io : writes) EXPECT_EQ(io->status, Errc::kOk);
  EXPECT_GT(store.requests, 12u) << "nothing tells the server that it did them";
  EXPECT_EQ(client->disconnected_calls, 0u);
}

TEST_F(Multipath, OlderServerDefersWhatComesAgainWhileItStillRuns) {
  adjust_server = [](ServerOptions& options) { options.features = 3; };
  connect_both();
  auto writes = make_writes(12);
  store.hold = true;
  submit_all(writes);
  ASSERT_TRUE(until([&] { return server->held.size() == 12; }));
  cut_a(true);
  ASSERT_TRUE(until_up(1));
  world.run_for(kSecond);
  EXPECT_EQ(client->disconnected_calls, 0u) << "the other path was taken down as well";
  EXPECT_TRUE(server->server->statistics().breaches.empty());
  store.hold = false;
  server->release();
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  for (const auto& io : writes) EXPECT_EQ(io->status, Errc::kOk);
}

TEST_F(Multipath, OlderServerLosesBothPathsWithDeferredRequestsAtItsDisk) {
  adjust_server = [](ServerOptions& options) { options.features = 3; };
  connect_both();
  auto writes = make_writes(12);
  store.hold = true;
  submit_all(writes);
  ASSERT_TRUE(until([&] { return server->held.size() == 12; }));
  cut_a(true);
  ASSERT_TRUE(until_up(1));
  world.run_for(kSecond);  // those of A have come again by B, and are deferred
  cut_b(true);
  ASSERT_TRUE(until([&] {
    const auto sessions = server->server->sessions();
    return sessions.empty() || sessions[0]->paths() == 0;
  }));
  world.run_for(5 * kSecond);  // the queues are gone
  store.hold = false;
  server->release();
  cut_a(false);
  cut_b(false);
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  for (const auto& io : writes) EXPECT_EQ(io->status, Errc::kOk);
}

TEST_F(Multipath, OnlyConnectedPathIsRemovedWhileAnotherIsBeingMade) {
  connect_both();
  cut_b(true);
  ASSERT_TRUE(until_up(1));
  world.run_for(3 * kSecond);  // B is in the middle of an attempt, or between two
  auto writes = make_writes(12);
  store.hold = true;
  submit_all(writes);
  ASSERT_TRUE(until([&] { return server->held.size() == 12; }));
  std::optional<base::Status> removed;
  remove_path(0, removed);
  cut_b(false);
  store.hold = false;
  server->release();
  ASSERT_TRUE(until([&] { return removed.has_value(); }));
  EXPECT_TRUE(removed->ok());
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  for (const auto& io : writes) EXPECT_EQ(io->status, Errc::kOk);
  expect_all_permits_back();
}

TEST_F(Multipath, PathIsRemovedWhileAnIncarnationIsBegunByIt) {
  connect_both();
  bool turn = false, go_on = false;
  client->on_reconnected = [&]() -> base::Task<base::Status> {
    turn = true;
    while (!go_on) co_await client->home().sleep_ns(10 * kMillisecond);
    co_return base::Status();
  };
  cut_a(true);
  cut_b(true);
  ASSERT_TRUE(until_up(0));
  cut_a(false);
  ASSERT_TRUE(until([&] { return turn; }));
  std::optional<base::Status> removed;
  remove_path(0, removed);
  world.run_for(kSecond);
  EXPECT_FALSE(removed.has_value()) << "its user's turn is not over";
  go_on = true;
  cut_b(false);
  ASSERT_TRUE(until([&] { return removed.has_value(); }));
  EXPECT_TRUE(removed->ok());
  ASSERT_TRUE(until_up(1));
}

TEST_F(Multipath, PathThatIsBeingRemovedIsNobodyElses) {
  connect_both();
  store.hold = true;
  auto writes = make_writes(4);
  submit_all(writes);
  ASSERT_TRUE(until([&] { return server->held.size() == 4; }));
  std::optional<base::Status> first, second;
  remove_path(0, first);
  remove_path(0, second);
  ASSERT_TRUE(until([&] { return second.has_value(); }));
  EXPECT_EQ(second->error().code(), Errc::kNotFound);
  EXPECT_FALSE(client->session->reconnect_path(0).ok());
  store.hold = false;
  server->release();
  ASSERT_TRUE(until([&] { return first.has_value() && all_done(writes); }));
  EXPECT_TRUE(first->ok());
  expect_written_once(writes);
}

TEST_F(Multipath, RejoiningAServerThatForgotBeginsAnew) {
  adjust_server = [](ServerOptions& options) { options.features = 3; };
  // A dead server is noticed late: the path that is left is a ghost for a while.
  connect_both([](ClientOptions& options) { options.heartbeat.interval_ns = 10 * kSecond; });
  const unsigned before = client->reconnected_calls;
  ASSERT_TRUE(client->session->disconnect_path(1).ok());
  ASSERT_TRUE(until_up(1));
  cut_a(true);  // so that the end of A's connections is not heard
  kill_server();
  start_server();
  ASSERT_TRUE(client->session->reconnect_path(1).ok());
  ASSERT_TRUE(until([&] { return client->reconnected_calls > before; }));
  EXPECT_EQ(client->disconnected_calls, 1u);
}

TEST_F(Multipath, PathThatIsReconnectedIsNotJudgedByWhatListenedThereBefore) {
  connect_both([](ClientOptions& options) { options.heartbeat.interval_ns = 10 * kSecond; });
  ASSERT_TRUE(client->session->disconnect_path(1).ok());
  ASSERT_TRUE(until_up(1));
  world.run_for(kSecond);  // the server has ended path B, which it says by A
  cut_a(true);
  kill_server();
  start_server();  // it does not know the session, and path A has not noticed yet
  const auto unknown = [this] { return client->session->paths()[1].unknown_there; };
  ASSERT_TRUE(client->session->reconnect_path(1).ok());
  ASSERT_TRUE(until(unknown));
  ASSERT_TRUE(client->session->disconnect_path(1).ok());
  cut_b(true);
  world.run_for(kSecond);
  ASSERT_TRUE(client->session->reconnect_path(1).ok());
  EXPECT_FALSE(unknown()) << "nobody has answered yet";
  world.run_for(100 * kMillisecond);
  EXPECT_FALSE(unknown());
}

class MultipathThreads : public testing::MultipathRig {
 protected:
  MultipathThreads() : MultipathRig(3) {}
};

TEST_F(MultipathThreads, EachReactorsRequestsMoveWithoutBeingDoneTwice) {
  connect_both();
  for (int round = 0; round < 6; ++round) {
    store.write_log.clear();
    auto writes = make_writes(9);
    if (round % 2 == 0) store.hold = true;
    submit_all(writes);
    if (round % 2 == 0) {
      ASSERT_TRUE(until([&] { return server->held.size() == 9; }));
    }
    round % 4 < 2 ? cut_a(true) : cut_b(true);
    ASSERT_TRUE(until_up(1));
    store.hold = false;
    server->release();
    ASSERT_TRUE(until([&] { return all_done(writes); }));
    expect_written_once(writes);
    cut_a(false);
    cut_b(false);
    ASSERT_TRUE(until_up(2));
    client->used = 0;
  }
  expect_all_permits_back();
}

}  // namespace
}  // namespace braid::trs
