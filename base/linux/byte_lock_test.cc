// Locks of bytes: who has them keeps out other threads and processes, until he lets go or dies.
#include "base/byte_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/linux_host.h"
#include "base/log.h"

namespace braid::base {
namespace {

class ByteLocks : public ::testing::Test {
 protected:
  ByteLocks() {
    LinuxHostOptions options;
    options.log_sink = make_null_sink();
    host = std::move(*create_linux_host(options));
    memory = std::move(*host->create_published_segment(4096, "locked"));
  }
  auto lock(uint64_t offset, uint64_t length) {
    return lock_bytes(memory->handle(), offset, length);
  }
  std::unique_ptr<Host> host;
  std::unique_ptr<Segment> memory;
};

constexpr uint64_t kFar = uint64_t{1} << 56;  // beyond any address of a program

TEST_F(ByteLocks, WhoHasThemKeepsOutAllButTheirNeighbours) {
  auto first = lock(kFar, 8);
  ASSERT_TRUE(first.ok()) << first.error().message();
  EXPECT_EQ(lock(kFar, 8).code(), Errc::kBusy);
  EXPECT_EQ(lock(kFar + 7, 8).code(), Errc::kBusy);
  EXPECT_TRUE(lock(kFar + 8, 8).ok());
  EXPECT_TRUE(lock(0, 8).ok());
  // A copy of the handle is the same memory.
  const auto copy = std::move(*memory->handle().duplicate());
  EXPECT_EQ(lock_bytes(*copy, kFar, 8).code(), Errc::kBusy);
  first->reset();
  EXPECT_TRUE(lock_bytes(*copy, kFar, 8).ok());
}

TEST_F(ByteLocks, TheDeadLetGo) {
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto held = lock(kFar, 8);
    const char ok = held.ok() ? 'y' : 'n';
    (void)!::write(told[1], &ok, 1);
    for (;;) ::pause();
  }
  char ok = 0;
  ASSERT_EQ(::read(told[0], &ok, 1), 1);
  EXPECT_EQ(ok, 'y');
  EXPECT_EQ(lock(kFar, 8).code(), Errc::kBusy);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(lock(kFar, 8).ok());
  ::close(told[0]);
  ::close(told[1]);
}

TEST_F(ByteLocks, AHandleOfNothingIsAnError) {
  class None final : public Handle {
   public:
    int fd() const override { return -1; }
    Result<std::unique_ptr<Handle>> duplicate() const override {
      return make_error(Errc::kNotSupported, "none");
    }
  };
  EXPECT_EQ(lock_bytes(None(), 0, 8).code(), Errc::kNotFound);
}

}  // namespace
}  // namespace braid::base
