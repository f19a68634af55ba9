// How connections share a pool of request slots, so that one that takes no answers leaves the
// others theirs: each may always have `each` of them, what is beyond that goes to who comes first.
//
//   owed = sum over the connections that there are or may yet be of max(0, each - held by it)
//   a connection that has `each` already takes another one only while  free > owed
//
// Threads: the reactor's. Nothing allocates.
#pragma once

#include <algorithm>

#include "base/result.h"

namespace braid::bnbd {

class SlotShares {
 public:
  /// Half of the slots, but one at least, are divided among as many connections as there may be.
  /// 0 connections: whoever asks gets, as those of one kernel device trust each other.
  SlotShares(unsigned slots, unsigned connections_max)
      : each_(connections_max == 0 ? 0 : std::max(1U, slots / (2 * connections_max))),
        owed_(each_ * connections_max) {}

  bool may_take(unsigned held, unsigned free) const {
    return held < each_ ? free > 0 : free > owed_;
  }
  /// `held`: before.
  void take(unsigned held) { owed_ -= held < each_ ? 1 : 0; }
  /// `held`: after.
  void give_back(unsigned held) { owed_ += held < each_ ? 1 : 0; }
  /// A connection ends: what it held still is with the device, and belongs to nobody.
  void end(unsigned held) { owed_ += std::min(held, each_); }

  unsigned each() const { return each_; }
  unsigned owed() const { return owed_; }

 private:
  const unsigned each_;
  unsigned owed_;
};

}  // namespace braid::bnbd
