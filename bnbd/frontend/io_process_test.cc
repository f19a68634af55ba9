#include "bnbd/io_process.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace braid::bnbd {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#error "Build this without sanitizers: they lock no memory, and have a heap of their own"
#endif

bool has_done(const std::vector<IoProcessStep>& steps, const std::string& name) {
  for (const IoProcessStep& step : steps) {
    if (step.name == name) return step.done;
  }
  ADD_FAILURE() << "no step " << name;
  return false;
}

std::string line_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) == 0) return line.substr(key.size());
  }
  return {};
}

long minor_faults() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

/// What libfuse does for each request: a few hundred bytes, zeroed, freed out of order.
void allocate_like_a_library() {
  std::array<void*, 64> blocks = {};
  for (int round = 0; round < 100; ++round) {
    for (void*& block : blocks) block = std::calloc(1, 200 + static_cast<size_t>(round) * 16);
    for (void*& block : blocks) std::free(block);
  }
}

/// Containers may run as root without it.
bool may_change_resources() {
  constexpr int kCapSysResource = 24;
  const std::string effective = line_of("/proc/self/status", "CapEff:");
  return (std::strtoull(effective.c_str(), nullptr, 16) >> kCapSysResource & 1) != 0;
}

/// Runs in a process of its own, as the measures cannot be undone. 0, or the number of the check
/// that failed.
int check_measures() {
  const bool may = may_change_resources();
  const auto steps = become_io_process();
  if (has_done(steps, "I/O flusher") != may || has_done(steps, "OOM protection") != may) return 1;
  if (may && ::prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0) != 1) return 2;
  if (may && line_of("/proc/self/oom_score_adj", "") != "-1000") return 3;
  struct rlimit core = {};
  if (!has_done(steps, "no core dump") || ::getrlimit(RLIMIT_CORE, &core) != 0) return 7;
  if (core.rlim_cur != 1) return 8;
  if (!has_done(steps, "prefaulted heap") || !has_done(steps, "locked memory")) return 4;
  if (std::atol(line_of("/proc/self/status", "VmLck:").c_str()) < 32 * 1024) return 5;
  const long before = minor_faults();
  allocate_like_a_library();
  if (minor_faults() != before) return 6;
  return 0;
}

TEST(IoProcess, TakesEveryMeasureAndAllocatesWithoutPageFaults) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(check_measures());
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << "check " << WEXITSTATUS(status);
}

TEST(IoProcess, SaysWhatIsMissingWithoutPrivilege) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give it up";
  const pid_t pid = ::fork();
  if (pid == 0) {
    struct rlimit none = {};
    ::setrlimit(RLIMIT_MEMLOCK, &none);
    if (::setuid(65534) != 0) ::_exit(1);
    for (const IoProcessStep& step : become_io_process()) {
      if (step.detail.empty()) ::_exit(2);
      if (step.name == "I/O flusher" && step.done) ::_exit(3);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << "check " << WEXITSTATUS(status);
}

}  // namespace
}  // namespace braid::bnbd
