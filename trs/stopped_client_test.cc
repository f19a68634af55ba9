// A client process that is stopped (SIGSTOP) in the middle of a copy into the server's memory, on
// the in-host wire. The memory stays as long as it stands there; its session does not.
//
// As in vhca/soft/inhost/stopped_peer_test.cc: a page of the client's data may not be accessed, and
// the handler of the fault stops the process, so that it is the shipping client that stands there.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "trs/client.h"
#include "trs/server.h"
#include "trs/test_process.h"

namespace braid::trs {
namespace {

using base::Errc;
using testing::TestProcess;

constexpr uint32_t kPage = 4096;
constexpr uint32_t kServerBytes = 4 * kPage;

class QuietUser final : public SessionUser {
 public:
  base::Task<base::Status> reconnected() override { co_return base::Status(); }
  void disconnected(const base::Error&) override {}
  void requests_returned() override {}
};

std::byte* closed_page = nullptr;
void stop_in_fault(int) {
  ::kill(::getpid(), SIGSTOP);
  ::mprotect(closed_page, kPage, PROT_READ | PROT_WRITE);
}

/// Opens a session at the port that the pipe brings, and is stopped half way through the data of a
/// write. Let go on it ends its copy, and does nothing more.
[[noreturn]] void stop_in_a_copy(int port_pipe) {
  uint16_t port = 0;
  BRAID_ASSERT(::read(port_pipe, &port, sizeof(port)) == sizeof(port));
  TestProcess process;
  const auto domain = std::move(*Domain::create(*process.device));
  const auto memory = std::move(*process.host->create_segment(kServerBytes, "test"));
  const auto mr =
      std::move(*domain->register_memory(memory->data(), kServerBytes, IBV_ACCESS_LOCAL_WRITE));
  QuietUser user;
  ClientOptions options;
  options.session_name = "stopped";
  options.server = {"127.0.0.1", port};
  options.reactors = {process.reactor.get()};
  auto opened = process.reactor->run_until_done(ClientSession::open(*domain, options, user));
  BRAID_ASSERT(opened.ok());
  ClientRequest request;
  request.direction = Direction::kWrite;
  request.data = {mr.get(), memory->data(), kServerBytes};
  request.done = [](ClientRequest&, Errc) {};
  request.permit = (*opened)->queue(0).acquire();
  closed_page = memory->data() + 2 * size_t{kPage};
  struct sigaction action {};
  action.sa_handler = &stop_in_fault;
  BRAID_ASSERT(::sigaction(SIGSEGV, &action, nullptr) == 0);
  BRAID_ASSERT(::mprotect(closed_page, kPage, PROT_NONE) == 0);
  (*opened)->queue(0).submit(request);
  for (;;) ::pause();
}

class CountingServer final : public ServerUser {
 public:
  void session_opened(ServerSession&) override { ++opened; }
  void session_closed(ServerSession&) override { ++closed; }
  void request(ServerRequest& request) override { request.answer(Errc::kOk); }
  unsigned opened = 0, closed = 0;
};

/// What requests arrive in, of servers of this process.
bool mapped(const std::string& purpose) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:braid-" + purpose) != std::string::npos) return true;
  }
  return false;
}

class StoppedClient : public ::testing::TestWithParam<ChunkGuard> {
 protected:
  StoppedClient() {
    std::array<int, 2> ends{};
    BRAID_ASSERT(::pipe(ends.data()) == 0);
    pid_ = ::fork();
    if (pid_ == 0) stop_in_a_copy(ends[0]);
    ::close(ends[0]);
    port_pipe_ = ends[1];
    process_.emplace();
  }
  ~StoppedClient() override {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(port_pipe_);
  }
  /// When this returns the client stands in its copy.
  void serve(size_t sessions_max) {
    ServerOptions options;
    options.listen = {"127.0.0.1", 0};
    options.reactors = {process_->reactor.get()};
    options.queue_depth = 8;
    options.max_io_bytes = 64 << 10;
    options.guard = GetParam();
    options.sessions_max = sessions_max;
    options.heartbeat.interval_ns = base::kSecond;
    server_ = std::move(*Server::create(*process_->device, options, user_));
    const uint16_t port = server_->address().port;
    ASSERT_EQ(::write(port_pipe_, &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
    ASSERT_TRUE(process_->run_until([this] {
      int status = 0;
      return ::waitpid(pid_, &status, WUNTRACED | WNOHANG) == pid_ && WIFSTOPPED(status);
    }));
    ASSERT_EQ(user_.opened, 1u);
    ASSERT_TRUE(mapped(purpose()));
  }
  base::Result<std::unique_ptr<ClientSession>> open_another(Domain& domain, SessionUser& user) {
    ClientOptions options;
    options.session_name = "another";
    options.server = server_->address();
    options.reactors = {process_->reactor.get()};
    return process_->reactor->run_until_done(ClientSession::open(domain, options, user));
  }
  static const char* purpose() {
    return GetParam() == ChunkGuard::kNone ? "trs chunks" : "trs landing";
  }

  pid_t pid_ = -1;
  int port_pipe_ = -1;
  std::optional<TestProcess> process_;
  CountingServer user_;
  std::unique_ptr<Server> server_;
};

TEST_P(StoppedClient, KeepsNoSessionOpenNorTheServerFromItsEnd) {
  serve(4);
  const auto stopped = process_->reactor->run_until_done(server_->stop_within(base::kSecond));
  EXPECT_TRUE(stopped.ok()) << stopped.error().message();
  EXPECT_EQ(user_.closed, 1u);
  EXPECT_TRUE(mapped(purpose())) << "the client still writes there";
  ::kill(pid_, SIGCONT);
  EXPECT_TRUE(process_->run_until([] { return !mapped(purpose()); }));
}

// Else who stands in copies again and again would have as much memory as he likes.
TEST_P(StoppedClient, KeepsThePlaceOfTheMemoryThatItKeeps) {
  serve(1);
  const auto domain = std::move(*Domain::create(*process_->device));
  QuietUser quiet;
  ASSERT_TRUE(server_->sessions().front()->end("test"));
  ASSERT_TRUE(process_->run_until([this] { return user_.closed == 1; }));
  const auto refused = open_another(*domain, quiet);
  EXPECT_FALSE(refused.ok()) << "its memory is there";
  ::kill(pid_, SIGCONT);
  ASSERT_TRUE(process_->run_until([] { return !mapped(purpose()); }));
  auto opened = open_another(*domain, quiet);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  process_->reactor->run_until_done((*opened)->close());
  opened->reset();
  process_->reactor->run_until_done(server_->stop());
}

INSTANTIATE_TEST_SUITE_P(Guard, StoppedClient,
                         ::testing::Values(ChunkGuard::kNone, ChunkGuard::kCopy,
                                           ChunkGuard::kWindows),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace braid::trs
