// StallClock: tries stalled sends again when nobody polls.
//
// A send that met no receive (RNR) or no room waits for a time, and so does the flush of a QP whose
// peer is in the middle of a copy. An owner that polls notices by itself. One that sleeps, or a QP
// that nobody polls, is helped from the control reactor: a QP of a Td gets its channels signalled,
// another one is moved on from here.
//
// Threads: watch and forget from any thread, under the QP's lock (watch) or without (forget); the
// rest on the control reactor. Shared with messages under way to that reactor.
#pragma once

#include <cstdint>
#include <memory>

#include "base/intrusive_list.h"
#include "base/reactor.h"
#include "vhca/soft/spin_lock.h"

namespace braid::vhca::soft {

/// A QP as the clock sees it.
class Stalled : public base::ListNode {
 public:
  virtual ~Stalled() = default;
  /// The time has come. On the control reactor.
  virtual void stall_over() = 0;

 private:
  friend class StallClock;
  uint64_t stalled_until_ns_ = 0;
};

class StallClock : public std::enable_shared_from_this<StallClock> {
 public:
  explicit StallClock(base::Reactor& control);

  /// Calls stall_over() once, at the time or soon after. A later call replaces the time.
  void watch(Stalled& stalled, uint64_t deadline_ns);
  /// When this returns stall_over() neither runs nor will.
  void forget(Stalled& stalled);
  /// Control reactor: nothing is called any more.
  void shut_down();

 private:
  static void fire(base::Timer& timer);
  void run_due();
  void reschedule();

  base::Reactor& control_;
  base::Timer timer_;
  SpinLock lock_{true};                // guards all below
  base::IntrusiveList<Stalled> list_;  // few: stalls are rare and short
  Stalled* running_ = nullptr;         // its stall_over() runs now
  bool posted_ = false;                // a message to reschedule is under way
  bool shut_down_ = false;
};

}  // namespace braid::vhca::soft
