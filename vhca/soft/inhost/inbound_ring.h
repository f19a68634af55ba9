// InboundRing: the owner's side of its inbound segment. Private to vhca/soft/inhost.
//
// Everything read from the segment is copied out, then checked; what the owner published it knows
// itself. A peer that breaks the ring's rules makes next() report kBroken for good.
//
// Thread: the QP's (its Td thread, or under its lock).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "vhca/soft/inhost/layout.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft::inhost {

class InboundRing {
 public:
  /// `view` is zero-filled. `shares_receives`: they are an SRQ's, and posted when the peer wishes.
  InboundRing(const SegmentView& view, bool shares_receives);

  void set_gate(const Gate& gate) {
    view_.head().control.gate.store(gate.pack(), std::memory_order_release);
  }

  /// A receive that can take `length_bytes`; at most geometry.receives are outstanding. After
  /// Next::kWish it grants that. `keys`: of its memory, at most geometry.receive_keys.
  void post(uint32_t length_bytes, bool usable, std::span<const uint32_t> keys = {});
  /// After Next::kWish: there is no receive. It comes again when the peer retries.
  void refuse_wish();

  /// The next arrival, or a fault. Payload points into the segment, or for a SEND in fragments into
  /// a buffer of the ring; both stay until pop().
  Next next(Arrival& arrival) {
    const uint64_t word = view_.slot_at(head_).word.load(std::memory_order_acquire);
    if (static_cast<uint32_t>(word) != static_cast<uint32_t>(head_ + 1)) return idle();
    return next_slot(word, arrival);
  }
  /// Drops what next() gave last (kArrival).
  void pop();

  /// What the peer is to signal for. A new generation with each call that arms.
  void arm(ArmMode mode);
  /// What was sent to an SRQ's owner waits for its answer asleep, or looks for it.
  void arm_sends(bool armed) {
    view_.head().control.sends_armed.store(armed ? 1 : 0, std::memory_order_relaxed);
  }

  /// After kBroken: which rule was broken. For the log.
  std::string_view broken_rule() const { return broken_rule_; }

 private:
  Next idle() const { return broken_rule_.empty() ? Next::kNone : Next::kBroken; }
  Next next_slot(uint64_t word, Arrival& arrival);
  Next broken(std::string_view rule);
  bool take_payload(const SlotWord& word, const Slot& slot, uint32_t length, Arrival& arrival);
  bool take_fragment(const SlotWord& word, uint32_t length);
  Next take_wish(const SlotWord& word);
  void drain_slot();

  SegmentView view_;
  const bool shares_receives_;
  bool wished_ = false;    // the slot at head_ is a wish that next() gave out
  uint32_t refused_ = 0;   // as published
  uint64_t head_ = 0;      // slots drained
  uint64_t posted_ = 0;    // receives
  uint64_t consumed_ = 0;  // of these, used up by arrivals that were popped
  uint32_t armed_ = 0;     // as published
  PayloadCursor cursor_;
  uint64_t cursor_after_ = 0;         // where the cursor goes with the slot at head_
  std::vector<uint32_t> capacities_;  // of receives, by their number modulo geometry.receives
  std::vector<std::byte> assembled_;  // of a SEND in fragments
  bool assembled_whole_ = false;      // its last fragment, at head_, was taken
  std::string_view broken_rule_;
};

}  // namespace braid::vhca::soft::inhost
