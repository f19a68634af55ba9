// What the tests of front ends share: a device that can hold its requests back, a reactor on a
// thread, commands in other processes.
//
// No thread of a test may touch the kernel device itself (see kernel_device.h): commands do.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/await.h"
#include "base/linux_host.h"
#include "base/log.h"
#include "base/reactor.h"
#include "bnbd/backends.h"
#include "bnbd/frontend/nbd_netlink.h"
#include "bnbd/kernel_device.h"

namespace braid::bnbd::test {

/// A device in front of another that counts, changes what info() says, and holds requests back
/// until told. On its reactor's thread; `counts` and held_count() from any.
class GateDevice : public BlockDevice {
 public:
  explicit GateDevice(std::unique_ptr<BlockDevice> inner)
      : inner_(std::move(inner)), info_(inner_->info()) {}
  ~GateDevice() override { EXPECT_EQ(held_.front(), nullptr) << "requests are still held"; }

  BlockInfo& change_info() { return info_; }
  std::function<void()> before_region;  // on the thread that makes it
  std::atomic<bool> no_memory{false};   // for regions
  const BlockInfo& info() const override { return info_; }
  base::Result<std::unique_ptr<Region>> create_region(size_t size_bytes) override {
    region_maker_.store(std::this_thread::get_id());
    if (before_region) before_region();
    if (no_memory) return base::make_error(base::Errc::kNoMemory, "none in this test");
    return inner_->create_region(size_bytes);
  }
  std::span<std::byte> content_memory() override { return inner_->content_memory(); }
  /// The thread that made the last region.
  std::thread::id region_maker() const { return region_maker_.load(); }
  BlockStatistics statistics() const override { return inner_->statistics(); }

  /// In place of what a remote device would note: of how many changes and failed flushes the user
  /// had heard then.
  void note_flush(FlushNote& note) override {
    if (!note.taken) note = {{told_, failures_told_}, true};
  }
  void note_told(Untold& untold, bool heard) override {
    told_ += untold.words[0];
    if (heard) failures_told_ += untold.words[1];
    untold = {};
  }
  void submit(BlockRequest& request) override {
    ++counts[static_cast<size_t>(request.op)];
    if (request.force_unit_access) ++forced;
    if (request.flushes()) {
      note_flush(request.flush_note);
      known_ = request.flush_note.words[0];
      failures_known_ = request.flush_note.words[1];
      request.flush_note.taken = false;
    }
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
  void fail_with(base::Errc status) { fail_after(0, status); }
  /// So many more requests do not.
  void fail_after(uint64_t requests, base::Errc status) {
    good_ = requests;
    failure_ = status;
  }
  /// Of how many changes, and failed flushes, the user had heard when he asked for the last flush.
  uint64_t known() const { return known_; }
  uint64_t failures_known() const { return failures_known_; }
  /// Of how many changes he has heard now.
  uint64_t told() const { return told_; }
  int held_count() const { return held_count_; }
  uint64_t count(BlockOp op) const { return counts[static_cast<size_t>(op)]; }
  uint64_t count() const { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }

  std::array<std::atomic<uint64_t>, 6> counts{};
  std::atomic<uint64_t> forced{0};  // FUA

 private:
  bool fails() const { return failure_ != base::Errc::kOk && good_ == 0; }
  void pass(BlockRequest& request) {
    if (request.op != BlockOp::kRead && request.op != BlockOp::kFlush) ++request.untold.words[0];
    if (request.op == BlockOp::kFlush && fails()) ++request.untold.words[1];
    if (!request.told_later) note_told(request.untold, true);
    if (fails()) return request.done(request, failure_);
    if (failure_ != base::Errc::kOk) --good_;
    const base::Errc wrong = check(info_, request);
    if (wrong != base::Errc::kOk) return request.done(request, wrong);
    inner_->submit(request);
  }
  std::unique_ptr<BlockDevice> inner_;
  BlockInfo info_;
  std::atomic<std::thread::id> region_maker_;
  bool holding_ = false;
  base::Errc failure_ = base::Errc::kOk;
  uint64_t good_ = 0;  // before it
  uint64_t told_ = 0, failures_told_ = 0;
  std::atomic<uint64_t> known_{0}, failures_known_{0};
  std::atomic<int> held_count_{0};
  base::IntrusiveList<BlockRequest> held_;
};

/// Keeps what is logged.
class LogLines : public base::LogSink {
 public:
  void write(base::LogLevel level, std::string_view, std::string_view message) override {
    const std::lock_guard guard(mutex_);
    lines_.push_back(fmt::format("{}: {}", to_string(level), message));
  }
  /// Those with this text, one below the other.
  std::string with(const std::string& text) const {
    const std::lock_guard guard(mutex_);
    std::string found;
    for (const std::string& line : lines_) {
      if (line.find(text) != std::string::npos) found += line + "\n";
    }
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
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
    options.log_sink = log_;
    host_ = std::move(base::create_linux_host(options)).value();
    base::Reactor::Options reactor_options;
    reactor_options.poll_budget_ns = 0;  // the machine's few cores have better to do
    reactor_ = std::move(base::Reactor::create(*host_, reactor_options)).value();
    thread_ = std::move(host_->start_thread("test-reactor", [this] { reactor_->run(); })).value();
    // A worker, as a process that has attached a device has: for a pool that grows.
    host_->execute([] {});
    while (!host_->worker_is_idle()) std::this_thread::yield();
  }
  ~ReactorThread() {
    reactor_->stop();
    thread_.reset();
  }
  base::Host& host() { return *host_; }
  base::Reactor& reactor() { return *reactor_; }
  const LogLines& log() const { return *log_; }

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

