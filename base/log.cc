#include "base/log.h"

#include <spdlog/details/log_msg.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <chrono>  // lint: allow(os) the type of a time, no clock

#include "base/plain_text.h"

namespace braid::base {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

/// One of spdlog's sinks, without spdlog's registry of loggers: that is a global.
class SpdlogSink : public LogSink {
 public:
  explicit SpdlogSink(std::shared_ptr<spdlog::sinks::sink> sink) : sink_(std::move(sink)) {
    sink_->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%-7l%$ [%n] %v");
  }

  void write(LogLevel level, std::string_view name, std::string_view message) override {
    write(spdlog::log_clock::now(), level, name, message);
  }
  void write_at(uint64_t wall_ns, LogLevel level, std::string_view name,
                std::string_view message) override {
    const std::chrono::nanoseconds since_1970(wall_ns);
    write(spdlog::log_clock::time_point(
              std::chrono::duration_cast<spdlog::log_clock::duration>(since_1970)),
          level, name, message);
  }

 private:
  void write(spdlog::log_clock::time_point when, LogLevel level, std::string_view name,
             std::string_view message) {
    const spdlog::details::log_msg line(
        when, spdlog::source_loc(), spdlog::string_view_t(name.data(), name.size()),
        to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
    try {
      sink_->log(line);
      sink_->flush();
    } catch (const spdlog::spdlog_ex&) {
      // A full disk or a closed stderr must not stop the program, and there is nowhere to say so.
    }
  }

  const std::shared_ptr<spdlog::sinks::sink> sink_;
};

class NullSink : public LogSink {
 public:
  void write(LogLevel, std::string_view, std::string_view) override {}
  bool may_block() const override { return false; }
};

}  // namespace

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      break;
  }
  return "off";
}

std::shared_ptr<LogSink> make_stderr_sink() {
  return std::make_shared<SpdlogSink>(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
}

std::shared_ptr<LogSink> make_file_sink(const std::string& path) {
  try {
    return std::make_shared<SpdlogSink>(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
  } catch (const spdlog::spdlog_ex&) {
    return nullptr;
  }
}

std::shared_ptr<LogSink> make_null_sink() {
  return std::make_shared<NullSink>();
}

namespace {

using LineText = fmt::basic_memory_buffer<char, 1000>;  // longer lines allocate

unsigned char byte(char c) {
  return static_cast<unsigned char>(c);
}

bool is_plain(char c) {
  return byte(c) >= 0x20 && byte(c) < 0x7f;
}

/// What peers say is in it: they must not begin lines, nor tell the terminal anything.
LineText escaped(const LineText& line) {
  LineText safe;
  for (const char* at = line.begin(); at != line.end();) {
    if (const size_t bytes = plain_character_bytes(at, line.end()); bytes > 0) {
      safe.append(at, at + bytes);
      at += bytes;
    } else {
      fmt::format_to(fmt::appender(safe), "\\x{:02x}", byte(*at++));
    }
  }
  return safe;
}

}  // namespace

void Logger::write(LogLevel level, fmt::string_view format, fmt::format_args args) {
  LineText line;
  fmt::vformat_to(fmt::appender(line), format, args);
  if (!std::all_of(line.begin(), line.end(), is_plain)) line = escaped(line);
  core_->sink->write(level, name_, std::string_view(line.data(), line.size()));
}

}  // namespace braid::base
