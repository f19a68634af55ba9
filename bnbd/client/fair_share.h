// FairShare: equal things of a session, permits or copy buffers, dealt out to its devices so that
// one whose disk hangs at the server, and which gives nothing back, leaves one to each other.
//
// Who holds one already gets another only while enough are left for those who hold none; at most
// half of all are kept back so, which is what many idle devices can cost a busy one.
// Thread: the session's. Nothing here allocates.
#pragma once

#include <algorithm>
#include <cstdint>

namespace braid::bnbd::client {

class FairShare {
 public:
  void set_total(uint32_t total) { total_ = total; }
  /// Whether a device that holds `held` may have another, should there be one.
  bool may_take(uint32_t held) const {
    return held == 0 || total_ - out_ > std::min(empty_handed_, total_ / 2);
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
  /// A device comes and goes; it holds nothing then.
  void join() { ++empty_handed_; }
  void leave() { --empty_handed_; }

 private:
  uint32_t total_ = 0;
  uint32_t out_ = 0;
  uint32_t empty_handed_ = 0;  // devices that hold none
};

}  // namespace braid::bnbd::client
