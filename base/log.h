// Logging: lines with a level, a dotted name and a message, to a sink that was passed in.
//
// A Host owns the Logger of its process; parts of the program derive named ones from it. There is
// no global logger. Control paths only: a line that is let through is formatted and copied. The
// caller never waits for the sink where a LinuxHost owns the Logger (base/linux/log_queue.h).
//
// Threads: any.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace braid::base {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };
std::string_view to_string(LogLevel level);

/// Where lines go. Implementations are safe for any thread (a simulated one sees one only).
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void write(LogLevel level, std::string_view name, std::string_view message) = 0;
  /// A line of an earlier moment, in nanoseconds since 1970. For sinks that show the time.
  virtual void write_at(uint64_t wall_ns, LogLevel level, std::string_view name,
                        std::string_view message) {
    (void)wall_ns;
    write(level, name, message);
  }
  /// False if write() never waits: for a disk, a terminal, a reader.
  virtual bool may_block() const { return true; }
};

/// Lines on stderr: time, level, name, message; coloured on a terminal.
std::shared_ptr<LogSink> make_stderr_sink();
/// Lines appended to a file; null if it cannot be opened.
std::shared_ptr<LogSink> make_file_sink(const std::string& path);
/// Drops everything.
std::shared_ptr<LogSink> make_null_sink();

class Logger {
 public:
  Logger(std::shared_ptr<LogSink> sink, std::string name, LogLevel level)
      : core_(std::make_shared<Core>(std::move(sink), level)), name_(std::move(name)) {}

  /// A logger with the name "<this>.<name>", to the same sink and with the same level for good.
  Logger child(std::string_view name) const {
    return Logger(core_, fmt::format("{}.{}", name_, name));
  }

  const std::string& name() const { return name_; }
  LogLevel level() const { return core_->level.load(std::memory_order_relaxed); }
  /// For this logger, those derived from it and the one it comes from.
  void set_level(LogLevel level) { core_->level.store(level, std::memory_order_relaxed); }
  bool enabled(LogLevel level) const { return level >= this->level(); }

  template <typename... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) {
    log(LogLevel::kDebug, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    log(LogLevel::kInfo, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) {
    log(LogLevel::kWarning, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) {
    log(LogLevel::kError, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (enabled(level)) write(level, format, fmt::make_format_args(args...));
  }

 private:
  struct Core {
    Core(std::shared_ptr<LogSink> s, LogLevel l) : sink(std::move(s)), level(l) {}
    const std::shared_ptr<LogSink> sink;
    std::atomic<LogLevel> level;
  };
  Logger(std::shared_ptr<Core> core, std::string name)
      : core_(std::move(core)), name_(std::move(name)) {}
  void write(LogLevel level, fmt::string_view format, fmt::format_args args);

  std::shared_ptr<Core> core_;
  std::string name_;
};

}  // namespace braid::base
