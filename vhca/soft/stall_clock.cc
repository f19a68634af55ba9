#include "vhca/soft/stall_clock.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace braid::vhca::soft {

StallClock::StallClock(base::Reactor& control)
    : control_(control), timer_(&StallClock::fire, this) {}

void StallClock::watch(Stalled& stalled, uint64_t deadline_ns) {
  const std::lock_guard guard(lock_);
  if (shut_down_) return;
  // As each arming asks: another message would wake the reactor that is about to sleep.
  if (stalled.linked() && stalled.stalled_until_ns_ == deadline_ns) return;
  stalled.stalled_until_ns_ = deadline_ns;
  if (!stalled.linked()) list_.push_back(stalled);
  if (posted_) return;
  posted_ = true;
  control_.post([self = shared_from_this()] { self->reschedule(); });
}

void StallClock::forget(Stalled& stalled) {
  for (;;) {
    {
      const std::lock_guard guard(lock_);
      stalled.unlink();
      if (running_ != &stalled) return;
    }
    // Its stall_over() runs on the control reactor this very moment. It may send and receive on a
    // stream, within bounds.
    control_.host().yield();
  }
}

void StallClock::shut_down() {
  {
    const std::lock_guard guard(lock_);
    shut_down_ = true;
    list_.clear();
  }
  if (timer_.pending()) control_.cancel(timer_);
}

void StallClock::fire(base::Timer& timer) {
  auto* self = static_cast<StallClock*>(timer.context);
  self->run_due();
  self->reschedule();
}

void StallClock::run_due() {
  const uint64_t now_ns = control_.now_ns();
  for (;;) {
    Stalled* due = nullptr;
    {
      const std::lock_guard guard(lock_);
      for (Stalled* each = list_.front(); each != nullptr && due == nullptr;
           each = list_.next(*each)) {
        if (each->stalled_until_ns_ <= now_ns) due = each;
      }
      if (due == nullptr) return;
      due->unlink();
      running_ = due;
    }
    due->stall_over();
    const std::lock_guard guard(lock_);
    running_ = nullptr;
  }
}

void StallClock::reschedule() {
  uint64_t first_ns = base::kNever;
  {
    const std::lock_guard guard(lock_);
    posted_ = false;
    for (Stalled* each = list_.front(); each != nullptr; each = list_.next(*each)) {
      first_ns = std::min(first_ns, each->stalled_until_ns_);
    }
  }
  if (first_ns != base::kNever) control_.schedule(timer_, first_ns);
}

}  // namespace braid::vhca::soft
