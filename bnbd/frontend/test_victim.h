// A process of a test that serves a kernel device and is killed.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "bnbd/frontend/test_kernel_device.h"

namespace braid::bnbd::test {

/// The body of a process that is killed: serves a device for ever. With BRAID_TEST_HOLD in the
/// environment the device holds everything back, and says how much it holds.
[[noreturn]] inline void serve_until_killed(KernelDeviceKind kind) {
  ReactorThread threads;
  std::unique_ptr<GateDevice> device;
  threads.on_reactor([&] {
    MemoryDeviceOptions memory;
    memory.size_bytes = 64 << 20;
    device = std::make_unique<GateDevice>(
        std::move(create_memory_device(threads.host(), memory)).value());
  });
  KernelDeviceOptions options;
  options.kind = kind;
  options.name = device_name_of(::getpid());
  options.nbd_dead_connection_timeout_s = 1;
  auto kernel = threads.await([&] { return attach(threads.reactor(), *device, options); });
  if (!kernel.ok()) {
    std::printf("error=%s\n", kernel.error().message().c_str());
    std::fflush(stdout);
    ::_exit(1);
  }
  const bool hold = std::getenv("BRAID_TEST_HOLD") != nullptr;
  if (hold) threads.on_reactor([&] { device->hold(); });
  std::printf("\npath=%s\n", kernel.value()->path().c_str());
  std::fflush(stdout);
  if (hold) threads.wait_until([&] { return device->held_count() > 0; });
  std::printf("held=%d\n", device->held_count());
  std::fflush(stdout);
  for (;;) ::pause();
}

/// Such a process, started and killed: a disabled test of this program.
class Victim {
 public:
  Victim(const std::string& test, bool hold) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const std::string filter = "--gtest_filter=" + test;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      if (hold) ::setenv("BRAID_TEST_HOLD", "1", 1);
      ::execl("/proc/self/exe", "victim", filter.c_str(), "--gtest_also_run_disabled_tests",
              nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    name_ = device_name_of(pid_);
    output_ = ::fdopen(ends[0], "re");
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;
  ~Victim() {
    if (pid_ > 0) kill_now();
    std::fclose(output_);
  }
  /// Of its device.
  const std::string& name() const { return name_; }
  /// Reads its output up to the line that begins with this; the rest of that line. Fails with what
  /// was printed instead.
  std::string wait_for(const std::string& key) {
    std::array<char, 512> line;
    std::string seen;
    while (std::fgets(line.data(), line.size(), output_) != nullptr) {
      const std::string text = line.data();
      if (text.rfind(key, 0) == 0) return text.substr(key.size(), text.find('\n') - key.size());
      seen += text;
    }
    ADD_FAILURE() << "the process ended without \"" << key << "\":\n" << seen;
    return {};
  }
  void kill_now() {
    ::kill(pid_, SIGKILL);
    EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  std::string name_;
  FILE* output_ = nullptr;
};

}  // namespace braid::bnbd::test
