// OutboundRing: the sender's side of a peer's inbound segment. Private to vhca/soft/inhost.
//
// Keeps private copies of what the peer publishes and reads it again only when they are used up.
// A peer that publishes what cannot be makes the ring report kBroken for good.
//
// Thread: the QP's (its Td thread, or under its lock).
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "vhca/soft/inhost/layout.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft::inhost {

class OutboundRing {
 public:
  /// `mark`, of this process, counts the copies as well. `shares_receives`: the peer gives receives
  /// when it is asked; ready() asks, and says kFull until there is an answer.
  OutboundRing(const SegmentView& view, CopyMark& mark, bool heavy_fence_exists,
               bool shares_receives)
      : view_(view),
        mark_(mark),
        heavy_fence_exists_(heavy_fence_exists),
        shares_receives_(shares_receives) {}

  enum class Room : uint8_t {
    kReady,
    kNoReceive,  // the peer has no receive posted; the next call asks one with an SRQ again
    kFull,       // no slot, or no room for the payload
    kBroken,     // the peer published nonsense
  };

  Gate gate() const {
    return Gate::unpack(view_.head().control.gate.load(std::memory_order_acquire));
  }

  /// Whether a message without payload that uses up a receive can be pushed now.
  Room ready() {
    if (consumed_ != posted_ && tail_ - drained_slots_ < view_.geometry().slots - 1) {
      return Room::kReady;
    }
    return refresh_for_message();
  }

  /// After ready() said kReady.
  /// `address` is where the data went, in the peer's address space: a hint for its cache.
  void push_write_imm(uint32_t imm, uint64_t address, uint32_t length, bool solicited) {
    copy_to_shared(view_.slot_at(tail_).payload, reinterpret_cast<const std::byte*>(&address),
                   sizeof(address));
    const uint8_t flags = static_cast<uint8_t>(kSlotHasImm | (solicited ? kSlotSolicited : 0));
    ++consumed_;
    publish(SlotKind::kWriteImm, flags, 0, imm, length);
  }

  /// How the next receive of the peer takes a SEND; meaningful after ready() said kReady.
  struct Receive {
    uint32_t capacity_bytes;
    bool usable;
  };
  Receive next_receive();
  /// Whether `stands(key)` for all keys of its memory that are told.
  template <typename Stands>
  bool next_receive_stands(Stands&& stands) const {
    for (uint32_t part = 0; part < view_.geometry().receive_keys; ++part) {
      const uint32_t key = view_.key_at(consumed_, part).load(std::memory_order_relaxed);
      if (key == 0) return true;
      if (!stands(key)) return false;
    }
    return true;
  }

  /// A SEND of request.length into the next receive, which can hold it (next_receive). kFull: what
  /// fits has been pushed; call again with the same request. `flags`: kSlotHasImm, kSlotSolicited.
  Room push_send(const Request& request, uint8_t flags);
  /// True between the first kFull that left something of a SEND behind and its end.
  bool in_fragments() const { return fragment_offset_ != 0; }
  /// Looks whether the peer has answered our wish yet. False: it has, or there is none.
  bool waits_for_answer() {
    return wishing_ && !broken_ && refresh() && consumed_ == posted_ && refused_ == retries_;
  }
  /// True once after ready() asked: a peer that sleeps must be signalled to answer.
  bool take_asked() { return std::exchange(asked_, false); }

  /// Tells the peer that it goes to ERR: it refused a request of ours, which fails with `status`.
  /// `for_receive` is the status of its next receive, or SUCCESS. At most once; always has room.
  void push_fault(ibv_wc_status status, ibv_wc_status for_receive);

  /// After a push: whether the peer sleeps and must be signalled for it.
  bool must_signal(bool solicited) {
    light_fence(heavy_fence_exists_);
    const uint32_t armed = view_.head().control.armed.load(std::memory_order_acquire);
    if ((armed & kArmModeMask) == 0) return false;
    return must_signal_armed(armed, solicited);
  }

  /// Whether the peer sleeps, for whatever it waits.
  bool peer_sleeps() const {
    light_fence(heavy_fence_exists_);
    return (view_.head().control.armed.load(std::memory_order_relaxed) & kArmModeMask) != 0;
  }
  /// After an answer to the peer's wish: whether it must be signalled to see it.
  bool peer_waits_asleep() const {
    light_fence(heavy_fence_exists_);
    return view_.head().control.sends_armed.load(std::memory_order_relaxed) != 0;
  }

  /// Around each copy to or from the peer's memory.
  void begin_copy(uint32_t rkey) {
    mark_.activity.store(++activity_, std::memory_order_relaxed);
    // Release: who sees this key sees all of the copies before it as well.
    view_.head().activity.key.store(rkey, std::memory_order_release);
    view_.head().activity.active.store(activity_, std::memory_order_release);
    light_fence(heavy_fence_exists_);
  }
  void end_copy() {
    view_.head().activity.active.store(++activity_, std::memory_order_release);
    mark_.activity.store(activity_, std::memory_order_release);
  }

 private:
  Room refresh_for_message();
  Room ask();
  Room reserve(uint32_t bytes, PayloadCursor::Place& place);
  bool refresh();
  bool must_signal_armed(uint32_t armed, bool solicited);
  void publish(SlotKind kind, uint8_t flags, uint32_t bytes, uint32_t imm, uint32_t length) {
    Slot& slot = view_.slot_at(tail_);
    slot.imm.store(imm, std::memory_order_relaxed);
    slot.length.store(length, std::memory_order_relaxed);
    ++tail_;
    const SlotWord word{static_cast<uint32_t>(tail_), kind, flags, static_cast<uint16_t>(bytes)};
    slot.word.store(word.pack(), std::memory_order_release);
  }

  SegmentView view_;
  CopyMark& mark_;
  const bool heavy_fence_exists_;
  const bool shares_receives_;
  bool broken_ = false;
  bool wishing_ = false;  // a wish stands in the ring
  bool asked_ = false;    // for take_asked()
  bool refusal_told_ = false;
  uint32_t retries_ = 0;  // as published
  uint32_t refused_ = 0;  // as the peer published it
  bool faulted_ = false;
  uint32_t signalled_ = 0;      // the arming that was signalled last
  uint64_t tail_ = 0;           // slots pushed
  uint64_t drained_slots_ = 0;  // of these, known to be free again
  uint64_t consumed_ = 0;       // receives used up
  uint64_t posted_ = 0;         // receives known to be posted
  uint64_t activity_ = 0;
  PayloadCursor cursor_;
  uint64_t drained_bytes_ = 0;
  uint32_t fragment_offset_ = 0;  // bytes of the present SEND that were pushed
};

/// Copies `bytes` of the pieces, from `offset` on, to `target`, which is shared.
void gather(std::span<const Piece> pieces, uint32_t offset, uint32_t bytes, std::byte* target);

}  // namespace braid::vhca::soft::inhost
