// Which requests a delay or an error is about, drawn request by request.
//
// One for each reactor: draws are hashes of their number, with a seed of the host's entropy, which
// a simulated world draws from its own seed.
#pragma once

#include <xxhash.h>

#include <cmath>
#include <span>

#include "base/host.h"
#include "bnbd/filters.h"

namespace braid::bnbd::filter {

class Matcher {
 public:
  Matcher(base::Host& host, const FilterMatch& match)
      : match_(match),
        everywhere_(match.from_bytes == 0 && match.to_bytes == 0),
        threshold_(static_cast<uint64_t>(std::ldexp(match.percent / 100, 63))) {
    host.random(std::as_writable_bytes(std::span(&seed_, 1)));
  }

  bool matches(const BlockRequest& request) { return in_range(request) && drawn(); }
  /// From `min` to `max`, evenly.
  uint64_t between(uint64_t min, uint64_t max) {
    return min == max ? min : min + draw() % (max - min + 1);
  }

 private:
  bool in_range(const BlockRequest& request) const {
    if (everywhere_) return true;
    if (request.op == BlockOp::kFlush) return false;
    if (match_.to_bytes != 0 && request.offset_bytes >= match_.to_bytes) return false;
    return request.offset_bytes + request.length_bytes > match_.from_bytes;
  }
  uint64_t draw() {
    ++draws_;
    return XXH3_64bits_withSeed(&draws_, sizeof(draws_), seed_);
  }
  bool drawn() { return match_.percent >= 100 || draw() >> 1 < threshold_; }

  const FilterMatch match_;
  const bool everywhere_;
  const uint64_t threshold_;  // of 2^63
  uint64_t seed_ = 0;
  uint64_t draws_ = 0;
};

}  // namespace braid::bnbd::filter