  const std::shared_ptr<LogLines> log_ = std::make_shared<LogLines>();
  std::unique_ptr<base::Host> host_;
  std::unique_ptr<base::Reactor> reactor_;
  std::unique_ptr<base::Thread> thread_;
};

/// The name of the devices of a process, which no other's name contains.
inline std::string device_name_of(pid_t pid) {
  return fmt::format("t{}t", pid);
}

/// True while the device of that name is at this path. Its number alone tells nothing: as soon as
/// it is free another process may take it.
inline bool is_attached(const std::string& path, const std::string& name) {
  for (const char* entry : {"loop/backing_file", "backend"}) {
    std::ifstream file("/sys/block/" + path.substr(5) + "/" + entry);
    std::string line;
    if (std::getline(file, line) && line.find(name) != std::string::npos) return true;
  }
  return false;
}

/// True as soon as it is gone, within a minute. Others look at free loop devices to find one for
/// themselves, and whoever has it open meanwhile keeps it a moment longer.
inline bool becomes_detached(const std::string& path, const std::string& name) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (is_attached(path, name) && std::chrono::steady_clock::now() < end) ::sched_yield();
  return !is_attached(path, name);
}

/// Why there can be no device of this kind here; empty: there can.
inline std::string missing(KernelDeviceKind kind) {
  if (::geteuid() != 0) return "needs root";
  if (kind == KernelDeviceKind::kNbd) {
    const base::Status module = find_nbd_module();
    return module.ok() ? std::string() : module.error().message();
  }
  if (!std::filesystem::exists("/dev/fuse")) return "this kernel has no /dev/fuse";
  if (!std::filesystem::exists("/dev/loop-control")) return "this kernel has no loop devices";
  return {};
}

/// A memory device behind a GateDevice behind a kernel device.
class KernelDeviceTest : public testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;

  explicit KernelDeviceTest(KernelDeviceKind kind) : kind_(kind) {}

  void SetUp() override {
    if (const std::string what = missing(kind_); !what.empty()) GTEST_SKIP() << what;
  }
  void TearDown() override {
    if (kernel_) {
      threads_->on_reactor([&] { device_->release(); });  // a test that failed may hold requests
      const auto detached = detach(DetachMode::kForce);
      EXPECT_TRUE(detached.ok()) << detached.error().message();
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
  void attach_device(KernelDeviceOptions options = {}) {
    options.name = name_;
    auto kernel = try_attach(options);
    ASSERT_TRUE(kernel.ok()) << kernel.error().message();
    kernel_ = std::move(kernel).value();
    path_ = kernel_->path();
  }
  base::Result<Detached> detach(DetachMode mode = DetachMode::kPolite) {
    auto detached = threads_->await([&] { return kernel_->detach(mode); });
    if (detached.ok()) threads_->on_reactor([&] { kernel_.reset(); });
    return detached;
  }
  /// By force; the device answers again once it has been cut off.
  base::Result<Detached> detach_while_it_hangs() {
    threads_->on_reactor([&] { device_->hold(); });
    base::Result<Detached> detached = Detached();
    std::thread detaching([&] { detached = detach(DetachMode::kForce); });
    EXPECT_TRUE(threads_->wait_until([&] { return !kernel_ || !kernel_->alive(); }));
    threads_->on_reactor([&] { device_->release(); });
    detaching.join();
    return detached;
  }
  void make_file_system() {
    sh_ok("mkfs.ext4 -q -F " + path_);
    std::filesystem::create_directories(mount_point_);
    sh_ok("mount " + path_ + " " + mount_point_);
  }
  bool is_gone() { return !is_attached(path_, name_); }
  bool becomes_gone() { return becomes_detached(path_, name_); }
  /// Holds the device open in another process until the file is closed.
  FILE* open_elsewhere() {
    const std::string ready = mount_point_ + ".open";
    FILE* const holder = ::popen(("exec 3<" + path_ + "; : >" + ready + "; read x").c_str(), "we");
    EXPECT_TRUE(threads_->wait_until([&] { return std::filesystem::exists(ready); }));
    std::filesystem::remove(ready);
    return holder;
  }
  KernelDeviceStatistics statistics() {
    KernelDeviceStatistics now;
    threads_->on_reactor([&] { now = kernel_->statistics(); });
    return now;
  }

  const KernelDeviceKind kind_;
  const std::string name_ = device_name_of(::getpid());
  const std::string mount_point_ = testing::TempDir() + "braid-mnt-" + std::to_string(::getpid());
  std::unique_ptr<ReactorThread> threads_;
  std::unique_ptr<GateDevice> device_;
  std::unique_ptr<KernelDevice> kernel_;
  std::string path_;
};

}  // namespace braid::bnbd::test
