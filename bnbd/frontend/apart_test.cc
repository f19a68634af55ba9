#include "bnbd/frontend/apart.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

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

}  // namespace
}  // namespace braid::bnbd
