#include "bnbd/io_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace braid::bnbd {

namespace {

constexpr size_t kProcessStackBytes = size_t{1} << 20;
constexpr size_t kProcessPageBytes = 4096;
constexpr size_t kRedZoneBytes = 256;  // a function without calls may use 128 below its frame

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
  if (::pthread_attr_setstacksize(&attributes, kProcessStackBytes) == 0) {
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

/// A process that dumps core keeps its descriptors until the core is written: perhaps to a disk
/// that waits for this very process. A limit of 1 byte also forbids the dump to a program
/// (core_pattern), which a limit of 0 does not.
IoProcessStep forbid_core_dumps() {
  IoProcessStep step{.name = "no core dump"};
  struct rlimit limit = {};
  ::getrlimit(RLIMIT_CORE, &limit);
  limit.rlim_cur = 1;
  limit.rlim_max = std::max<rlim_t>(limit.rlim_max, 1);
  step.done = ::setrlimit(RLIMIT_CORE, &limit) == 0;
  step.detail = step.done ? "it might wait for a disk of this process"
                          : because(errno, "allow it with `ulimit -H -c 1`");
  return step;
}

}  // namespace

__attribute__((no_sanitize("thread", "address", "undefined"))) void prefault_stack() {
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return;
  void* lowest = nullptr;
  size_t size_bytes = 0;
  const bool known = ::pthread_attr_getstack(&attributes, &lowest, &size_bytes) == 0;
  ::pthread_attr_destroy(&attributes);
  if (!known) return;
  // What lies below this frame is in nobody's use. Reading and writing back changes nothing.
  auto* const end = static_cast<volatile std::byte*>(__builtin_frame_address(0)) - kRedZoneBytes;
  for (auto* at = static_cast<volatile std::byte*>(lowest); at < end; at += kProcessPageBytes)
    *at = *at;
}

std::vector<IoProcessStep> become_io_process(const IoProcessOptions& options) {
  std::vector<IoProcessStep> steps;
  steps.push_back(set_io_flusher());
  steps.push_back(set_up_heap(options.heap_bytes));
  steps.push_back(lock_memory());
  steps.push_back(protect_from_oom_killer());
  steps.push_back(forbid_core_dumps());
  return steps;
}

}  // namespace braid::bnbd
