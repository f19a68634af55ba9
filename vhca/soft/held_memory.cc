#include "vhca/soft/held_memory.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

namespace braid::vhca::soft {
namespace {

constexpr uint64_t kIntervalMinNs = base::kMillisecond;
constexpr uint64_t kIntervalMaxNs = 100 * base::kMillisecond;

}  // namespace

HeldMemory::HeldMemory(base::Reactor& control, Wire& wire)
    : control_(control), wire_(wire), timer_(&HeldMemory::fire, this) {}

void HeldMemory::hold(std::unique_ptr<PeerFence> fence, const MrPlace& place,
                      std::shared_ptr<void> memory) {
  {
    const std::lock_guard guard(lock_);
    held_.push_back({.fence = std::move(fence), .place = place, .memory = std::move(memory)});
  }
  control_.post([self = shared_from_this()] {
    self->interval_ns_ = kIntervalMinNs;
    self->look();
  });
}

void HeldMemory::shut_down() {
  std::vector<Held> rest;
  {
    const std::lock_guard guard(lock_);
    shut_down_ = true;
    rest.swap(held_);
  }
  if (timer_.pending()) control_.cancel(timer_);
  for (const Held& each : rest) wire_.release_memory(each.place);
}

void HeldMemory::fire(base::Timer& timer) {
  static_cast<HeldMemory*>(timer.context)->look();
}

void HeldMemory::look() {
  std::vector<Held> passed;  // goes without the lock: what memory takes with it is not known here
  bool again = false;
  {
    const std::lock_guard guard(lock_);
    if (shut_down_) return;
    const auto first = std::partition(held_.begin(), held_.end(),
                                      [](const Held& each) { return !each.fence->passed(); });
    std::move(first, held_.end(), std::back_inserter(passed));
    held_.erase(first, held_.end());
    again = !held_.empty();
  }
  for (const Held& each : passed) wire_.release_memory(each.place);
  if (!again) return;
  control_.schedule_after(timer_, interval_ns_);
  interval_ns_ = std::min(2 * interval_ns_, kIntervalMaxNs);
}

}  // namespace braid::vhca::soft
