#include "bnbd/frontend/apart.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <vector>

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_ignore_thread_begin();
extern "C" void __tsan_ignore_thread_end();
#endif

namespace braid::bnbd {

namespace {

/// The thread sanitizer takes what happens over there for this thread's doing, and a descriptor
/// there for the one of that number here, or in another process apart. It looks away meanwhile.
class Unwatched {
 public:
#ifdef __SANITIZE_THREAD__
  Unwatched() {
    __tsan_ignore_thread_begin();
  }
  ~Unwatched() {
    __tsan_ignore_thread_end();
  }
#else
  Unwatched() = default;
#endif
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;
};

constexpr size_t kStackBytes = size_t{256} << 10;

struct Job {
  void (*body)(void* argument);
  void* argument;
  const int* keep_fds;  // ascending
  size_t keep_count;
};

// The sanitizers' shadow of the call stack is the caller's, which waits: nothing to instrument.
__attribute__((no_sanitize("thread", "address"))) int run_job(void* argument) {
  auto& job = *static_cast<Job*>(argument);
  close_all_but(job.keep_fds, job.keep_count);
  job.body(job.argument);
  ::syscall(SYS_exit_group, 0);  // nobody's handler of _exit() over here
  return 0;
}

}  // namespace

__attribute__((no_sanitize("thread", "address", "undefined"))) void close_all_but(
    const int* keep_fds, size_t count) {
  unsigned first = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto keep = static_cast<unsigned>(keep_fds[i]);
    if (keep > first) ::syscall(SYS_close_range, first, keep - 1, 0);
    first = keep + 1;
  }
  ::syscall(SYS_close_range, first, UINT_MAX, 0);
}

base::Status run_apart(void (*body)(void* argument), void* argument,
                       std::span<const int> keep_fds) {
  std::vector<int> keep(keep_fds.begin(), keep_fds.end());
  std::sort(keep.begin(), keep.end());
  Job job{body, argument, keep.data(), keep.size()};
  void* const stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return base::sys_error(errno, "map a stack for a process apart");

  // A handler of this process must not run over there.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  // No exit signal: a SIGCHLD handler of the program is not disturbed. CLONE_VFORK suspends this
  // thread, whose thread-local data (errno) the other one uses; SIGKILL still ends the wait.
  int pid = -1;
  int clone_errno = 0;
  {
    [[maybe_unused]] const Unwatched unwatched;
    pid = clone_apart(&run_job, static_cast<char*>(stack) + kStackBytes, CLONE_VM | CLONE_VFORK,
                      &job);
    clone_errno = errno;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);

  base::Status status;
  if (pid < 0) {
    status = base::sys_error(clone_errno, "start a process apart");
  } else {
    int exit_status = 0;
    while (::waitpid(pid, &exit_status, __WCLONE) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(exit_status)) {
      status = base::make_error(base::Errc::kIo, "the process apart was killed by signal {}",
                                WTERMSIG(exit_status));
    }
  }
  ::munmap(stack, kStackBytes);
  return status;
}

}  // namespace braid::bnbd
