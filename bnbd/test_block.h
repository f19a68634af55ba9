// Helpers for tests of block devices: one simulated process with a reactor, and requests that say
// what became of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "base/sim.h"
#include "bnbd/block.h"

namespace braid::bnbd::test {

/// A request with memory of its own; `status` is set when it has ended.
struct Io {
  explicit Io(BlockOp op, uint64_t offset = 0, uint64_t length = 0, int fill = 0)
      : memory(std::make_unique<std::byte[]>(length + 2 * kAlign)) {
    request.op = op;
    request.offset_bytes = offset;
    request.length_bytes = length;
    request.buffer.address = align(memory.get());
    std::fill_n(request.buffer.address, length, static_cast<std::byte>(fill));
    request.context = this;
    request.done = [](BlockRequest& r, base::Errc s) {
      Io& io = *static_cast<Io*>(r.context);
      ASSERT_FALSE(io.status.has_value()) << "completed twice";
      io.status = s;
      ++io.completions;
    };
  }
  Io(const Io&) = delete;

  /// The buffer moved off its alignment.
  Io& misaligned() {
    std::byte* const from = request.buffer.address;
    request.buffer.address += 1;
    std::copy_backward(from, from + request.length_bytes, from + request.length_bytes + 1);
    return *this;
  }
  Io& fua() {
    request.force_unit_access = true;
    return *this;
  }
  std::span<const std::byte> bytes() const {
    return {request.lent != nullptr ? request.lent : request.buffer.address,
            static_cast<size_t>(request.length_bytes)};
  }
  bool all(int value) const {
    const auto b = bytes();
    return std::all_of(b.begin(), b.end(),
                       [&](std::byte x) { return x == static_cast<std::byte>(value); });
  }

  static constexpr size_t kAlign = 4096;
  static std::byte* align(std::byte* p) {
    const auto at = reinterpret_cast<uintptr_t>(p);
    return p + ((at + kAlign - 1) / kAlign * kAlign - at);
  }
  std::unique_ptr<std::byte[]> memory;
  BlockRequest request;
  std::optional<base::Errc> status;
  int completions = 0;
};

/// One process of a world, with one reactor.
class Process {
 public:
  explicit Process(base::sim::SimMachine& machine, const std::string& name = "process")
      : world_(machine.world()), host_(&machine.start_process(name)) {
    auto made = base::Reactor::create(*host_, {});
    EXPECT_TRUE(made.ok());
    auto program = std::make_unique<Program>();
    program->reactor = std::move(made).value();
    reactor_ = program->reactor.get();
    host_->drive(*reactor_);
    host_->run(std::move(program));
  }

  base::sim::SimHost& host() { return *host_; }
  base::Reactor& reactor() { return *reactor_; }
  void kill() { host_->kill(); }

  /// The value of a task run on the reactor; fails the test after a simulated minute.
  template <typename T>
  T await(base::Task<T> task) {
    auto result = std::make_shared<std::optional<T>>();
    auto holder = std::make_shared<base::Task<T>>(std::move(task));
    on_reactor([this, holder, result] { reactor_->spawn(keep(std::move(*holder), result)); });
    const bool ended = world_.run_until([&] { return result->has_value(); }, 60 * base::kSecond);
    EXPECT_TRUE(ended) << "the task did not end within a simulated minute";
    if (!ended) std::abort();
    return std::move(**result);
  }
  void await(base::Task<void> task) {
    auto holder = std::make_shared<base::Task<void>>(std::move(task));
    (void)await(with_value(std::move(*holder)));
  }

  void on_reactor(std::function<void()> function) { reactor_->post(std::move(function)); }
  void submit(BlockDevice& device, Io& io) {
    on_reactor([&device, &io] { device.submit(io.request); });
  }
  /// The status that a request ends with.
  base::Errc run(BlockDevice& device, Io& io) {
    submit(device, io);
    return wait(io);
  }
  base::Errc wait(Io& io) {
    EXPECT_TRUE(world_.run_until([&] { return io.status.has_value(); }, 60 * base::kSecond))
        << to_string(io.request.op) << " did not end within a simulated minute";
    return io.status.value_or(base::Errc::kTimedOut);
  }

 private:
  struct Program : base::sim::SimProgram {
    std::unique_ptr<base::Reactor> reactor;
  };
  template <typename T>
  static base::Task<void> keep(base::Task<T> task, std::shared_ptr<std::optional<T>> result) {
    result->emplace(co_await std::move(task));
  }
  static base::Task<bool> with_value(base::Task<void> task) {
    co_await std::move(task);
    co_return true;
  }

  base::sim::SimWorld& world_;
  base::sim::SimHost* host_;
  base::Reactor* reactor_ = nullptr;
};

/// A world without accidents: a test adds those that it is about.
/// Counts the lines of all processes' logs.
class LineCounter : public base::LogSink {
 public:
  void write(base::LogLevel, std::string_view, std::string_view line) override {
    ++lines;
    if (!awaited.empty() && line.find(awaited) != std::string_view::npos) ++found;
  }
  uint64_t lines = 0;
  std::string awaited;  // words
  uint64_t found = 0;   // lines with these
};

inline base::sim::SimWorldOptions calm(uint64_t seed = 1,
                                       std::shared_ptr<base::LogSink> log = nullptr) {
  base::sim::SimWorldOptions options;
  options.log_sink = std::move(log);
  options.seed = seed;
  options.timing.late_per_million = 0;
  return options;
}

}  // namespace braid::bnbd::test
