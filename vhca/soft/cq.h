// SoftCq and SoftCompChannel: completions, private to their process.
//
// A CQ is a ring of completions. Completions of local sends, and of all that a message link brings,
// are pushed when they happen. Arrivals of direct links wait in the links' rings; poll() drains
// them when its own ring is empty, and never more than there is room for.
//
// Threads: any; with a Td one, and then also for next_event() of its channel.
// Lock order: channel.cqs_lock_ > cq.members_lock_ > qp lock > cq.ring_lock_ >
// channel.events_lock_. That of the device's async events stands below all of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/host.h"
#include "base/intrusive_list.h"
#include "vhca/device.h"
#include "vhca/soft/async_events.h"
#include "vhca/soft/spin_lock.h"

namespace braid::vhca::soft {

class SoftCq;
class SoftDevice;
class SoftQp;

class SoftCompChannel final : public CompChannel {
 public:
  explicit SoftCompChannel(std::unique_ptr<base::Event> event) : event_(std::move(event)) {}

  base::Event& event() override { return *event_; }
  Cq* next_event() override;
  bool more() const override { return looks_due_.load(std::memory_order_relaxed) > 0; }

  // --- for SoftCq
  void attach(SoftCq& cq);
  void detach(SoftCq& cq);
  /// The CQ has an event: at most one until next_event() gave it out.
  void notify(SoftCq& cq);

 private:
  /// How many CQs one next_event() looks at.
  static constexpr size_t kLooksMax = 64;

  Cq* pop_event();
  void look(bool everywhere);

  const std::unique_ptr<base::Event> event_;
  SpinLock cqs_lock_{true};
  std::vector<SoftCq*> cqs_;
  std::atomic<bool> looked_{false};   // since next_event() has given none
  size_t next_look_ = 0;              // cqs_lock_
  std::atomic<size_t> looks_due_{0};  // written under cqs_lock_
  std::atomic<bool> looking_{false};  // notify() need not signal, if it is the same thread
  SpinLock events_lock_{true};
  base::IntrusiveList<SoftCq> events_;
};

class SoftCq final : public Cq, public base::ListNode {
 public:
  SoftCq(SoftDevice& device, uint32_t capacity, SoftCompChannel* channel, bool one_thread);
  ~SoftCq() override;

  int poll(std::span<Wc> out) override;
  void arm(bool solicited_only) override;
  bool begin_arm(bool solicited_only) override;
  void disarm() override;
  /// Counts for nothing here: an unacknowledged event does not delay destruction.
  void ack_events(unsigned count) override { (void)count; }
  int capacity() const override;
  base::Status resize(int capacity) override;

  // --- for SoftQp, under its lock
  /// Adds a completion, which `fill(Wc&)` writes in place: all of its members. (Built elsewhere
  /// and copied, its small stores would stall the copy's wide loads.) False: there was no room, the
  /// CQ is overrun for good.
  template <typename Fill>
  bool push(bool urgent, Fill fill) {
    ring_lock_.lock();
    bool has_room = true;
    if (sink_ != sink_end_) {
      fill(*sink_++);
    } else if (head_ - tail_ <= mask_) [[likely]] {
      fill(ring_[head_++ & mask_]);
    } else {
      has_room = false;
    }
    if (has_room && armed_.load(std::memory_order_relaxed) == Armed::kNo) [[likely]] {
      ring_lock_.unlock();
      return true;
    }
    return push_special(has_room, urgent);
  }
  uint32_t room() {
    ring_lock_.lock();
    const uint32_t count = mask_ + 1 - (head_ - tail_);
    ring_lock_.unlock();
    return count;
  }
  /// A link that was given while the CQ sleeps has been armed.
  void link_was_armed() { links_armed_.store(true, std::memory_order_relaxed); }
  bool armed(std::memory_order order = std::memory_order_relaxed) const {
    return armed_.load(order) != Armed::kNo;
  }
  bool armed_solicited_only() const {
    return armed_.load(std::memory_order_relaxed) == Armed::kSolicited;
  }
  bool one_thread() const { return !ring_lock_.enabled(); }
  SoftCompChannel* channel() const { return channel_; }

  // --- not under a QP's lock
  void attach(SoftQp& qp);
  /// Also drops the completions of the QP.
  void detach(SoftQp& qp);
  void drop_completions(uint32_t qp_number);
  /// After the bare event of the channel, lets those QPs move that it may be of: up to `budget`
  /// arrivals become completions, stalled sends are tried again.
  void progress_unnamed(uint32_t budget);
  bool overrun() const { return overrun_.load(std::memory_order_relaxed); }

  // --- faults made on purpose (vhca/device_faults.h)
  /// A QP of it is in RTR, RTS or SQD.
  bool has_connected();
  /// As if there had been no room, with all its QPs.
  void overrun_by_fault();
  /// One of the connected QPs fails.
  void fail_connected(uint64_t which);

 private:
  std::vector<SoftQp*> connected();
  enum class Armed : uint8_t { kNo, kNext, kSolicited };
  bool push_special(bool has_room, bool urgent);
  void drain(uint32_t budget);
  uint32_t pop(Wc* out, uint32_t count);
  bool arm_links(bool armed, bool solicited_only);

  // What a poll touches stands together.
  mutable SpinLock ring_lock_;
  uint32_t head_ = 0;  // pushed; ring_lock_
  uint32_t tail_ = 0;  // polled; ring_lock_
  uint32_t mask_;
  std::unique_ptr<Wc[]> ring_;
  // With a Td, while poll() drains and the ring is empty: the caller's array, so that arrivals go
  // there at once.
  Wc* sink_ = nullptr;
  Wc* sink_end_ = nullptr;
  std::atomic<Armed> armed_{Armed::kNo};  // written under ring_lock_
  std::atomic<bool> overrun_{false};
  SpinLock members_lock_;
  std::atomic<bool> links_armed_{false};  // some link may still signal
  std::optional<uint64_t> armed_at_;      // Wire::fences() then; ring_lock_
  uint32_t next_member_ = 0;              // members_lock_: who goes first, in turn
  std::vector<SoftQp*> members_;          // members_lock_
  SoftCompChannel* const channel_;
  SoftDevice& device_;
  AsyncNode overrun_event_;
};

}  // namespace braid::vhca::soft
