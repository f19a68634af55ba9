#include "bnbd/frontend/unix_listener.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "base/linux_test_folder.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using testing::HasSubstr;

class UnixListenerTest : public testing::Test {
 protected:
  /// A socket's file whose process is gone.
  void leave_socket_behind() const {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    const UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  bool is_there() const { return std::filesystem::exists(std::filesystem::symlink_status(path_)); }

  const base::ScratchFolder folder_;
  const std::string path_ = folder_.path() + "/x.sock";
};

TEST_F(UnixListenerTest, ItsFileGoesWithIt) {
  auto listener = UnixListener::listen(path_);
  ASSERT_TRUE(listener.ok()) << listener.error().message();
  EXPECT_TRUE(is_there());
  listener->reset();
  EXPECT_FALSE(is_there());
}

TEST_F(UnixListenerTest, ADeadServersSocketIsReplaced) {
  leave_socket_behind();
  ASSERT_TRUE(is_there());
  auto listener = UnixListener::listen(path_);
  EXPECT_TRUE(listener.ok()) << listener.error().message();
}

TEST_F(UnixListenerTest, ALiveServersSocketIsNot) {
  const auto first = UnixListener::listen(path_);
  ASSERT_TRUE(first.ok());
  const auto second = UnixListener::listen(path_);
  EXPECT_EQ(second.code(), Errc::kBusy);
  EXPECT_NE(second.error().message().find(path_), std::string::npos);
}

TEST_F(UnixListenerTest, WhatIsNoSocketIsLeftAlone) {
  std::ofstream(path_) << "mine";
  EXPECT_EQ(UnixListener::listen(path_).code(), Errc::kInvalid);
  EXPECT_TRUE(is_there());
}

TEST_F(UnixListenerTest, AnotherOnesFileOfThatNameIsNotRemoved) {
  auto listener = UnixListener::listen(path_);
  ASSERT_TRUE(listener.ok());
  std::filesystem::remove(path_);
  std::ofstream(path_) << "another's";
  listener->reset();
  EXPECT_TRUE(is_there());
}

/// Anybody who can read a folder can lock it, /tmp too, and tools lock folders.
TEST_F(UnixListenerTest, AFolderThatAnotherProgramKeepsLockedIsRefusedInWords) {
  const UniqueFd other(::open(folder_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_TRUE(other.valid());
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  const auto refused = UnixListener::listen(path_, /*lock_patience_ns=*/0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.code(), Errc::kBusy);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("another program holds a lock on its folder \"" + folder_.path() + "\""));
  EXPECT_FALSE(is_there());
  auto patient = std::async(std::launch::async, [this] {
    return UnixListener::listen(path_, /*lock_patience_ns=*/60 * base::kSecond).ok();
  });
  EXPECT_EQ(::flock(other.get(), LOCK_UN), 0);
  EXPECT_TRUE(patient.get());
}

TEST_F(UnixListenerTest, LongPathsAndMissingFoldersAreRefused) {
  EXPECT_EQ(UnixListener::listen("/tmp/" + std::string(120, 'x')).code(), Errc::kInvalid);
  EXPECT_EQ(UnixListener::listen(folder_.path() + "/none/x.sock").code(), Errc::kNotFound);
}

}  // namespace
}  // namespace braid::bnbd
