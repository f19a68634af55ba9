#include "vhca/soft/cq.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "vhca/soft/device.h"
#include "vhca/soft/qp.h"

namespace braid::vhca::soft {

// --- SoftCompChannel

Cq* SoftCompChannel::pop_event() {
  const std::lock_guard guard(events_lock_);
  return events_.pop_front();
}

Cq* SoftCompChannel::next_event() {
  Cq* cq = pop_event();
  // After the looks of this round: what has come since raises the flag, which wakes the caller. So
  // there is nothing to ask the kernel for, who asks until there is none.
  const bool all_seen = looked_.load(std::memory_order_relaxed) && !more();
  if (cq == nullptr && !all_seen) {
    // The flag goes down before the looks: what comes after raises it again.
    const bool signalled = event_->consume();
    look(signalled || !more());
    looked_.store(true, std::memory_order_relaxed);
    cq = pop_event();
  }
  if (cq == nullptr) looked_.store(false, std::memory_order_relaxed);
  return cq;
}

/// For what does not say whose CQ it is about: arrivals of direct links, and sends that may be
/// tried again. Letting these move makes completions, and those make the events of their CQs.
void SoftCompChannel::look(bool everywhere) {
  const std::lock_guard guard(cqs_lock_);
  size_t due = everywhere ? cqs_.size() : std::min(looks_due_.load(), cqs_.size());
  looking_.store(true, std::memory_order_relaxed);
  for (size_t looks = std::min(due, kLooksMax); looks > 0; --looks, --due) {
    if (next_look_ >= cqs_.size()) next_look_ = 0;
    SoftCq& cq = *cqs_[next_look_++];
    if (cq.armed()) cq.progress_unnamed(static_cast<uint32_t>(cq.capacity()));
  }
  looking_.store(false, std::memory_order_relaxed);
  looks_due_.store(due, std::memory_order_relaxed);
}

void SoftCompChannel::attach(SoftCq& cq) {
  const std::lock_guard guard(cqs_lock_);
  cqs_.push_back(&cq);
  // It stands between those that are still to be looked at.
  if (more()) looks_due_.store(looks_due_.load() + 1, std::memory_order_relaxed);
}

void SoftCompChannel::detach(SoftCq& cq) {
  {
    const std::lock_guard guard(cqs_lock_);
    const auto at = std::find(cqs_.begin(), cqs_.end(), &cq);
    if (at < cqs_.begin() + static_cast<ptrdiff_t>(next_look_)) --next_look_;
    cqs_.erase(at);
  }
  const std::lock_guard guard(events_lock_);
  cq.unlink();
}

void SoftCompChannel::notify(SoftCq& cq) {
  {
    const std::lock_guard guard(events_lock_);
    if (!cq.linked()) events_.push_back(cq);
  }
  const bool taken_now = cq.one_thread() && looking_.load(std::memory_order_relaxed);
  if (!taken_now) event_->signal();
}

// --- SoftCq

SoftCq::SoftCq(SoftDevice& device, uint32_t capacity, SoftCompChannel* channel, bool one_thread)
    : ring_lock_(!one_thread),
      mask_(std::bit_ceil(capacity) - 1),
      ring_(std::make_unique_for_overwrite<Wc[]>(mask_ + 1)),
      members_lock_(!one_thread),
      channel_(channel),
      device_(device) {
  device_.add_cq(*this);
  if (channel_ != nullptr) channel_->attach(*this);
}

SoftCq::~SoftCq() {
  BRAID_ASSERT(members_.empty());  // its QPs go first
  if (channel_ != nullptr) channel_->detach(*this);
  device_.remove_cq(*this);
  device_.async_events().forget(overrun_event_);
}

int SoftCq::capacity() const {
  const std::lock_guard guard(ring_lock_);
  return static_cast<int>(mask_ + 1);
}

base::Status SoftCq::resize(int capacity) {
  if (capacity < 1 || static_cast<uint32_t>(capacity) > kMaxCqCapacity) {
    return base::make_error(base::Errc::kInvalid, "CQ capacity {}: must be 1 to {}", capacity,
                            kMaxCqCapacity);
  }
  const uint32_t mask = std::bit_ceil(static_cast<uint32_t>(capacity)) - 1;
  auto ring = std::make_unique_for_overwrite<Wc[]>(mask + 1);
  const std::lock_guard guard(ring_lock_);
  if (head_ - tail_ > static_cast<uint32_t>(capacity)) {
    return base::make_error(base::Errc::kInvalid, "CQ capacity {}: {} completions wait in it",
                            capacity, head_ - tail_);
  }
  for (uint32_t at = tail_; at != head_; ++at) ring[at & mask] = ring_[at & mask_];
  ring_.swap(ring);
  mask_ = mask;
  return base::ok_status();
}

int SoftCq::poll(std::span<Wc> out) {
  if (overrun()) return -1;
  const auto wanted = static_cast<uint32_t>(out.size());
  uint32_t taken = pop(out.data(), wanted);
  if (taken == wanted) return static_cast<int>(taken);
  // One thread at a time drains; what it finds, the others poll next time, or their arm() told.
  if (!members_lock_.try_lock()) return static_cast<int>(taken);
  if (links_armed_.load(std::memory_order_relaxed) && !armed()) arm_links(false, false);
  if (one_thread()) {
    Wc* const first = sink_ = out.data() + taken;
    sink_end_ = out.data() + wanted;
    drain(wanted - taken);
    taken += static_cast<uint32_t>(sink_ - first);
    sink_ = sink_end_ = nullptr;
  } else {
    drain(wanted - taken);
    taken += pop(out.data() + taken, wanted - taken);
  }
  members_lock_.unlock();
  return static_cast<int>(taken);
}

/// Lets the QPs move, each in turn the first.
void SoftCq::drain(uint32_t budget) {
  const auto count = static_cast<uint32_t>(members_.size());
  if (next_member_ >= count) next_member_ = 0;
  for (uint32_t i = 0, at = next_member_; i < count && budget > 0; ++i) {
    SoftQp& qp = *members_[at];
    if (++at == count) at = 0;
    if (!qp.needs_progress()) continue;
    budget -= qp.progress(budget, *this);
    if (budget == 0) next_member_ = at;
  }
}

uint32_t SoftCq::pop(Wc* out, uint32_t count) {
  const std::lock_guard guard(ring_lock_);
  const uint32_t n = std::min(count, head_ - tail_);
  for (uint32_t i = 0; i < n; ++i) out[i] = ring_[tail_++ & mask_];
  return n;
}

void SoftCq::progress_unnamed(uint32_t budget) {
  const std::lock_guard guard(members_lock_);
  for (SoftQp* qp : members_) {
    if (budget == 0) return;
    if (qp->signals_unnamed()) budget -= qp->progress(budget, *this);
  }
}

bool SoftCq::push_special(bool has_room, bool urgent) {
  // Entered with ring_lock_ held.
  const Armed armed_now = armed_.load(std::memory_order_relaxed);
  const bool overruns = !has_room && !overrun();
  if (!has_room) {
    overrun_.store(true, std::memory_order_relaxed);
    urgent = true;
  }
  const bool counts = !armed_at_ || armed_at_ != device_.wire().fences();
  const bool fire =
      counts && (armed_now == Armed::kNext || (armed_now == Armed::kSolicited && urgent));
  if (fire) armed_.store(Armed::kNo, std::memory_order_relaxed);
  ring_lock_.unlock();
  if (overruns) {
    device_.async_events().raise(overrun_event_, {.type = IBV_EVENT_CQ_ERR, .cq = this});
  }
  if (fire && channel_ != nullptr) channel_->notify(*this);
  return has_room;
}

void SoftCq::arm(bool solicited_only) {
  if (begin_arm(solicited_only)) device_.host().heavy_fence();
}

/// The peer stores its arrival, then looks whether we sleep; we say that we sleep, then look for
/// arrivals (in the caller's next poll). Neither side may see the other's old value: hence the
/// fence between the two, which is asked for if there is a peer that looks so.
bool SoftCq::begin_arm(bool solicited_only) {
  {
    const std::lock_guard guard(ring_lock_);
    // Asking for less does not undo having asked for more.
    if (armed_.load(std::memory_order_relaxed) != Armed::kNext) {
      // Before the look whether QPs have links: who is given one meanwhile looks whether we sleep.
      armed_.store(solicited_only ? Armed::kSolicited : Armed::kNext, std::memory_order_seq_cst);
      armed_at_ = device_.wire().fences();
    }
  }
  const std::lock_guard guard(members_lock_);
  return arm_links(true, armed_solicited_only()) || device_.wire().fences().has_value();
}

void SoftCq::disarm() {
  {
    const std::lock_guard guard(ring_lock_);
    armed_.store(Armed::kNo, std::memory_order_relaxed);
  }
  const std::lock_guard guard(members_lock_);
  // Another thread may have armed it meanwhile.
  if (links_armed_.load(std::memory_order_relaxed) && !armed()) arm_links(false, false);
}

bool SoftCq::arm_links(bool armed, bool solicited_only) {
  bool any = false;
  const auto order = armed ? std::memory_order_seq_cst : std::memory_order_relaxed;
  for (SoftQp* qp : members_) {
    if (qp->needs_progress(order) && qp->arm_link(armed, solicited_only, *this)) any = true;
  }
  links_armed_.store(any && armed, std::memory_order_relaxed);
  return any;
}

void SoftCq::attach(SoftQp& qp) {
  const std::lock_guard guard(members_lock_);
  if (std::find(members_.begin(), members_.end(), &qp) == members_.end()) members_.push_back(&qp);
}

void SoftCq::detach(SoftQp& qp) {
  {
    const std::lock_guard guard(members_lock_);
    std::erase(members_, &qp);
  }
  drop_completions(qp.number());
}

void SoftCq::drop_completions(uint32_t qp_number) {
  const std::lock_guard guard(ring_lock_);
  uint32_t kept = tail_;
  for (uint32_t at = tail_; at != head_; ++at) {
    const Wc wc = ring_[at & mask_];
    if (wc.qp_num != qp_number) ring_[kept++ & mask_] = wc;
  }
  head_ = kept;
}

// --- faults made on purpose

std::vector<SoftQp*> SoftCq::connected() {
  std::vector<SoftQp*> all;
  const std::lock_guard guard(members_lock_);
  for (SoftQp* qp : members_)
    if (qp->connected()) all.push_back(qp);
  return all;
}

bool SoftCq::has_connected() {
  return !connected().empty();
}

void SoftCq::overrun_by_fault() {
  ring_lock_.lock();
  (void)push_special(/*has_room=*/false, /*urgent=*/true);
  for (SoftQp* qp : connected()) qp->fail_by_itself("a CQ of it is overrun");
}

void SoftCq::fail_connected(uint64_t which) {
  const std::vector<SoftQp*> all = connected();
  if (!all.empty()) all[which % all.size()]->fail_by_itself("its adapter failed it");
}

}  // namespace braid::vhca::soft
