// What a flush may promise when the server's machine can restart between (docs/bnbd.md has the
// schedules).
//
// Writes acknowledged without FUA are counted as they are acknowledged. A flush covers those
// acknowledged before its submission. When the server comes back with another incarnation, all
// acknowledged writes that no successful flush covered may be lost: a loss. Every flush submitted
// before a loss has been reported fails, and the first of them that covers all that was lost
// reports it.
//
// Several reactors count, each in a line of its own; "so many" is the sum over all. A sum that is
// read while others count may be of no one moment: what happened before is in it, so a flush
// promises too little rather than too much (docs/client-reactors.md).
//
// Threads: acknowledged() the counting queue's, restarted() one; the rest any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/error.h"

namespace braid::bnbd::client {

class DurabilityLedger {
 public:
  /// Taken when a flush is submitted.
  struct Ticket {
    uint64_t covers = 0;           // writes acknowledged before
    uint64_t losses_reported = 0;  // to the user before
  };

  explicit DurabilityLedger(size_t queues = 1)
      : queues_(queues), acknowledged_(std::make_unique<Count[]>(queues)) {}

  /// A write that is not durable by itself was acknowledged to this queue.
  void acknowledged(size_t queue = 0) {
    std::atomic<uint64_t>& count = acknowledged_[queue].value;
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  Ticket begin_flush() const { return {acknowledged_by_all(), losses_reported_}; }
  /// The server has done the flush; what its user is told: kOk, or kIo once for each loss.
  base::Errc flushed(const Ticket& ticket);
  /// The server came back with another incarnation. True if acknowledged writes may be lost.
  bool restarted();

  uint64_t unflushed() const { return acknowledged_by_all() - durable_; }
  uint64_t losses() const { return losses_; }
  bool loss_unreported() const { return losses_ > losses_reported_; }
  uint64_t flushes_failed() const { return flushes_failed_; }

 private:
  static constexpr size_t kLineBytes = 64;
  struct alignas(kLineBytes) Count {
    std::atomic<uint64_t> value{0};
  };
  uint64_t acknowledged_by_all() const;
  void durable_to(uint64_t covers);

  const size_t queues_;
  const std::unique_ptr<Count[]> acknowledged_;  // by queue
  // The first so many acknowledged writes need no flush any more.
  alignas(kLineBytes) std::atomic<uint64_t> durable_{0};
  std::atomic<uint64_t> losses_{0};
  std::atomic<uint64_t> lost_up_to_{0};  // acknowledged at the last loss
  std::atomic<uint64_t> losses_reported_{0};
  std::atomic<uint64_t> flushes_failed_{0};
};

}  // namespace braid::bnbd::client
