// A Host for unit tests of base itself: a clock that the test sets, an IoQueue without files, work
// that runs when the test says so. Everything else is refused.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "base/host.h"
#include "base/log.h"
#include "base/stream_socket.h"

namespace braid::base {

/// Counts what the reactor asks of it.
class TestIoQueue : public IoQueue {
 public:
  void submit(IoOp& op) override { submitted.push_back(op); }
  bool poll() override { return false; }
  unsigned in_flight() const override { return submitted.empty() ? 0 : 1; }
  uint64_t completed() const override { return ended; }
  void wait(uint64_t) override {
    if (on_wait) on_wait();
  }
  void wake() override { ++wakes; }
  void watch(Event&, Watch&) override {}
  void watch_readable(const Handle&, Watch&) override {}
  void watch_writable(const Handle&, Watch&) override {}
  void unwatch(Watch&) override {}

  /// Completes the oldest operation.
  void complete(Errc status) {
    IoOp* const op = submitted.pop_front();
    BRAID_ASSERT(op != nullptr);
    ++ended;
    op->done(*op, status);
  }

  IntrusiveList<IoOp> submitted;
  std::function<void()> on_wait;
  uint64_t ended = 0;
  int wakes = 0;
};

class TestHost : public Host {
 public:
  uint64_t now_ns() override { return clock_ns; }
  uint64_t wall_clock_ns() override { return clock_ns; }
  void random(std::span<std::byte>) override {}
  std::string boot_id() override { return "test-boot"; }
  std::string host_name() override { return "test-host"; }
  int process_id() override { return 1; }
  Logger& log() override { return logger; }

  void yield() override {
    ++yields;
    clock_ns += yield_ns;
  }
  Result<std::unique_ptr<IoQueue>> create_io_queue() override {
    auto queue = std::make_unique<TestIoQueue>();
    io = queue.get();
    return std::unique_ptr<IoQueue>(std::move(queue));
  }
  Result<std::unique_ptr<Thread>> start_thread(std::string, std::function<void()>) override {
    return refused();
  }
  void execute(std::function<void()> function) override { work.push_back(std::move(function)); }
  std::unique_ptr<Event> create_event() override { return nullptr; }
  Result<std::unique_ptr<Event>> adopt_event(std::unique_ptr<Handle>) override { return refused(); }
  Result<std::unique_ptr<File>> open_beneath(const std::string&, const std::string&,
                                             const OpenOptions&) override {
    return refused();
  }
  Result<std::unique_ptr<Segment>> create_segment(size_t, std::string_view) override {
    return refused();
  }
  Result<std::unique_ptr<Segment>> map_segment(std::unique_ptr<Handle>, size_t) override {
    return refused();
  }
  Segment* find_segment(const void*, size_t) override { return nullptr; }
  Result<std::unique_ptr<PeerProcess>> open_process(const PeerIdentity&) override {
    return refused();
  }
  void heavy_fence() override { ++heavy_fences; }
  int heavy_fences = 0;
  Result<std::unique_ptr<LocalListener>> listen_local(std::string_view) override {
    return refused();
  }
  Result<std::unique_ptr<LocalSocket>> connect_local(std::string_view) override {
    return refused();
  }
  Result<std::unique_ptr<StreamListener>> listen_stream(const SocketAddress&, int) override {
    return refused();
  }
  Result<std::unique_ptr<StreamSocket>> connect_stream(const std::string&,
                                                       const SocketAddress&) override {
    return refused();
  }

  /// Runs the oldest piece of work handed to execute().
  void run_work() {
    BRAID_ASSERT(!work.empty());
    auto function = std::move(work.front());
    work.pop_front();
    function();
  }

  uint64_t clock_ns = 1'000'000;
  TestIoQueue* io = nullptr;  // the last one created
  std::deque<std::function<void()>> work;
  int yields = 0;
  uint64_t yield_ns = 0;  // how long each takes
  Logger logger{make_null_sink(), "test", LogLevel::kOff};

 private:
  static Error refused() { return make_error(Errc::kNotSupported, "not part of TestHost"); }
};

}  // namespace braid::base
