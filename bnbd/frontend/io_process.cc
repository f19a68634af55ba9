#include "bnbd/io_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace braid::bnbd {

namespace {

constexpr size_t kStackBytes = size_t{1} << 20;

std::string because(int sys_errno, const char* remedy) {
  return fmt::format("{}; {}", std::strerror(sys_errno), remedy);
}

IoProcessStep set_io_flusher() {
  IoProcessStep step{.name = "I/O flusher"};
  step.done = ::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) == 0;
  step.detail = step.done ? "memory asked for by this process never waits for its own device"
                          : because(errno, "needs CAP_SYS_RESOURCE and Linux 5.6");
  return step;
}

/// One heap, grown once, never given back: with one arena and no mappings of its own, malloc takes
/// small blocks from pages that are already there.
IoProcessStep set_up_heap(size_t heap_bytes) {
  IoProcessStep step{.name = "prefaulted heap"};
  const int top_pad = static_cast<int>(std::min<size_t>(heap_bytes, 1 << 30));
  step.done = ::mallopt(M_ARENA_MAX, 1) == 1 && ::mallopt(M_MMAP_MAX, 0) == 1 &&
              ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max()) == 1 &&
              ::mallopt(M_TOP_PAD, top_pad) == 1;
  // The block goes back to the heap, not to the system; the pages have been touched.
  if (void* block = std::malloc(heap_bytes); block != nullptr) {
    std::memset(block, 1, heap_bytes);
    asm volatile("" : : "r"(block) : "memory");  // keeps the stores
    std::free(block);
  } else {
    step.done = false;
  }
  step.detail = step.done ? fmt::format("{} MiB", heap_bytes >> 20)
                          : std::string("this C library does not take the settings of its heap");
  return step;
}

IoProcessStep lock_memory() {
  IoProcessStep step{.name = "locked memory"};
  // Locked threads' stacks count in full: the default of 8 MiB each would be waste.
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  if (::pthread_attr_setstacksize(&attributes, kStackBytes) == 0) {
    ::pthread_setattr_default_np(&attributes);
  }
  ::pthread_attr_destroy(&attributes);
  // What is mapped later is locked as it is touched, not filled at once: the chunks of a server are
  // hundreds of MiB, mapped from the reactor, which must not stop for that long. What must be there
  // before I/O starts is touched by who makes it (regions of the client).
  step.done = ::mlockall(MCL_CURRENT) == 0 && ::mlockall(MCL_FUTURE | MCL_ONFAULT) == 0;
  step.detail = step.done ? "all pages now, later ones from their first use"
                          : because(errno, "needs CAP_IPC_LOCK or `ulimit -l unlimited`");
  return step;
}

IoProcessStep protect_from_oom_killer() {
  IoProcessStep step{.name = "OOM protection"};
  constexpr std::string_view kNever = "-1000";
  const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  int sys_errno = errno;
  if (fd >= 0) {
    step.done = ::write(fd, kNever.data(), kNever.size()) == static_cast<ssize_t>(kNever.size());
    sys_errno = errno;
    ::close(fd);
  }
  step.detail = step.done ? "oom_score_adj -1000" : because(sys_errno, "needs CAP_SYS_RESOURCE");
  return step;
}

}  // namespace

std::vector<IoProcessStep> become_io_process(const IoProcessOptions& options) {
  std::vector<IoProcessStep> steps;
  steps.push_back(set_io_flusher());
  steps.push_back(set_up_heap(options.heap_bytes));
  steps.push_back(lock_memory());
  steps.push_back(protect_from_oom_killer());
  return steps;
}

}  // namespace braid::bnbd
