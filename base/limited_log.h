// Lines that peers can cause as often as they like: of each a burst is logged, then so many a
// second. What is left out is counted by peer, and told a second later, whether there is another
// line by then or not.
//
// So none hides what is said of another. Of peers there may be as many as somebody likes, too: a
// table has room for those of late, the rest share one bucket, and all together have as much as
// eight.
//
// Threads: that of the reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
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
  static constexpr size_t kPeers = 64;
  static constexpr unsigned kTogether = 8;  // times the limits of one
  static constexpr uint64_t kTellNs = kSecond;

  /// `reactor` outlives it.
  LimitedLog(Reactor& reactor, Logger log, Limits limits);
  /// Tells what has not been told yet.
  ~LimitedLog();
  LimitedLog(const LimitedLog&) = delete;
  LimitedLog& operator=(const LimitedLog&) = delete;

  /// Lines about one peer: who is taken for the same has the same name, which is shown.
  class OfPeer {
   public:
    OfPeer(LimitedLog& log, std::string_view peer) : log_(log), peer_(peer) {}
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
      Logger& to = log_.log_;
      if (to.enabled(level) && log_.allow(peer_))
        to.log(level, format, std::forward<Args>(args)...);
    }

   private:
    LimitedLog& log_;
    const std::string_view peer_;
  };
  /// `peer` stays until the line is said.
  OfPeer of(std::string_view peer) { return {*this, peer}; }

  /// Lines that are about no peer.
  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    of({}).info(format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) {
    of({}).warning(format, std::forward<Args>(args)...);
  }

 private:
  /// Kept as the time at which it is full again.
  struct Bucket {
    bool allows(uint64_t now_ns, uint64_t line_ns, uint64_t burst) const;
    void take(uint64_t now_ns, uint64_t line_ns);
    uint64_t full_at_ns = 0;
  };
  struct Peer {
    std::string name;
    Bucket bucket;
    uint64_t left_out = 0;  // since it was last told
  };
  bool allow(std::string_view peer);
  Peer& place_of(std::string_view peer, uint64_t now_ns);
  void tell();

  Reactor& reactor_;
  Logger log_;
  const uint64_t burst_;
  const uint64_t line_ns_;  // between two lines of one, on the average
  Bucket together_;
  std::array<Peer, kPeers> peers_;
  Peer others_;  // and what is about no peer
  Timer tell_timer_;
};

}  // namespace braid::base
