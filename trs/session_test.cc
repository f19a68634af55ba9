// A session that nothing disturbs: open, requests of every shape, admin requests, close.
#include <gmock/gmock.h>

#include <array>

#include "trs/session_rig.h"

namespace braid::trs::testing {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;
using ::testing::HasSubstr;

class Session : public SessionRig {};

TEST_F(Session, OpensWithTheLimitsOfTheServer) {
  connect();
  EXPECT_EQ(client->session->state(), SessionState::kConnected);
  EXPECT_EQ(client->session->limits().queue_depth, 16u);
  EXPECT_EQ(client->session->limits().max_io_bytes, 16u << 10);
  EXPECT_TRUE(client->session->limits().braid_peer);
  EXPECT_EQ(server->last_name, "client");
  EXPECT_THAT(client->session->explain(), HasSubstr("connected to 10.0.0.1:1234"));
  expect_all_permits_back();
}

TEST_F(Session, WriteReachesTheStoreAndReadBringsItBack) {
  connect();
  auto write = client->make_io(Direction::kWrite, 4096, 10'000);
  fill(write->buffer, 7);
  client->submit(*write);
  ASSERT_TRUE(until([&] { return write->done; }));
  EXPECT_EQ(write->status, Errc::kOk);
  EXPECT_TRUE(filled(std::span(store.bytes).subspan(4096, 10'000), 7));

  auto read = client->make_io(Direction::kRead, 4096, 10'000);
  client->submit(*read);
  ASSERT_TRUE(until([&] { return read->done; }));
  EXPECT_EQ(read->status, Errc::kOk);
  EXPECT_TRUE(filled(read->buffer, 7));
  expect_all_permits_back();
}

TEST_F(Session, ReadMayBeAnsweredFromMemoryOutsideTheChunks) {
  connect();
  fill(std::span(store.bytes).subspan(100, 5000), 3);
  auto read = client->make_io(Direction::kRead, 100, 5000);
  read->op.from_store = 1;
  client->submit(*read);
  ASSERT_TRUE(until([&] { return read->done; }));
  EXPECT_TRUE(filled(read->buffer, 3));
}

TEST_F(Session, MemoryMayBeLentAndTakenBackWhileSessionsAreOpen) {
  connect();
  for (int i = 0; i < 5000; ++i) {  // more often than there are slots
    server->store_mr.reset();
    server->store_mr =
        std::move(*server->server->register_memory(store.bytes.data(), store.bytes.size()));
  }
  ServerSession& session = *server->server->sessions().front();
  ASSERT_FALSE(session.uses_memory(*server->store_mr));
  server->home().spawn(server->use(session, *server->store_mr));
  server->home().wake();
  ASSERT_TRUE(until([&] { return session.uses_memory(*server->store_mr); }));
  fill(std::span(store.bytes).first(5000), 4);
  auto read = client->make_io(Direction::kRead, 0, 5000);
  read->op.from_store = 1;
  client->submit(*read);
  ASSERT_TRUE(until([&] { return read->done; }));
  EXPECT_EQ(read->status, Errc::kOk);
  EXPECT_TRUE(filled(read->buffer, 4));
}

TEST_F(Session, ServerLendsUpToABound) {
  start_server();
  std::vector<std::unique_ptr<vhca::Mr>> lent;
  for (int i = 0; i < 4095; ++i) {  // and the store
    lent.push_back(std::move(*server->server->register_memory(store.bytes.data(), 4096)));
  }
  auto more = server->server->register_memory(store.bytes.data(), 4096);
  EXPECT_EQ(more.code(), Errc::kNoMemory);
  EXPECT_THAT(more.error().message(), HasSubstr("4096 are the most"));
  lent.pop_back();
  EXPECT_TRUE(server->server->register_memory(store.bytes.data(), 4096).ok());
}

TEST_F(Session, EveryStatusOfTheServersUserComesBack) {
  connect();
  for (const Direction direction : {Direction::kRead, Direction::kWrite}) {
    for (const Errc status : {Errc::kIo, Errc::kNoSpace, Errc::kReadOnly, Errc::kInvalid}) {
      auto io = client->make_io(direction, 0, 512);
      io->op.fail_errno = static_cast<uint32_t>(base::errno_from_errc(status));
      client->submit(*io);
      ASSERT_TRUE(until([&] { return io->done; }));
      EXPECT_EQ(io->status, status);
    }
  }
  expect_all_permits_back();
}

TEST_F(Session, SmallestAndLargestRequestsWork) {
  connect();
  for (const uint32_t length : {0u, 1u, 63u, 4096u, 16u << 10}) {
    auto write = client->make_io(Direction::kWrite, 0, length);
    fill(write->buffer, length);
    client->submit(*write);
    ASSERT_TRUE(until([&] { return write->done; }));
    EXPECT_EQ(write->status, Errc::kOk) << length;
    auto read = client->make_io(Direction::kRead, 0, length);
    client->submit(*read);
    ASSERT_TRUE(until([&] { return read->done; }));
    EXPECT_EQ(read->status, Errc::kOk) << length;
    EXPECT_TRUE(filled(read->buffer, length)) << length;
  }
}

TEST_F(Session, RequestBeyondTheLimitsIsRefusedAndDisturbsNobody) {
  connect();
  auto large = client->make_io(Direction::kWrite, 0, (16 << 10) + 1);
  client->submit(*large);
  ASSERT_TRUE(until([&] { return large->done; }));
  EXPECT_EQ(large->status, Errc::kInvalid);
  EXPECT_EQ(client->session->state(), SessionState::kConnected);
  expect_all_permits_back();
}

TEST_F(Session, EachIoIsTwoMessagesAndCompletesOnce) {
  connect();
  constexpr unsigned kIoCount = 3000;
  constexpr unsigned kDepth = 15;
  std::vector<std::unique_ptr<Io>> ios;
  unsigned started = 0, finished = 0, wrong = 0;
  // Each of `kDepth` lanes writes a block of its own, reads it back, and so on.
  const auto start = [&](Io& io) {
    ++started;
    client->submit(io);
  };
  for (unsigned lane = 0; lane < kDepth; ++lane) {
    ios.push_back(client->make_io(Direction::kWrite, lane * 8192, 512 + lane * 300));
    fill(ios.back()->buffer, lane);
    ios.back()->after = [&, lane](Io& io) {
      ++finished;
      if (io.status != Errc::kOk) ++wrong;
      if (io.request.direction == Direction::kRead && !filled(io.buffer, lane)) {
        ++wrong;
      }
      const bool was_write = io.request.direction == Direction::kWrite;
      io.request.direction = was_write ? Direction::kRead : Direction::kWrite;
      if (was_write) std::memset(io.buffer.data(), 0, io.buffer.size());
      if (started < kIoCount) start(io);
    };
  }
  const ClientStatistics before = client->session->queue(0).statistics();
  for (auto& io : ios) start(*io);
  ASSERT_TRUE(until([&] { return finished == started && finished >= kIoCount; }));
  EXPECT_EQ(wrong, 0u);
  const ClientStatistics after = client->session->queue(0).statistics();
  EXPECT_EQ(after.messages_sent - before.messages_sent, finished);
  EXPECT_EQ(after.messages_received - before.messages_received, finished);
  EXPECT_EQ(after.reads + after.writes, finished);
  EXPECT_EQ(after.in_flight, 0u);
  EXPECT_EQ(store.requests, finished);
  expect_all_permits_back();
}

// RTRS once let interrupts in again at the end of a completion, whatever its caller had shut out.
// Nothing of ours is entered while it is at work: a user that locks, or walks a list, around
// submit() or in `done` is not called in the middle of it.
TEST_F(Session, NoRequestEndsInsideTheCallThatSubmitsItNorInsideAnothersEnd) {
  connect();
  bool inside = false;
  unsigned ended = 0, entered = 0, more = 3;
  std::vector<std::unique_ptr<Io>> ios;
  std::function<void(uint32_t)> submit_one = [&](uint32_t length) {
    ios.push_back(client->make_io(Direction::kWrite, 0, length));
    ios.back()->after = [&](Io&) {
      if (std::exchange(inside, true)) ++entered;
      ++ended;
      // Refused at once, answered, and refused again.
      if (more > 0) submit_one(--more % 2 == 0 ? (16 << 10) + 1 : 512);
      inside = false;
    };
    const bool outside = !std::exchange(inside, true);
    client->submit(*ios.back());
    if (outside) inside = false;
  };
  submit_one(512);
  submit_one((16 << 10) + 1);
  ASSERT_TRUE(until([&] { return ended == 5; }));
  kill_server();
  ASSERT_TRUE(until([&] { return client->disconnected_calls == 1; }));
  submit_one(512);  // held, and canceled
  ASSERT_FALSE(std::exchange(inside, true));
  EXPECT_TRUE(client->session->queue(0).cancel(ios.back()->request));
  inside = false;
  ASSERT_TRUE(until([&] { return ended == 6; }));
  EXPECT_EQ(entered, 0u);
  for (auto& io : ios) EXPECT_EQ(io->completions, 1u);
  expect_all_permits_back();
}

TEST_F(Session, WaitersGetPermitsInTurn) {
  connect();
  std::vector<Permit> all;
  while (Permit permit = client->session->queue(0).acquire()) all.push_back(std::move(permit));
  struct Waiter : PermitWaiter {
    std::vector<int>* order = nullptr;
    int number = 0;
  };
  std::vector<int> order;
  std::array<Waiter, 3> waiters;
  for (int i = 0; i < 3; ++i) {
    Waiter& waiter = waiters[static_cast<size_t>(i)];
    waiter.order = &order;
    waiter.number = i;
    waiter.permit_free = [](PermitWaiter& base_waiter) {
      auto& self = static_cast<Waiter&>(base_waiter);
      self.order->push_back(self.number);
    };
    client->session->queue(0).wait_for_permit(waiter);
  }
  world.run_for(10 * kMillisecond);
  EXPECT_TRUE(order.empty());
  all.pop_back();
  client->home().wake();
  ASSERT_TRUE(until([&] { return order.size() >= 1; }));
  ASSERT_TRUE(until([&] { return order.size() == 3; }));  // the permit was not taken
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST_F(Session, UserHeadersAreBoundedByWhatTheClientDeclares) {
  connect([](ClientOptions& options) { options.user_header_bytes_max = sizeof(StoreOp); });
  auto declared = client->make_io(Direction::kWrite, 0, 512);
  fill(declared->buffer, 5);
  client->submit(*declared);
  std::array<std::byte, sizeof(StoreOp) + 1> header{};
  auto longer = client->make_io(Direction::kWrite, 0, 512);
  longer->request.user_header = header;
  client->submit(*longer);
  ASSERT_TRUE(until([&] { return declared->done && longer->done; }));
  EXPECT_EQ(declared->status, Errc::kOk);
  EXPECT_EQ(longer->status, Errc::kInvalid);
  EXPECT_TRUE(filled(std::span(store.bytes).first(512), 5));
  EXPECT_EQ(client->session->state(), SessionState::kConnected);
  expect_all_permits_back();
}

TEST_F(Session, TheLongestHeaderThatIsDeclaredHasRoomInEachSend) {
  connect([](ClientOptions& options) { options.user_header_bytes_max = sizeof(StoreOp); });
  fill(std::span(store.bytes).first(512), 6);
  auto read = client->make_io(Direction::kRead, 0, 512);
  read->request.has_words = true;       // with which a read has the longest message
  for (uint64_t i = 0; i < 200; ++i) {  // more often than there are sends
    read->done = false;
    read->request.words = {i, ~i};
    client->submit(*read);
    ASSERT_TRUE(until([&] { return read->done; }));
    ASSERT_EQ(read->status, Errc::kOk);
    ASSERT_TRUE(read->request.has_answer_words);
    ASSERT_EQ(read->request.answer_words, (std::array{~i, i}));
    ASSERT_TRUE(filled(read->buffer, 6));
  }
}

TEST_F(Session, UserHeadersBeyondTheProtocolsAreRefusedBeforeAnythingIsSent) {
  start_server();
  start_client();
  client->open([](ClientOptions& options) { options.user_header_bytes_max = 1025; });
  ASSERT_TRUE(until([&] { return client->open_error.has_value(); }));
  EXPECT_EQ(client->open_error->code(), Errc::kInvalid);
  EXPECT_THAT(client->open_error->message(), HasSubstr("1025 bytes: at most 1024"));
}

TEST_F(Session, AdminRequestsGoByConnectionZeroOneAfterTheOther) {
  connect();
  std::vector<Errc> results;
  StoreOp op;
  StoreOp failing;
  failing.fail_errno = 30;
  auto buffer = client->make_io(Direction::kRead, 0, 512);
  fill(std::span(store.bytes).first(512), 9);
  const auto ask = [&](const StoreOp& header, std::span<std::byte> data) -> base::Task<void> {
    AdminRequest request;
    request.what = "ask";
    request.user_header = std::as_bytes(std::span(&header, 1));
    request.data = data;
    auto answer = co_await client->session->admin(request);
    results.push_back(answer.ok() ? *answer : answer.code());
  };
  client->home().spawn(ask(op, buffer->buffer));
  client->home().spawn(ask(failing, {}));
  client->home().spawn(ask(op, {}));
  client->home().wake();
  ASSERT_TRUE(until([&] { return results.size() == 3; }));
  EXPECT_EQ(results[0], Errc::kOk);
  EXPECT_EQ(results[1], Errc::kReadOnly);
  EXPECT_EQ(results[2], Errc::kOk);
  EXPECT_TRUE(filled(buffer->buffer, 9));
}

TEST_F(Session, IdleSessionStaysUpByHeartbeats) {
  connect();
  world.run_for(20 * kSecond);
  EXPECT_EQ(client->disconnected_calls, 0u);
  EXPECT_EQ(client->session->state(), SessionState::kConnected);
  EXPECT_EQ(store.closed, 0u);
}

/// So that it looks for longer before it sleeps.
TEST_F(Session, AReactorAwaitsTheAnswersOfItsRequests) {
  connect();
  EXPECT_FALSE(client->home().awaits());
  store.hold = true;
  const auto io = client->make_io(Direction::kWrite, 0, 4096);
  client->submit(*io);
  EXPECT_TRUE(client->home().awaits());
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  EXPECT_FALSE(client->home().awaits()) << "it sleeps already";
  EXPECT_FALSE(server->home().awaits()) << "what it owes is no reason";
  server->release();
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_FALSE(client->home().awaits());
}

TEST_F(Session, CloseCancelsWhatIsInFlightAndTellsTheServer) {
  connect();
  store.hold = true;
  std::vector<std::unique_ptr<Io>> ios;
  for (unsigned i = 0; i < 15; ++i) {
    ios.push_back(client->make_io(Direction::kWrite, i * 4096, 4096));
    client->submit(*ios.back());
  }
  ASSERT_TRUE(until([&] { return server->held.size() == 15; }));
  client->close();
  ASSERT_TRUE(until([&] { return client->closed; }));
  for (auto& io : ios) {
    EXPECT_EQ(io->completions, 1u);
    EXPECT_EQ(io->status, Errc::kCanceled);
  }
  EXPECT_EQ(client->session->state(), SessionState::kClosed);
  world.run_for(100 * kMillisecond);
  EXPECT_EQ(store.closed, 0u) << "the session ends when its last request has ended";
  server->release();
  ASSERT_TRUE(until([&] { return store.closed == 1; }));
  EXPECT_TRUE(server->server->sessions().empty());
}

TEST_F(Session, ServerStopsInOrder) {
  connect();
  bool stopped = false;
  const auto stop = [&]() -> base::Task<void> {
    co_await server->server->stop();
    stopped = true;
  };
  server->home().spawn(stop());
  server->home().wake();
  ASSERT_TRUE(until([&] { return stopped; }));
  EXPECT_EQ(store.closed, 1u);
  ASSERT_TRUE(until([&] { return client->disconnected_calls == 1; }));
}

TEST_F(Session, StopIsBoundedWhenADeviceNeverAnswers) {
  connect();
  store.hold = true;
  auto io = client->make_io(Direction::kWrite, 0, 512);
  client->submit(*io);
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  std::vector<base::Status> ends;
  const auto stop = [&]() -> base::Task<void> {
    base::Status status = co_await server->server->stop_within(3 * kSecond);
    ends.push_back(std::move(status));
  };
  const uint64_t began_ns = world.now_ns();
  server->home().spawn(stop());
  server->home().wake();
  ASSERT_TRUE(until([&] { return ends.size() == 1; }));
  EXPECT_GE(world.now_ns() - began_ns, 3 * kSecond);
  EXPECT_LT(world.now_ns() - began_ns, 3 * kSecond + 100 * kMillisecond);
  EXPECT_EQ(ends[0].code(), Errc::kTimedOut);
  EXPECT_THAT(ends[0].error().message(),
              HasSubstr("has not stopped after 3000 ms: session 'client'"));
  EXPECT_THAT(ends[0].error().message(), HasSubstr("1 requests have not ended at their device"));
  // Again, and the device answers after all.
  server->home().spawn(stop());
  server->home().wake();
  world.run_for(kSecond);
  server->release();
  ASSERT_TRUE(until([&] { return ends.size() == 2; }, kSecond));
  EXPECT_TRUE(ends[1].ok());
  EXPECT_EQ(store.closed, 1u);
}

TEST_F(Session, StopWaitsForNoClientThatIsStopped) {
  connect();
  auto io = client->make_io(Direction::kWrite, 0, 512);
  client->submit(*io);
  client_host->pause();
  std::optional<base::Status> end;
  const auto stop = [&]() -> base::Task<void> {
    base::Status status = co_await server->server->stop_within(kSecond);
    end.emplace(std::move(status));
  };
  server->home().spawn(stop());
  server->home().wake();
  ASSERT_TRUE(until([&] { return end.has_value(); }));
  EXPECT_TRUE(end->ok()) << end->error().message();
  client_host->resume();
}

TEST_F(Session, NobodyListeningIsSaidInWords) {
  start_client();
  client->open();
  ASSERT_TRUE(until([&] { return client->open_error.has_value(); }));
  EXPECT_EQ(client->open_error->code(), Errc::kRefused);
  EXPECT_THAT(client->open_error->message(), HasSubstr("connecting to 10.0.0.1:1234"));
}

TEST_F(Session, BadNamesAreRefusedBeforeAnythingIsSent) {
  start_client();
  for (const std::string& name : {std::string(), std::string("a b"), std::string(255, 'x')}) {
    client->open_error.reset();
    client->open([&](ClientOptions& options) { options.session_name = name; });
    ASSERT_TRUE(until([&] { return client->open_error.has_value(); }));
    EXPECT_EQ(client->open_error->code(), Errc::kInvalid);
  }
}

TEST_F(Session, FullServerRefusesInWords) {
  adjust_server = [](ServerOptions& options) { options.sessions_max = 0; };
  start_server();
  start_client();
  client->open();
  ASSERT_TRUE(until([&] { return client->open_error.has_value(); }));
  EXPECT_THAT(client->open_error->message(), HasSubstr("no room for another session"));
}

}  // namespace
}  // namespace braid::trs::testing
