// Keeps a peer from filling the log: so many lines a second, the rest is only counted. One thread.
#pragma once

#include <cstdint>

namespace braid::bnbd::server {

class LogLimit {
 public:
  explicit LogLimit(unsigned lines_per_second) : lines_max_(lines_per_second) {}

  /// Whether a line may be written now.
  bool allow(uint64_t now_ns) {
    if (now_ns - second_began_ns_ >= 1'000'000'000) {
      second_began_ns_ = now_ns;
      lines_ = 0;
    }
    if (lines_ >= lines_max_) {
      ++suppressed_;
      return false;
    }
    ++lines_;
    return true;
  }
  /// How many were not, since the last call.
  uint64_t take_suppressed() {
    const uint64_t count = suppressed_;
    suppressed_ = 0;
    return count;
  }

 private:
  const unsigned lines_max_;
  unsigned lines_ = 0;
  uint64_t second_began_ns_ = 0;
  uint64_t suppressed_ = 0;
};

}  // namespace braid::bnbd::server
