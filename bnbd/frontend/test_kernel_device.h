// What the tests of front ends share: a device that can hold its requests back, a reactor on a
// thread, commands in other processes.
//
// No thread of a test may touch the kernel device itself (see kernel_device.h): commands do.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/await.h"
#include "base/linux_host.h"
#include "base/reactor.h"
#include "bnbd/backends.h"
#include "bnbd/kernel_device.h"

namespace braid::bnbd::test {

/// A device in front of another that counts, changes what info() says, and holds requests back
/// until told. On its reactor's thread; `counts` and held_count() from any.
class GateDevice : public BlockDevice {
 public:
  GateDevice(std::unique_ptr<BlockDevice> inner)
      : inner_(std::move(inner)), info_(inner_->info()) {}
  ~GateDevice() override { EXPECT_EQ(held_.front(), nullptr) << "requests are still held"; }

  BlockInfo& change_info() { return info_; }
  const BlockInfo& info() const override { return info_; }
  base::Result<std::unique_ptr<Region>> create_region(size_t size_bytes) override {
    return inner_->create_region(size_bytes);
  }
  BlockStatistics statistics() const override { return inner_->statistics(); }

  void submit(BlockRequest& request) override {
    ++counts[static_cast<size_t>(request.op)];
    if (holding_) {
      held_.push_back(request);
      ++held_count_;
    } else {
      pass(request);
    }
  }
  void hold() { holding_ = true; }
  /// Everything held goes on, in order.
  void release() {
    holding_ = false;
    while (BlockRequest* request = held_.pop_front()) {
      --held_count_;
      pass(*request);
    }
  }
  /// From now on every request fails with this; kOk: no more.
  void fail_with(base::Errc status) { failure_ = status; }
  int held_count() const { return held_count_; }
  uint64_t count(BlockOp op) const { return counts[static_cast<size_t>(op)]; }

  std::array<std::atomic<uint64_t>, 5> counts{};

 private:
  void pass(BlockRequest& request) {
    if (failure_ != base::Errc::kOk) return request.done(request, failure_);
    const base::Errc wrong = check(info_, request);
    if (wrong != base::Errc::kOk) return request.done(request, wrong);
    inner_->submit(request);
  }
  std::unique_ptr<BlockDevice> inner_;
  BlockInfo info_;
  bool holding_ = false;
  base::Errc failure_ = base::Errc::kOk;
  std::atomic<int> held_count_{0};
  base::IntrusiveList<BlockRequest> held_;
};

/// What a command printed and how it ended.
struct Outcome {
  int status = -1;
  std::string output;
  bool ok() const { return status == 0; }
};

/// Runs a shell command in another process, which has none of our descriptors.
inline Outcome sh(const std::string& command) {
  Outcome outcome;
  FILE* const pipe = ::popen(("exec 2>&1; " + command).c_str(), "re");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.output.append(buffer.data(), got);
  }
  outcome.status = ::pclose(pipe);
  while (!outcome.output.empty() && outcome.output.back() == '\n') outcome.output.pop_back();
  return outcome;
}
inline Outcome sh_ok(const std::string& command) {
  Outcome outcome = sh(command);
  EXPECT_TRUE(outcome.ok()) << command << "\n" << outcome.output;
  return outcome;
}

/// A LinuxHost and a reactor that runs on a thread of its own.
class ReactorThread {
 public:
  ReactorThread() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    host_ = std::move(base::create_linux_host(options)).value();
    base::Reactor::Options reactor_options;
    reactor_options.poll_budget_ns = 0;  // the machine's few cores have better to do
    reactor_ = std::move(base::Reactor::create(*host_, reactor_options)).value();
    thread_ = std::move(host_->start_thread("test-reactor", [this] { reactor_->run(); })).value();
  }
  ~ReactorThread() {
    reactor_->stop();
    thread_.reset();
  }
  base::Host& host() { return *host_; }
  base::Reactor& reactor() { return *reactor_; }

  /// Runs a function there and waits for it.
  void on_reactor(std::function<void()> function) {
    std::promise<void> ran;
    reactor_->post([&] {
      function();
      ran.set_value();
    });
    ran.get_future().wait();
  }
  /// Runs there the task that `make` makes; its value.
  template <typename Make>
  auto await(Make make) {
    using T = decltype(make().take());
    std::promise<T> value;
    auto future = value.get_future();
    reactor_->post([&] { reactor_->spawn(keep<T>(make(), value)); });
    return future.get();
  }
  /// Waits until a condition that the reactor's thread brings about holds; looks at it there.
  bool wait_until(std::function<bool()> condition) {
    return await([&] { return poll_condition(*reactor_, condition); });
  }

 private:
  template <typename T>
  static base::Task<void> keep(base::Task<T> task, std::promise<T>& value) {
    value.set_value(co_await std::move(task));
  }
  static base::Task<bool> poll_condition(base::Reactor& reactor, std::function<bool()> condition) {
    const uint64_t end_ns = reactor.now_ns() + 60 * base::kSecond;
    while (!condition() && reactor.now_ns() < end_ns) {
      co_await reactor.sleep_ns(base::kMillisecond);
    }
    co_return condition();
  }

  std::unique_ptr<base::Host> host_;
  std::unique_ptr<base::Reactor> reactor_;
  std::unique_ptr<base::Thread> thread_;
};

