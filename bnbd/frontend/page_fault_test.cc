// The reactor of a process behind a kernel device takes no page fault while it serves: memory may
// be short just then. Counted over real requests, in a process that has taken its measures. Needs
// root and FUSE; not under sanitizers, whose allocators and shadows fault.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <string>

#include "bnbd/frontend/test_kernel_device.h"
#include "bnbd/frontend/test_victim.h"
#include "bnbd/io_process.h"

namespace braid::bnbd {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class PageFaults : public test::KernelDeviceTest {
 protected:
  PageFaults() : KernelDeviceTest(KernelDeviceKind::kFuse) {}
  long faults_of_reactor() {
    struct rusage usage = {};
    threads_->on_reactor([&] { ::getrusage(RUSAGE_THREAD, &usage); });
    return usage.ru_minflt + usage.ru_majflt;
  }
  /// Every block in large pieces, and a thousand small ones; both ways.
  void use_the_disk() {
    const std::string dd = "dd status=none ";
    test::sh_ok(dd + "if=/dev/zero of=" + path_ + " bs=1M count=32 oflag=direct conv=notrunc");
    test::sh_ok(dd + "if=" + path_ + " of=/dev/null bs=1M count=32 iflag=direct");
    test::sh_ok(dd + "if=/dev/zero of=" + path_ +
                " bs=4k count=500 oflag=direct conv=notrunc,fsync");
    test::sh_ok(dd + "if=" + path_ + " of=/dev/null bs=4k count=500 iflag=direct");
  }
};

/// What the process apart runs: the measures cannot be undone.
TEST_F(PageFaults, DISABLED_Count) {
  const auto steps = become_io_process();
  const auto has_memory = [](const IoProcessStep& step) {
    return step.done || (step.name != "prefaulted heap" && step.name != "locked memory");
  };
  const bool all = std::all_of(steps.begin(), steps.end(), has_memory);
  make_device(32 * kMiB);
  threads_->on_reactor([] { prefault_stack(); });
  attach_device();
  use_the_disk();
  // The best of some rounds: the kernel may move a page now and then, for reasons of its own.
  long fewest = LONG_MAX;
  for (int round = 0; round < 5 && fewest != 0; ++round) {
    const long before = faults_of_reactor();
    use_the_disk();
    fewest = std::min(fewest, faults_of_reactor() - before);
  }
  std::printf("\nfaults=%s\n", all ? std::to_string(fewest).c_str() : "memory cannot be locked");
  std::fflush(stdout);
}

TEST(PageFaultsOfTheReactor, AreNoneWhileItServes) {
  if (kSanitized) GTEST_SKIP() << "not under sanitizers";
  const std::string what = test::missing(KernelDeviceKind::kFuse);
  if (!what.empty()) GTEST_SKIP() << what;
  test::Victim counter("PageFaults.DISABLED_Count", false);
  const std::string faults = counter.wait_for("faults=");
  if (faults == "memory cannot be locked") GTEST_SKIP() << faults;
  EXPECT_EQ(faults, "0");
}

}  // namespace
}  // namespace braid::bnbd
