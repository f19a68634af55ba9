// Which requests a delay or an error is about, drawn request by request.
//
// One for each reactor: the generator is seeded from the host's entropy, which a simulated world
// draws from its seed.
#pragma once

#include <cmath>
#include <random>

#include "base/host.h"
#include "bnbd/filters.h"

namespace braid::bnbd::filter {

class Matcher {
 public:
  Matcher(base::Host& host, const FilterMatch& match)
      : match_(match),
        everywhere_(match.from_bytes == 0 && match.to_bytes == 0),
        threshold_(static_cast<uint64_t>(std::ldexp(match.percent / 100, 63))) {
    uint64_t seed = 0;
    host.random(std::as_writable_bytes(std::span(&seed, 1)));
    random_.seed(seed);
  }

  bool matches(const BlockRequest& request) { return in_range(request) && drawn(); }
  /// From `min` to `max`, evenly.
  uint64_t between(uint64_t min, uint64_t max) {
    return min == max ? min : min + random_() % (max - min + 1);
  }

 private:
  bool in_range(const BlockRequest& request) const {
    if (everywhere_) return true;
    if (request.op == BlockOp::kFlush) return false;
    if (match_.to_bytes != 0 && request.offset_bytes >= match_.to_bytes) return false;
    return request.offset_bytes + request.length_bytes > match_.from_bytes;
  }
  bool drawn() { return match_.percent >= 100 || random_() >> 1 < threshold_; }

  const FilterMatch match_;
  const bool everywhere_;
  const uint64_t threshold_;  // of 2^63
  std::mt19937_64 random_;
};

}  // namespace braid::bnbd::filter
