// Admin requests that the server does not answer: they end in time, with clear words, and neither
// their late answers nor their permits do harm.
#include <gmock/gmock.h>

#include <cerrno>

#include "trs/session_rig.h"

namespace braid::trs::testing {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;
using ::testing::HasSubstr;

constexpr uint32_t kAdminPermits = 4;

/// One admin request: what is asked for, and how it ended.
struct Asked {
  StoreOp op;
  std::string what = "open disk.img";
  Direction direction = Direction::kRead;
  std::vector<std::byte> data = std::vector<std::byte>(64, std::byte{0xee});
  std::optional<base::Result<Errc>> answer;
  uint64_t ended_at_ns = 0;
  unsigned late_answers = 0;
  Errc late_status = Errc::kBusy;
  std::vector<std::byte> late_data;

  bool untouched() const {
    return std::all_of(data.begin(), data.end(), [](std::byte b) { return b == std::byte{0xee}; });
  }
};

class Admin : public SessionRig {
 protected:
  void SetUp() override {
    adjust_server = [](ServerOptions& options) { options.queue_depth = 128; };
    connect();
    ASSERT_EQ(client->session->limits().admin_permits, kAdminPermits);
    fill(std::span(store.bytes).first(64), 5);
  }
  AdminRequest request_of(Asked& asked) {
    AdminRequest request;
    request.what = asked.what;
    request.direction = asked.direction;
    request.user_header = std::as_bytes(std::span(&asked.op, 1));
    request.data = asked.data;
    request.late_answer = [&asked](Errc status, std::span<const std::byte> data) {
      ++asked.late_answers;
      asked.late_status = status;
      asked.late_data.assign(data.begin(), data.end());
    };
    return request;
  }
  base::Task<void> run(Asked& asked) {
    const AdminRequest request = request_of(asked);
    asked.answer.emplace(co_await client->session->admin(request));
    asked.ended_at_ns = client->home().now_ns();
  }
  void start(Asked& asked) {
    client->home().spawn(run(asked));
    client->home().wake();
  }
  void ask(Asked& asked) {
    start(asked);
    ASSERT_TRUE(until([&] { return asked.answer.has_value(); }));
  }
  /// Asks, and waits until the server has it and does nothing.
  void hang(Asked& asked) {
    const size_t before = server->held.size();
    asked.op.hang = 1;
    start(asked);
    ASSERT_TRUE(until([&] { return server->held.size() == before + 1; }));
  }
  void expect_answered(Asked& asked) {
    ask(asked);
    ASSERT_TRUE(asked.answer->ok()) << asked.answer->error().message();
    EXPECT_EQ(**asked.answer, Errc::kOk);
    EXPECT_TRUE(filled(asked.data, 5));
  }
  /// Asks by all admin permits at once; each must get its answer.
  void expect_all_admin_permits_back() {
    std::array<Asked, kAdminPermits> all;
    for (Asked& each : all) ASSERT_NO_FATAL_FAILURE(hang(each));
    server->release();
    for (Asked& each : all) {
      ASSERT_TRUE(until([&] { return each.answer.has_value(); }));
      EXPECT_TRUE(each.answer->ok());
    }
    expect_all_permits_back(kAdminPermits);
  }
};

TEST_F(Admin, HungRequestEndsInTimeAndNamesPeerRequestAndTime) {
  Asked asked;
  const uint64_t began_ns = world.now_ns();
  hang(asked);
  ASSERT_TRUE(until([&] { return asked.answer.has_value(); }));
  EXPECT_GE(asked.ended_at_ns - began_ns, 5 * kSecond);
  EXPECT_LT(asked.ended_at_ns - began_ns, 5 * kSecond + 100 * kMillisecond);
  EXPECT_EQ(asked.answer->code(), Errc::kTimedOut);
  EXPECT_THAT(asked.answer->error().message(), HasSubstr("10.0.0.1"));
  EXPECT_THAT(asked.answer->error().message(),
              HasSubstr("has not answered 'open disk.img' for 5.0 s"));
  EXPECT_EQ(client->session->state(), SessionState::kConnected);
  EXPECT_EQ(client->disconnected_calls, 0u);
  EXPECT_THAT(client->session->explain(), HasSubstr("it has not answered 'open disk.img' for 5"));
  server->release();
}

TEST_F(Admin, OthersAreServedWhileOneHangs) {
  Asked hung, other;
  hang(hung);
  const uint64_t began_ns = world.now_ns();
  expect_answered(other);
  EXPECT_LT(world.now_ns() - began_ns, 10 * kMillisecond);
  auto io = client->make_io(Direction::kWrite, 4096, 512);
  client->submit(*io);
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(io->status, Errc::kOk);
  server->release();
}

TEST_F(Admin, LateAnswerIsToldAndTouchesNothingOfTheCallers) {
  Asked asked;
  hang(asked);
  ASSERT_TRUE(until([&] { return asked.answer.has_value(); }));
  server->release();
  ASSERT_TRUE(until([&] { return asked.late_answers == 1; }));
  EXPECT_TRUE(asked.untouched());
  EXPECT_EQ(asked.late_status, Errc::kOk);
  EXPECT_TRUE(filled(asked.late_data, 5));
  EXPECT_THAT(client->session->explain(), ::testing::Not(HasSubstr("open disk.img")));
  expect_all_admin_permits_back();
  EXPECT_EQ(asked.late_answers, 1u);
}

TEST_F(Admin, WhoFindsNoPermitSaysSoInTime) {
  std::array<Asked, kAdminPermits> hung;
  for (Asked& each : hung) hang(each);
  for (Asked& each : hung) ASSERT_TRUE(until([&] { return each.answer.has_value(); }));
  Asked late;
  late.what = "list";
  ask(late);
  EXPECT_EQ(late.answer->code(), Errc::kTimedOut);
  EXPECT_THAT(late.answer->error().message(),
              HasSubstr("'list' waited 5.0 s behind 4 admin requests that have no answer yet"));
  server->release();
  expect_all_admin_permits_back();
}

TEST_F(Admin, TaskThatIsDestroyedLeavesTheAnswerToItsSlot) {
  Asked asked;
  asked.op.hang = 1;
  bool gave_up = false;
  const auto impatient = [&]() -> base::Task<void> {
    const AdminRequest request = request_of(asked);
    auto answer =
        co_await client->home().with_timeout(client->session->admin(request), 100 * kMillisecond);
    gave_up = !answer.has_value();
  };
  client->home().spawn(impatient());
  client->home().wake();
  ASSERT_TRUE(until([&] { return gave_up; }));
  asked.op = {};
  server->release();
  ASSERT_TRUE(until([&] { return asked.late_answers == 1; }));
  EXPECT_TRUE(asked.untouched());
  expect_all_admin_permits_back();
}

TEST_F(Admin, LostPathGivesThePermitsOfHungRequestsBack) {
  std::array<Asked, kAdminPermits> hung;
  for (Asked& each : hung) hang(each);
  ASSERT_TRUE(until([&] { return hung.back().answer.has_value(); }));
  Asked waits;
  start(waits);
  kill_server();
  ASSERT_TRUE(until([&] { return client->disconnected_calls == 1; }));
  ASSERT_TRUE(until([&] { return waits.answer.has_value(); }));
  EXPECT_EQ(waits.answer->code(), Errc::kDisconnected);
  EXPECT_THAT(waits.answer->error().message(), HasSubstr("'open disk.img', for want of a path"));
  start_server();
  ASSERT_TRUE(until([&] { return client->session->state() == SessionState::kConnected; }));
  expect_all_admin_permits_back();
  for (const Asked& each : hung) EXPECT_EQ(each.late_answers, 0u);
}

TEST_F(Admin, HungRequestDoesNotStallTheUsersTurnForEver) {
  kill_server();
  start_server();
  Asked hung;
  hung.op.hang = 1;
  client->on_reconnected = [&]() -> base::Task<base::Status> {
    if (client->reconnected_calls > 1) co_return base::Status();
    co_await run(hung);
    co_return hung.answer->error();
  };
  ASSERT_TRUE(until([&] { return hung.answer.has_value(); }));
  EXPECT_EQ(hung.answer->code(), Errc::kTimedOut);
  ASSERT_TRUE(until([&] {
    return client->session->explain().find("has not answered 'open disk.img'") != std::string::npos;
  })) << "the reason is shown while the path is down";
  server->release();  // the next path waits for it
  ASSERT_TRUE(until([&] { return client->session->state() == SessionState::kConnected; }));
}

TEST_F(Admin, RefusalOfTheServerIsAnAnswerWhateverItsErrno) {
  for (const int sys_errno : {ENOTCONN, ECANCELED, ETIMEDOUT, EACCES}) {
    Asked asked;
    asked.op.fail_errno = static_cast<uint32_t>(sys_errno);
    ask(asked);
    ASSERT_TRUE(asked.answer->ok()) << sys_errno;
    EXPECT_EQ(**asked.answer, base::errc_from_errno(sys_errno));
    EXPECT_TRUE(asked.untouched());
  }
  expect_all_admin_permits_back();
}

TEST_F(Admin, WritesCarryTheirData) {
  Asked asked;
  asked.direction = Direction::kWrite;
  asked.op.offset = 8192;
  fill(asked.data, 9);
  ask(asked);
  ASSERT_TRUE(asked.answer->ok());
  EXPECT_TRUE(filled(std::span(store.bytes).subspan(8192, 64), 9));
}

TEST_F(Admin, TooLargeRequestIsRefusedBeforeItIsSent) {
  Asked asked;
  asked.data.resize(kAdminBytesMax + 1);
  ask(asked);
  EXPECT_EQ(asked.answer->code(), Errc::kInvalid);
  EXPECT_THAT(asked.answer->error().message(), HasSubstr("4097 of data: at most 1024 and 4096"));
  EXPECT_EQ(store.requests, 0u);
}

TEST_F(Admin, CloseEndsWhatHangsAndWhatWaits) {
  std::array<Asked, kAdminPermits> hung;
  for (Asked& each : hung) hang(each);
  Asked waits;
  start(waits);
  client->close();
  ASSERT_TRUE(until([&] { return client->closed; }, 100 * kMillisecond));
  EXPECT_EQ(waits.answer->code(), Errc::kCanceled);
  for (const Asked& each : hung) EXPECT_FALSE(each.answer->ok());
  server->release();
}

TEST_F(Admin, ServerThatComesBackLargerKeepsTheNumberOfPermits) {
  adjust_server = [](ServerOptions& options) { options.queue_depth = 512; };
  kill_server();
  start_server();
  ASSERT_TRUE(until([&] { return client->reconnected_calls == 1; }));
  ASSERT_TRUE(until([&] { return client->session->state() == SessionState::kConnected; }));
  expect_all_admin_permits_back();
}

class OlderClient : public SessionRig {};

/// The server has all features and tells it so: what counts is what both offer.
TEST_F(OlderClient, AsksWithOnePermitWhereItKnowsOfOneOnly) {
  adjust_server = [](ServerOptions& options) { options.queue_depth = 128; };
  connect([](ClientOptions& options) { options.features = 1; });
  EXPECT_EQ(client->session->limits().admin_permits, 1u);
  expect_all_permits_back();
}

}  // namespace
}  // namespace braid::trs::testing