/// True while the kernel's device has something behind it: then sysfs has this entry.
inline bool is_attached(const std::string& path, const std::string& sysfs_entry) {
  return std::filesystem::exists("/sys/block/" + path.substr(5) + "/" + sysfs_entry);
}

/// True as soon as nothing is behind it, within ten seconds.
inline bool becomes_detached(const std::string& path, const std::string& sysfs_entry) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (is_attached(path, sysfs_entry) && std::chrono::steady_clock::now() < end) ::sched_yield();
  return !is_attached(path, sysfs_entry);
}

/// A memory device behind a GateDevice behind a kernel device.
class KernelDeviceTest : public testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;

  KernelDeviceTest(KernelDeviceKind kind, std::string sysfs_entry)
      : kind_(kind),
        sysfs_entry_(std::move(sysfs_entry)),
        mount_point_(testing::TempDir() + "braid-mnt-" + std::to_string(::getpid())) {}

  void TearDown() override {
    if (kernel_) {
      const auto status = detach(true);
      EXPECT_TRUE(status.ok()) << status.error().message();
    }
    if (device_) threads_->on_reactor([&] { device_.reset(); });
    std::error_code ignored;
    std::filesystem::remove(mount_point_, ignored);
  }

  void make_device(uint64_t size_bytes = 64 * kMiB, uint32_t logical_block_bytes = 512) {
    threads_ = std::make_unique<ReactorThread>();
    threads_->on_reactor([&] {
      MemoryDeviceOptions options;
      options.size_bytes = size_bytes;
      options.logical_block_bytes = logical_block_bytes;
      auto memory = create_memory_device(threads_->host(), options);
      ASSERT_TRUE(memory.ok()) << memory.error().message();
      device_ = std::make_unique<GateDevice>(std::move(memory).value());
    });
  }
  base::Result<std::unique_ptr<KernelDevice>> try_attach(KernelDeviceOptions options) {
    options.kind = kind_;
    return threads_->await([&] { return attach(threads_->reactor(), *device_, options); });
  }
  void attach_device(const KernelDeviceOptions& options = {}) {
    auto kernel = try_attach(options);
    ASSERT_TRUE(kernel.ok()) << kernel.error().message();
    kernel_ = std::move(kernel).value();
    path_ = kernel_->path();
  }
  base::Status detach(bool force = false) {
    auto status = threads_->await([&] { return kernel_->detach(force); });
    if (status.ok()) threads_->on_reactor([&] { kernel_.reset(); });
    return status;
  }
  void make_file_system() {
    sh_ok("mkfs.ext4 -q -F " + path_);
    std::filesystem::create_directories(mount_point_);
    sh_ok("mount " + path_ + " " + mount_point_);
  }
  bool is_gone() { return !is_attached(path_, sysfs_entry_); }
  /// Holds the device open in another process until the file is closed.
  FILE* open_elsewhere() {
    const uint64_t reads = device_->count(BlockOp::kRead);
    FILE* const holder = ::popen(("exec 3<" + path_ + "; dd if=" + path_ +
                                  " of=/dev/null bs=4k count=1 iflag=direct status=none; read x")
                                     .c_str(),
                                 "we");
    EXPECT_TRUE(threads_->wait_until([&] { return device_->count(BlockOp::kRead) > reads; }));
    return holder;
  }

  const KernelDeviceKind kind_;
  const std::string sysfs_entry_;
  const std::string mount_point_;
  std::unique_ptr<ReactorThread> threads_;
  std::unique_ptr<GateDevice> device_;
  std::unique_ptr<KernelDevice> kernel_;
  std::string path_;
};

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
  options.nbd_dead_connection_timeout_s = 1;
  auto kernel = threads.await([&] { return attach(threads.reactor(), *device, options); });
  if (!kernel.ok()) std::printf("%s\n", kernel.error().message().c_str());
  const bool hold = std::getenv("BRAID_TEST_HOLD") != nullptr;
  if (hold) threads.on_reactor([&] { device->hold(); });
  std::printf("\npath=%s\n", std::move(kernel).value()->path().c_str());
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
    output_ = ::fdopen(ends[0], "re");
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;
  ~Victim() {
    if (pid_ > 0) kill_now();
    std::fclose(output_);
  }
  /// Reads its output up to the line that begins with this; the rest of that line.
  std::string wait_for(const std::string& key) {
    std::array<char, 512> line;
    while (std::fgets(line.data(), line.size(), output_) != nullptr) {
      const std::string text = line.data();
      if (text.rfind(key, 0) == 0) return text.substr(key.size(), text.find('\n') - key.size());
    }
    return {};
  }
  void kill_now() {
    ::kill(pid_, SIGKILL);
    EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  FILE* output_ = nullptr;
};

}  // namespace braid::bnbd::test
