#include "bnbd/frontend/nbd_keeper.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>
#include <thread>

namespace braid::bnbd {
namespace {

/// A process with a keeper whose messages come here.
class KeeperTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    here_.reset(ends[0]);
    there_.reset(ends[1]);
    path_ = testing::TempDir() + "braid-backend-" + std::to_string(::getpid());
    std::ofstream(path_) << "braid:disk:1234\n";
  }
  void TearDown() override { ::unlink(path_.c_str()); }

  /// Forks a process that starts a keeper, says so, and then does `what`.
  template <typename What>
  void start(const std::string& identifier, What what) {
    int ready[2];
    ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      here_.reset();
      // As servers have: the C library behaves otherwise in a process of several threads.
      std::thread([] {
        for (;;) ::pause();
      }).detach();
      const std::string message = "disconnect";
      auto keeper = NbdKeeper::start(std::move(there_), identifier);
      if (!keeper.ok()) ::_exit(1);
      // The second is the one that counts.
      if (watches_) keeper.value()->watch(std::as_bytes(std::span(path_)), "/no/such/file");
      if (watches_) keeper.value()->watch(std::as_bytes(std::span(message)), path_);
      if (::write(ready[1], "r", 1) != 1) ::_exit(1);
      what(keeper.value());
      ::_exit(0);
    }
    there_.reset();
    ::close(ready[1]);
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
  }
  /// What the keeper sends before it ends; empty: nothing.
  std::string received() {
    std::array<char, 64> buffer;
    const ssize_t got = ::recv(here_.get(), buffer.data(), buffer.size(), 0);
    return got > 0 ? std::string(buffer.data(), static_cast<size_t>(got)) : std::string();
  }
  void wait_for_child() { EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_); }

  UniqueFd here_;
  UniqueFd there_;
  std::string path_;
  bool watches_ = true;
  pid_t pid_ = -1;
};

TEST_F(KeeperTest, SendsWhenItsProcessIsKilled) {
  start("braid:disk:1234", [](auto&) {
    for (;;) ::pause();
  });
  ::kill(pid_, SIGKILL);
  wait_for_child();
  EXPECT_EQ(received(), "disconnect");
}

TEST_F(KeeperTest, SendsWhenItsProcessEndsWithoutStoppingIt) {
  start("braid:disk:1234", [](auto&) {});
  wait_for_child();
  EXPECT_EQ(received(), "disconnect");
}

TEST_F(KeeperTest, SendsNothingWhenItIsStopped) {
  start("braid:disk:1234", [](auto& keeper) { keeper.reset(); });
  wait_for_child();
  EXPECT_EQ(received(), "");
}

TEST_F(KeeperTest, LeavesTheDeviceOfAnotherAlone) {
  start("braid:disk:9999", [](auto&) {});
  wait_for_child();
  EXPECT_EQ(received(), "");
}

TEST_F(KeeperTest, SendsNothingWhileNothingIsConnected) {
  watches_ = false;
  start("braid:disk:1234", [](auto&) {});
  wait_for_child();
  EXPECT_EQ(received(), "");
}

TEST_F(KeeperTest, LeavesTheNumberAloneUntilTheKernelSaysWhoseItIs) {
  ::unlink(path_.c_str());
  start("braid:disk:1234", [](auto&) {});
  wait_for_child();
  EXPECT_EQ(received(), "");
}

TEST_F(KeeperTest, TrustsTheNumberWhereTheKernelDoesNotSay) {
  ::unlink(path_.c_str());
  start("braid:disk:1234", [](auto& keeper) { keeper->trust_number(); });
  wait_for_child();
  EXPECT_EQ(received(), "disconnect");
}

}  // namespace
}  // namespace braid::bnbd
