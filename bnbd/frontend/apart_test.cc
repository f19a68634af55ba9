#include "bnbd/frontend/apart.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "bnbd/frontend/fd_handle.h"

namespace braid::bnbd {
namespace {

struct Job {
  int kept = -1;
  int other = -1;
  bool kept_is_open = false;
  bool other_is_open = false;
  pid_t pid = 0;
  sigset_t blocked;
};

void look_around(void* argument) {
  auto& job = *static_cast<Job*>(argument);
  job.kept_is_open = ::fcntl(job.kept, F_GETFD) >= 0;
  job.other_is_open = ::fcntl(job.other, F_GETFD) >= 0;
  job.pid = ::getpid();
  ::pthread_sigmask(SIG_SETMASK, nullptr, &job.blocked);
}

TEST(RunApart, IsAnotherProcessWithOurMemoryAndOnlyTheNamedDescriptors) {
  const UniqueFd kept(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd other(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Job job;
  job.kept = kept.get();
  job.other = other.get();
  const int keep[] = {kept.get()};
  const base::Status status = run_apart(&look_around, &job, keep);
  ASSERT_TRUE(status.ok()) << status.error().message();
  EXPECT_NE(job.pid, ::getpid());
  EXPECT_TRUE(job.kept_is_open);
  EXPECT_FALSE(job.other_is_open);
  EXPECT_EQ(::sigismember(&job.blocked, SIGTERM), 1);
  // Here nothing changed.
  EXPECT_GE(::fcntl(other.get(), F_GETFD), 0);
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(::sigismember(&blocked, SIGTERM), 0);
}

TEST(RunApart, ReportsThatTheProcessWasKilled) {
  const auto kill_itself = [](void*) { ::kill(::getpid(), SIGKILL); };
  const base::Status status = run_apart(kill_itself, nullptr, {});
  EXPECT_EQ(status.code(), base::Errc::kIo);
}

/// For the thread sanitizer, which knows one table of descriptors: two of one number in processes
/// apart have nothing to do with each other.
TEST(RunApart, DescriptorsAreOfThatProcessAlone) {
  std::atomic<int> to_open{2};
  const auto open_and_close = [](void* argument) {
    const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    auto& others = *static_cast<std::atomic<int>*>(argument);
    others.fetch_sub(1, std::memory_order_relaxed);  // orders nothing
    while (others.load(std::memory_order_relaxed) > 0) ::sched_yield();
    ::close(fd);
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < 2; ++i) {
    workers.emplace_back([&] { EXPECT_TRUE(run_apart(open_and_close, &to_open, {}).ok()); });
  }
  for (std::thread& worker : workers) worker.join();
}

}  // namespace
}  // namespace braid::bnbd
