// braid-profile: the same 4 KiB reads or writes again and again, client and server in one thread,
// so that an instruction counter sees one I/O through all layers and nothing else
// (scripts/profile, docs/performance.md). It says nothing about time. Linux only.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdarg>
#include <map>
#include <optional>
#include <string>

#include "bench/profile/both_ends.h"
#include "bench/profile/stepper.h"
#include "bench/workload.h"

// Valgrind 3.19 does not know pidfd_open. Here the only peer is this process itself, which lives:
// a pipe to which nobody writes says the same. Everything else goes to the kernel.
extern "C" long syscall(long number, ...) noexcept {  // NOLINT: libc's
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& each : a) each = va_arg(list, long);
  va_end(list);
  if (number == SYS_pidfd_open && RUNNING_ON_VALGRIND != 0) {
    int ends[2];
    return ::pipe2(ends, O_CLOEXEC) == 0 ? ends[0] : -1;
  }
  long result = 0;
  register long r10 asm("r10") = a[3];
  register long r8 asm("r8") = a[4];
  register long r9 asm("r9") = a[5];
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  if (result >= -4095 && result < 0) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}

namespace {

using namespace braid;  // NOLINT: a program's only file

void profile(const bench::BlockWork& work, trs::ChunkGuard guard, uint64_t count) {
  bench::BothEnds ends({}, guard);
  bench::BothEndsJob job(ends, work);
  job.warm_up();
  CALLGRIND_TOGGLE_COLLECT;
  job.run(count);
  CALLGRIND_TOGGLE_COLLECT;
  fmt::print("{} of {} done\n", count, to_string(work));
}

/// Of so many, `depth` at a time. Exit code 3: they take what they should not.
int tell_steps(const bench::BlockWork& work, trs::ChunkGuard guard, uint64_t count) {
  auto steps = bench::count_steps([&](void (*mark)()) {
    bench::BothEnds ends({}, guard);
    bench::BothEndsJob job(ends, work);
    job.warm_up();
    bench::stop_clock();
    job.run(2 * work.depth);
    mark();
    job.run(count);
    mark();
    return uint64_t{1};
  });
  const bench::Steps taken = bench::must(std::move(steps));
  fmt::print("{} of {}: {} instructions, {} system calls, {} allocations, {} mutexes, {} locked\n",
             count, to_string(work), taken.instructions, taken.system_calls, taken.allocations,
             taken.mutexes, taken.locked);
  return taken.system_calls + taken.allocations + taken.mutexes + taken.locked == 0 ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs I/O through both ends in one thread, for an instruction counter.",
               "braid-profile"};
  bench::BlockWork work;
  std::optional<uint64_t> count;
  app.add_flag("--write", work.write, "writes, not reads");
  app.add_option("--depth", work.depth, "requests at a time")->check(CLI::Range(1, 128));
  app.add_option("--count", count, "requests counted: 10000, or with --steps one")
      ->check(CLI::Range(1, 10'000'000));
  std::map<std::string, trs::ChunkGuard> guards;
  for (const auto each :
       {trs::ChunkGuard::kNone, trs::ChunkGuard::kWindows, trs::ChunkGuard::kCopy}) {
    guards.emplace(to_string(each), each);
  }
  std::string guard = "open";
  app.add_option("--guard", guard, "of the server's chunks: open, windows or copy")
      ->check(CLI::IsMember(&guards));
  bool steps = false;
  app.add_flag("--steps", steps, "what they take of kernel, heap and locks; exit code 3 if any");
  CLI11_PARSE(app, argc, argv);
  try {
    if (steps) return tell_steps(work, guards.at(guard), count.value_or(1));
    profile(work, guards.at(guard), count.value_or(10'000));
  } catch (const std::exception& e) {
    fmt::print(stderr, "braid-profile: {}\n", e.what());
    return 1;
  }
  return 0;
}
