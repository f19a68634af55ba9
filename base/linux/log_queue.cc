#include "base/linux/log_queue.h"

#include <fmt/format.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <semaphore>
#include <thread>
#include <vector>

#include "base/linux/signals.h"
#include "base/message_queue.h"

namespace braid::base {
namespace {

uint64_t wall_clock() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecond + static_cast<uint64_t>(now.tv_nsec);
}

/// Text of bounded length. Longer text is cut and ends in "...".
template <size_t kBytes>
class BoundedText {
 public:
  void set(std::string_view text) {
    length_ = std::min(text.size(), kBytes);
    std::memcpy(bytes_.data(), text.data(), length_);
    if (text.size() > kBytes) std::memcpy(bytes_.data() + kBytes - 3, "...", 3);
  }
  std::string_view view() const { return {bytes_.data(), length_}; }

 private:
  size_t length_ = 0;
  std::array<char, kBytes> bytes_{};
};

/// A line on its way. `taken` from the moment a writer claims it until the thread has written it.
struct Line : Message {
  std::atomic<bool> taken{false};
  LogLevel level = LogLevel::kOff;
  uint64_t wall_ns = 0;
  BoundedText<100> name;
  BoundedText<kLogLineBytes> message;
};

/// What the writers and the thread share. Owned by both, as a stuck thread outlives the queue.
class Lines {
 public:
  Lines(std::shared_ptr<LogSink> sink, size_t lines_max)
      : sink_(std::move(sink)), lines_(lines_max) {}

  void push(LogLevel level, std::string_view name, std::string_view message) {
    // Lines are given back in the order in which they are taken: when the next is still taken, the
    // thread is a whole queue behind.
    Line& line = lines_[next_.fetch_add(1, std::memory_order_relaxed) % lines_.size()];
    if (line.taken.exchange(true, std::memory_order_acquire)) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    line.level = level;
    line.wall_ns = wall_clock();
    line.name.set(name);
    line.message.set(message);
    queue_.push(line);
    wake();
  }

  void end() {
    ending_.store(true, std::memory_order_release);
    wake();
  }
  /// False if the thread has not ended within `patience_ns`.
  bool wait_for_end(uint64_t patience_ns) {
    return ended_.try_acquire_for(std::chrono::nanoseconds(patience_ns));
  }

  /// The thread.
  void run() {
    for (bool last = false; !last;) {
      const uint32_t seen = changes_.load(std::memory_order_acquire);
      last = ending_.load(std::memory_order_acquire);
      write_all();
      if (!last) changes_.wait(seen, std::memory_order_acquire);
    }
    ended_.release();
  }

 private:
  void wake() {
    changes_.fetch_add(1, std::memory_order_acq_rel);
    changes_.notify_one();
  }

  void write_all() {
    while (auto* const line = static_cast<Line*>(queue_.pop())) {
      sink_->write_at(line->wall_ns, line->level, line->name.view(), line->message.view());
      line->taken.store(false, std::memory_order_release);
    }
    if (const uint64_t dropped = dropped_.exchange(0, std::memory_order_relaxed); dropped > 0) {
      sink_->write_at(wall_clock(), LogLevel::kWarning, "log",
                      fmt::format("{} lines were dropped: the log takes them too slowly", dropped));
    }
  }

  const std::shared_ptr<LogSink> sink_;
  std::vector<Line> lines_;
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> dropped_{0};
  MessageQueue queue_;
  std::atomic<uint32_t> changes_{0};  // the thread sleeps until it moves on
  std::atomic<bool> ending_{false};
  std::binary_semaphore ended_{0};
};

class QueuedSink : public LogSink {
 public:
  QueuedSink(std::shared_ptr<LogSink> sink, const LogQueueOptions& options)
      : lines_(std::make_shared<Lines>(std::move(sink), options.lines_max)),
        end_patience_ns_(options.end_patience_ns) {
    const SignalsBlocked blocked;
    thread_ = std::thread([lines = lines_] {
      ::pthread_setname_np(::pthread_self(), "braid-log");
      lines->run();
    });
  }
  ~QueuedSink() override {
    lines_->end();
    if (lines_->wait_for_end(end_patience_ns_)) {
      thread_.join();
    } else {
      thread_.detach();
    }
  }
  QueuedSink(const QueuedSink&) = delete;
  QueuedSink& operator=(const QueuedSink&) = delete;

  void write(LogLevel level, std::string_view name, std::string_view message) override {
    lines_->push(level, name, message);
  }
  bool may_block() const override { return false; }

 private:
  const std::shared_ptr<Lines> lines_;
  const uint64_t end_patience_ns_;
  std::thread thread_;
};

}  // namespace

std::shared_ptr<LogSink> make_queued_sink(std::shared_ptr<LogSink> sink,
                                          const LogQueueOptions& options) {
  return std::make_shared<QueuedSink>(std::move(sink), options);
}

}  // namespace braid::base
