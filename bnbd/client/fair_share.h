// FairShare: equal things of a session queue, permits or copy buffers, dealt out to devices so that
// one whose disk hangs at the server, and which gives nothing back, leaves one to each other.
//
// Who holds one already gets another only while enough are left for those who hold none; at most
// half of all are kept back so, which is what many idle devices can cost a busy one. For all those
// who have never asked here (strangers), as they work on other reactors, one is kept.
// Thread: the queue's. Nothing here allocates.
#pragma once

#include <algorithm>
#include <cstdint>

namespace braid::bnbd::client {

class FairShare {
 public:
  void set_total(uint32_t total) { total_ = total; }
  /// Whether a device that holds `held` may have another, should there be one.
  bool may_take(uint32_t held) const { return held == 0 || total_ - out_ > reserve(); }
  /// What is kept back for those who hold none.
  uint32_t reserve() const {
    return std::min(empty_handed_ + std::min(strangers_, 1u), total_ / 2);
  }
  /// `held`: of the device.
  void take(uint32_t& held) {
    if (held++ == 0) --empty_handed_;
    ++out_;
  }
  void give_back(uint32_t& held) {
    if (--held == 0) ++empty_handed_;
    --out_;
  }
  /// A device comes, asks for the first time, and goes; it holds nothing then.
  void join() { ++strangers_; }
  void meet() {
    --strangers_;
    ++empty_handed_;
  }
  void leave(bool met) { --(met ? empty_handed_ : strangers_); }

 private:
  uint32_t total_ = 0;
  uint32_t out_ = 0;
  uint32_t strangers_ = 0;     // devices that have not asked yet
  uint32_t empty_handed_ = 0;  // others that hold none
};

}  // namespace braid::bnbd::client
