// Lines that a peer can cause as often as it likes: a burst of them is logged, then so many a
// second. The rest is counted, and the next line that is logged says how many were not.
//
// Threads: that of the reactor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/log.h"
#include "base/reactor.h"

namespace braid::base {

class LimitedLog {
 public:
  struct Limits {
    unsigned burst = 10;
    unsigned per_second = 10;
  };
  /// `reactor` outlives it.
  LimitedLog(Reactor& reactor, Logger log, Limits limits)
      : reactor_(reactor),
        log_(std::move(log)),
        limits_(limits),
        lines_left_(limits.burst),
        refilled_ns_(reactor.now_ns()) {}

  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    log(LogLevel::kInfo, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) {
    log(LogLevel::kWarning, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (log_.enabled(level) && allow()) log_.log(level, format, std::forward<Args>(args)...);
  }

 private:
  bool allow() {
    const uint64_t now_ns = reactor_.now_ns();
    const uint64_t line_ns = kSecond / limits_.per_second;
    const uint64_t more = (now_ns - refilled_ns_) / line_ns;
    refilled_ns_ += more * line_ns;
    lines_left_ = std::min<uint64_t>(limits_.burst, lines_left_ + more);
    if (lines_left_ == 0) return ++swallowed_, false;
    if (swallowed_ > 0)
      log_.warning("{} lines of this kind were not logged before this one", swallowed_);
    swallowed_ = 0;
    return --lines_left_, true;
  }

  Reactor& reactor_;
  Logger log_;
  const Limits limits_;
  uint64_t lines_left_;
  uint64_t refilled_ns_;
  uint64_t swallowed_ = 0;
};

}  // namespace braid::base
