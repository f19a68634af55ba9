#include "vhca/soft/held_memory.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

namespace braid::vhca::soft {
namespace {

constexpr uint64_t kIntervalMinNs = base::kMillisecond;
constexpr uint64_t kIntervalMaxNs = 100 * base::kMillisecond;
constexpr uint64_t kTellHeldAfterNs = base::kSecond;
// In one turn, shared by all that is held: tens of microseconds.
constexpr size_t kHeldLooks = 1024;
constexpr size_t kLooksOfEachMax = 32;

}  // namespace

HeldMemory::HeldMemory(base::Reactor& control, Wire& wire)
    : control_(control), wire_(wire), timer_(&HeldMemory::fire, this) {}

void HeldMemory::hold(Held held) {
  held.since_ns = control_.host().now_ns();
  {
    const std::lock_guard guard(lock_);
    new_.push_back(std::move(held));
  }
  control_.post([self = shared_from_this()] {
    self->interval_ns_ = kIntervalMinNs;
    self->look();
  });
}

void HeldMemory::take_new() {
  std::vector<Held> taken;
  {
    const std::lock_guard guard(lock_);
    taken.swap(new_);
  }
  std::ranges::move(taken, std::back_inserter(held_));
}

void HeldMemory::shut_down() {
  shut_down_ = true;
  if (timer_.pending()) control_.cancel(timer_);
  take_new();
  const std::vector<Held> rest = std::exchange(held_, {});
  for (const Held& each : rest) wire_.release_memory(each.place);
}

void HeldMemory::fire(base::Timer& timer) {
  static_cast<HeldMemory*>(timer.context)->look();
}

void HeldMemory::look() {
  if (shut_down_) return;
  take_new();
  const size_t share = kHeldLooks / std::max<size_t>(held_.size(), 1);
  const auto looks = static_cast<unsigned>(std::clamp<size_t>(share, 1, kLooksOfEachMax));
  const auto first = std::partition(held_.begin(), held_.end(), [looks](const Held& each) {
    return !passes_soon(*each.fence, looks);
  });
  // Goes last: what memory takes with it is not known here.
  const std::vector<Held> passed(std::make_move_iterator(first),
                                 std::make_move_iterator(held_.end()));
  held_.erase(first, held_.end());
  for (const Held& each : passed) wire_.release_memory(each.place);
  if (held_.empty()) return;
  tell_late();
  control_.schedule_after(timer_, interval_ns_);
  interval_ns_ = std::min(2 * interval_ns_, kIntervalMaxNs);
}

void HeldMemory::tell_late() {
  const uint64_t now_ns = control_.now_ns();
  for (Held& each : held_) {
    if (each.told || now_ns < each.since_ns + kTellHeldAfterNs) continue;
    each.told = true;
    control_.log().warning(
        "{} bytes stay registered: {} is in the middle of a copy (is it stopped?)",
        each.length_bytes, each.fence->waits_for());
  }
}

}  // namespace braid::vhca::soft
