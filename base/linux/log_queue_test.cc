// The queue in front of a log: nobody waits for a sink that is stuck, order and time are kept, what
// is lost is counted, and the end waits for what can still be written.
#include "base/linux/log_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/linux/fd.h"
#include "base/linux/test_support.h"

namespace braid::base {
namespace {

/// Writes nothing before it is opened, as a terminal that was stopped.
class Gate : public LogSink {
 public:
  void write(LogLevel level, std::string_view name, std::string_view message) override {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    lines_.push_back(fmt::format("{} {}: {}", to_string(level), name, message));
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_for_arrival() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ > 0; });
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrived_ = 0;
  std::vector<std::string> lines_;
};

TEST(LogQueue, NobodyWaitsForASinkThatIsStuckAndWhatIsLostIsCounted) {
  const auto gate = std::make_shared<Gate>();
  {
    Logger log(make_queued_sink(gate, {.lines_max = 4, .end_patience_ns = 60 * kSecond}), "braid",
               LogLevel::kInfo);
    log.info("first");
    gate->wait_for_arrival();  // its place in the queue stays taken
    for (int i = 0; i < 10; ++i) log.error("line {}", i);
    EXPECT_TRUE(gate->lines().empty());
    gate->open();
  }
  EXPECT_EQ(
      gate->lines(),
      (std::vector<std::string>{
          "info braid: first", "error braid: line 0", "error braid: line 1", "error braid: line 2",
          "warning log: 7 lines were dropped: the log takes them too slowly"}));
}

TEST(LogQueue, TheEndGivesUpASinkThatStaysStuck) {
  const auto gate = std::make_shared<Gate>();
  make_queued_sink(gate, {.end_patience_ns = 1})->write(LogLevel::kInfo, "braid", "last");
  gate->open();  // so that the thread that was left behind ends
  while (gate.use_count() > 1) std::this_thread::yield();
}

TEST(LogQueue, LinesOfManyThreadsArriveWholeAndEachThreadsInOrder) {
  static constexpr int kThreads = 4;
  static constexpr int kLines = 2000;
  const auto gate = std::make_shared<Gate>();
  gate->open();
  {
    const auto sink =
        make_queued_sink(gate, {.lines_max = kThreads * kLines, .end_patience_ns = 600 * kSecond});
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([t, sink] {
        Logger log(sink, fmt::format("t{}", t), LogLevel::kInfo);
        for (int i = 0; i < kLines; ++i) log.info("{}", i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<int> next(kThreads, 0);
  for (const std::string& line : gate->lines()) {
    const auto t = static_cast<size_t>(line.at(6) - '0');
    ASSERT_EQ(line, fmt::format("info t{}: {}", t, next.at(t)));
    ++next[t];
  }
  EXPECT_EQ(next, std::vector<int>(kThreads, kLines));
}

TEST(LogQueue, CutsLongLinesAndShowsTheCut) {
  const auto gate = std::make_shared<Gate>();
  gate->open();
  make_queued_sink(gate, {.end_patience_ns = 60 * kSecond})
      ->write(LogLevel::kInfo, "braid", std::string(kLogLineBytes + 1, 'x'));
  EXPECT_EQ(gate->lines(),
            std::vector<std::string>{"info braid: " + std::string(kLogLineBytes - 3, 'x') + "..."});
}

TEST(LogQueue, LinuxHostsLogGoesThroughOne) {
  const auto gate = std::make_shared<Gate>();
  LinuxHostOptions options;
  options.log_sink = gate;
  auto host = std::move(create_linux_host(options)).value();
  host->log().warning("the reactor goes on");  // Hangs here if it does not.
  gate->open();
  host.reset();
  EXPECT_EQ(gate->lines(), std::vector<std::string>{"warning braid: the reactor goes on"});
}

/// A process whose stderr is a pipe that nobody reads, and that is full.
void give_full_stderr() {
  int ends[2];
  BRAID_ASSERT(::pipe2(ends, O_NONBLOCK) == 0);
  const std::string block(4096, 'x');
  while (::write(ends[1], block.data(), block.size()) > 0) {
  }
  BRAID_ASSERT(::fcntl(ends[1], F_SETFL, 0) == 0 && ::dup2(ends[1], STDERR_FILENO) >= 0);
}

TEST(LogQueue, AFailedAssertionEndsTheProcessThoughStderrIsStuck) {
  const pid_t child = fork_child([] {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    give_full_stderr();
    panic(__FILE__, __LINE__, "a test");
    return 0;
  });
  EXPECT_EQ(exit_status(child), 128 + SIGABRT);
}

}  // namespace
}  // namespace braid::base
