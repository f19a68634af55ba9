// What a flush may promise when the server's machine can restart between (docs/bnbd.md has the
// schedules).
//
// Writes acknowledged without FUA are numbered in the order of their acknowledgement. A flush
// covers those acknowledged before its submission. When the server comes back with another
// incarnation, all acknowledged writes that no successful flush covered may be lost: a loss. Every
// flush submitted before a loss has been reported fails, and the first of them that covers all that
// was lost reports it.
//
// Pure; one thread.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace braid::bnbd::client {

class DurabilityLedger {
 public:
  /// Taken when a flush is submitted.
  struct Ticket {
    uint64_t covers = 0;           // writes acknowledged before
    uint64_t losses_reported = 0;  // to the user before
  };

  /// A write that is not durable by itself was acknowledged.
  void acknowledged() { ++acknowledged_; }
  Ticket begin_flush() const { return {acknowledged_, losses_reported_}; }
  /// The server has done the flush; what its user is told: kOk, or kIo once for each loss.
  base::Errc flushed(const Ticket& ticket);
  /// The server came back with another incarnation. True if acknowledged writes may be lost.
  bool restarted();

  uint64_t unflushed() const { return acknowledged_ - durable_; }
  uint64_t losses() const { return losses_; }
  bool loss_unreported() const { return losses_ > losses_reported_; }
  uint64_t flushes_failed() const { return flushes_failed_; }

 private:
  uint64_t acknowledged_ = 0;
  uint64_t durable_ = 0;  // the first so many acknowledged writes need no flush any more
  uint64_t losses_ = 0;
  uint64_t lost_up_to_ = 0;  // acknowledged_ at the last loss
  uint64_t losses_reported_ = 0;
  uint64_t flushes_failed_ = 0;
};

}  // namespace braid::bnbd::client
