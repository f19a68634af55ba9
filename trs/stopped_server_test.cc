// A server process that is stopped as a whole (SIGSTOP): on shared memory nothing fails, its rings
// take messages as before. Only heartbeats tell.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

#include "trs/client.h"
#include "trs/server.h"
#include "trs/test_process.h"

namespace braid::trs {
namespace {

using base::Errc;
using testing::TestProcess;

constexpr uint32_t kSessionBytes = 4096;

/// One block in memory.
class BlockUser final : public ServerUser {
 public:
  void session_opened(ServerSession&) override {}
  void session_closed(ServerSession&) override {}
  void request(ServerRequest& request) override {
    const size_t bytes = std::min(request.data.size(), block_.size());
    const bool write = request.direction == Direction::kWrite;
    std::memcpy(write ? block_.data() : request.data.data(),
                write ? request.data.data() : block_.data(), bytes);
    request.answer(Errc::kOk);
  }

 private:
  std::array<std::byte, kSessionBytes> block_{};
};

/// Serves until it is killed; writes its port into the pipe.
[[noreturn]] void serve(int port_pipe) {
  TestProcess process;
  BlockUser user;
  ServerOptions options;
  options.listen = {"127.0.0.1", 0};
  options.reactors = {process.reactor.get()};
  options.queue_depth = 8;
  options.max_io_bytes = 64 << 10;
  auto server = Server::create(*process.device, options, user);
  BRAID_ASSERT(server.ok());
  const uint16_t port = (*server)->address().port;
  BRAID_ASSERT(::write(port_pipe, &port, sizeof(port)) == sizeof(port));
  process.reactor->run();
  ::_exit(0);
}

class CountingSession final : public SessionUser {
 public:
  base::Task<base::Status> reconnected() override { co_return base::Status(); }
  void disconnected(const base::Error& why) override { losses.push_back(why.message()); }
  bool silence_noticed(size_t from) const {
    for (size_t i = from; i < losses.size(); ++i) {
      if (losses[i].find("no sign of life") != std::string::npos) return true;
    }
    return false;
  }
  void requests_returned() override { ++returns; }
  std::vector<std::string> losses;
  unsigned returns = 0;
};

class StoppedServer : public ::testing::Test {
 protected:
  StoppedServer() {
    std::array<int, 2> ends{};
    BRAID_ASSERT(::pipe(ends.data()) == 0);
    pid_ = ::fork();
    if (pid_ == 0) serve(ends[1]);
    BRAID_ASSERT(::read(ends[0], &port_, sizeof(port_)) == sizeof(port_));
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~StoppedServer() override {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void stop() {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void go_on() { ::kill(pid_, SIGCONT); }

  uint16_t port_ = 0;
  pid_t pid_ = -1;
};

TEST_F(StoppedServer, IsNoticedByHeartbeatsAndRequestsGoOnWhenItDoes) {
  TestProcess process;
  const auto domain = std::move(*Domain::create(*process.device));
  const auto memory = std::move(*process.host->create_segment(kSessionBytes, "test"));
  const auto mr = std::move(*domain->register_memory(
      memory->data(), kSessionBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  CountingSession user;
  ClientOptions options;
  options.session_name = "stopped";
  options.server = {"127.0.0.1", port_};
  options.reactors = {process.reactor.get()};
  auto opened = process.reactor->run_until_done(ClientSession::open(*domain, options, user));
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const std::unique_ptr<ClientSession> session = std::move(*opened);

  std::optional<Errc> outcome;
  ClientRequest request;
  const auto submit = [&](Direction direction) {
    outcome.reset();
    request.direction = direction;
    request.data = {mr.get(), memory->data(), kSessionBytes};
    request.context = &outcome;
    request.done = [](ClientRequest& self, Errc status) {
      *static_cast<std::optional<Errc>*>(self.context) = status;
    };
    request.permit = session->queue(0).acquire();
    ASSERT_TRUE(request.permit);
    session->queue(0).submit(request);
  };

  for (int round = 0; round < 2; ++round) {
    const auto stamp = static_cast<int>(0x30 + round);
    std::memset(memory->data(), stamp, kSessionBytes);
    stop();
    const size_t before = user.losses.size();
    submit(Direction::kWrite);
    ASSERT_TRUE(process.run_until([&] { return user.silence_noticed(before); }));
    EXPECT_FALSE(outcome.has_value()) << "a stopped server answered";
    go_on();
    ASSERT_TRUE(process.run_until([&] { return outcome.has_value(); }));
    EXPECT_EQ(*outcome, Errc::kOk);
    std::memset(memory->data(), 0, kSessionBytes);
    submit(Direction::kRead);
    ASSERT_TRUE(process.run_until([&] { return outcome.has_value(); }));
    EXPECT_EQ(*outcome, Errc::kOk);
    EXPECT_EQ(memory->data()[kSessionBytes - 1], static_cast<std::byte>(stamp));
  }
  process.reactor->run_until_done(session->close());
}

/// One reactor is kept from giving up its connection, as a peer does that was stopped in the middle
/// of a copy to our memory.
TEST_F(StoppedServer, ItsLossIsToldBeforeRequestsComeBack) {
  TestProcess process;
  const auto held_up = std::move(*base::Reactor::create(*process.host, {}));
  const auto domain = std::move(*Domain::create(*process.device));
  CountingSession user;
  ClientOptions options;
  options.session_name = "told";
  options.server = {"127.0.0.1", port_};
  options.reactors = {process.reactor.get(), held_up.get()};
  base::Result<std::unique_ptr<ClientSession>> opened{std::unique_ptr<ClientSession>()};
  process.second = held_up.get();
  bool ended = false;
  const auto open = [&]() -> base::Task<void> {
    opened = co_await ClientSession::open(*domain, options, user);
    ended = true;
  };
  base::Task<void> opening = open();
  opening.start();
  ASSERT_TRUE(process.run_until([&] { return ended; }));
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const std::unique_ptr<ClientSession> session = std::move(*opened);

  process.second = nullptr;
  session->drop_path("test");
  ASSERT_TRUE(process.run_until([&] { return !user.losses.empty(); }));
  EXPECT_EQ(user.returns, 0u);
  process.second = held_up.get();
  ASSERT_TRUE(process.run_until([&] { return user.returns == 1; }));
  ASSERT_TRUE(process.run_until([&] { return session->state() == SessionState::kConnected; }));
  EXPECT_EQ(user.losses.size(), 1u);

  bool closed = false;
  const auto close = [&]() -> base::Task<void> {
    co_await session->close();
    closed = true;
  };
  base::Task<void> closing = close();
  closing.start();
  ASSERT_TRUE(process.run_until([&] { return closed; }));
}

}  // namespace
}  // namespace braid::trs
