// What a flush may promise when the server's machine can restart between, or a flush fail there
// (docs/bnbd.md has the schedules).
//
// A change without FUA goes in parts. A part is on a wire, then acknowledged, then told: its user
// has heard of its request's end (BlockRequest::told_later). A flush covers the parts acknowledged
// before its submission. A loss is the moment from
// which on parts may be gone that no successful flush covered: those that are acknowledged, and,
// unless they are done again (the path was lost, and the server does not know them), those that are
// on a wire. Every flush
// submitted before a loss has been reported fails, and the first of them reports it whose user
// asked for it when all that was at stake had been told: before that he could not know of what it
// spoke.
//
//   told <= acknowledged      covers(flush) = acknowledged then; durable_ = the largest of a flush
//                             that succeeded, so acknowledged == durable_ says that all is durable
//
// Which parts were at stake is told by eras: each part is of the era in which it was sent, a loss
// begins another, and all has been told when no part of the former is open. Two eras are counted
// apart; if a loss comes while parts of two are open, the next era waits for the older.
//
// Several reactors count, each in a line of its own; "so many" is the sum over all. A part that the
// server has done before it answered something else is in the sums of whoever has that answer.
// What another reactor counts meanwhile may be missing: then a flush promises too little. A part
// counts as told just before `done` runs, or when note_told() says so.
//
// Threads: what has a `queue` that queue's; the rest any. A lock is taken only while a loss is
// unreported.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/error.h"

namespace braid::bnbd::client {

class DurabilityLedger {
 public:
  /// Taken when a flush is submitted, but for `covers` maybe earlier: when its user asked for it.
  struct Ticket {
    uint64_t covers = 0;           // parts acknowledged before its submission
    uint64_t known = 0;            // parts told before its user asked
    uint32_t losses_reported = 0;  // to the user, before he asked
    uint32_t may_report = 0;       // so many losses: all that they put at stake was told before
  };
  /// What of a request its user has not heard: parts that it has acknowledged, by era, and so many
  /// losses that its failed flush reports.
  using Untold = std::array<uint32_t, 3>;
  enum UntoldWord : size_t { kEras = 2, kReports = kEras };

  /// `era_stuck`: a planted bug, of the simulator.
  explicit DurabilityLedger(size_t queues = 1, bool era_stuck = false)
      : queues_(queues), era_stuck_(era_stuck), counts_(std::make_unique<Counts[]>(queues)) {}

  /// A part of a change goes to the server; its era.
  uint8_t sent(size_t queue = 0);
  /// It ended without being acknowledged, or durable by itself.
  void ended(uint8_t era, size_t queue = 0) { count(counts_[queue].open[era], -1); }
  /// It ended well, and is not durable by itself.
  void acknowledged(uint8_t era, Untold& request, size_t queue = 0);
  /// What of one request is not told goes to another, or to who will tell it.
  static void add(Untold& all, Untold& request);
  /// The user hears of the request's end.
  void told(Untold& request, size_t queue = 0);

  Ticket begin_flush();
  /// Of a ticket taken earlier, as the flush is submitted.
  Ticket submitted(const Ticket& asked);
  /// Of a flush that ends a request with FUA, which began after so many losses: it fails for later
  /// ones, and reports nothing, as its user hears of that request alone.
  Ticket begin_flush_behind(uint32_t losses_before);
  /// The server has done the flush; what its user is told: kOk, or kIo once for each loss. He hears
  /// that now, or, of a request, with told().
  base::Errc flushed(const Ticket& ticket, Untold* request = nullptr);
  /// The server's disk has failed the flush, and its user is told so. True if another flush has to
  /// fail, as this one does not speak for all that may be lost.
  bool flush_failed(const Ticket& ticket, Untold* request = nullptr);
  /// The server has opened the device with another incarnation. `done_again`: so is all that was on
  /// a wire. True if acknowledged writes may be lost.
  bool restarted(bool done_again = true);

  uint64_t unflushed() const { return acknowledged_by_all() - durable_; }
  uint32_t losses() const { return losses_; }
  bool loss_unreported() const { return losses_ != losses_reported_; }
  uint64_t flushes_failed() const { return flushes_failed_; }

 private:
  static constexpr size_t kLineBytes = 64;
  using Counter = std::atomic<uint64_t>;
  struct alignas(kLineBytes) Counts {
    Counter acknowledged{0};
    Counter told{0};
    std::array<Counter, 2> open{};  // on a wire, or acknowledged and not told; by era
  };
  /// One thread writes it. Whoever sees it sees what was counted before.
  static void count(Counter& counter, int64_t more) {
    const uint64_t now = counter.load(std::memory_order_relaxed);
    counter.store(now + static_cast<uint64_t>(more), std::memory_order_release);
  }
  uint64_t acknowledged_by_all() const;
  uint64_t told_by_all() const;
  uint64_t open(uint32_t era) const;
  void durable_to(uint64_t covers);
  void lose(uint64_t acknowledged, bool open_too);
  void watch();
  bool all_told();
  void report(const Ticket& ticket, Untold* request);
  void reported(uint32_t losses);

  const size_t queues_;
  const bool era_stuck_;
  const std::unique_ptr<Counts[]> counts_;  // by queue
  // By set sizes: there are so many acknowledged parts that need no flush any more.
  alignas(kLineBytes) Counter durable_{0};
  std::atomic<uint32_t> era_{0};
  std::atomic<uint32_t> losses_{0};
  std::atomic<uint32_t> losses_reported_{0};
  std::atomic<uint64_t> flushes_failed_{0};

  std::mutex mutex_;            // of what follows
  uint64_t lost_up_to_ = 0;     // acknowledged at the last loss
  bool open_too_ = false;       // what was open then is at stake as well
  bool watching_ = false;       // the era before this one: parts of it are at stake
  bool watching_next_ = false;  // and then those of this one
};

}  // namespace braid::bnbd::client
