// What lies in the inbound segment of an in-host QP (drawn in docs/in-host-wire.md).
//
// The QP that owns the segment and the one peer QP that sends to it map the same memfd. Each word
// has one writer; the other side copies it out before it checks it, and the owner never reads back
// what it wrote. Lines of different writers lie 128 bytes apart: the prefetcher fetches in pairs.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "vhca/soft/shared_word.h"

namespace braid::vhca::soft::inhost {

// --- control: written by the owner, seldom; read by the peer for each request

enum class EndState : uint8_t {
  kPreparing = 0,  // memory is zero-filled: the owner has not attached its QP yet
  kOpen = 1,
  kClosed = 2,
  kTroubled = 3,  // open, but for faults of the owner's port (Gate::faults)
};

/// What the owner's port does to the peer's requests (docs/port-faults.md).
inline constexpr uint8_t kRequestsLost = 1;
inline constexpr uint8_t kAnswersLost = 2;

/// What the peer is judged by, in one word so that it is one load.
struct Gate {
  EndState state = EndState::kPreparing;
  uint8_t access = 0;     // the QP's remote access flags (ibv_access_flags)
  uint8_t rnr_timer = 0;  // min_rnr_timer, 0..31
  uint32_t pd = 0;        // of the QP; an MR must be of the same
  uint8_t faults = 0;     // while kTroubled

  constexpr uint64_t pack() const {
    return static_cast<uint64_t>(state) | uint64_t{access} << 8 | uint64_t{rnr_timer} << 16 |
           uint64_t{faults} << 24 | uint64_t{pd} << 32;
  }
  /// A state that does not exist counts as closed.
  static constexpr Gate unpack(uint64_t word) {
    Gate gate;
    gate.state = (word & 0xff) > 3 ? EndState::kClosed : static_cast<EndState>(word & 0xff);
    gate.access = static_cast<uint8_t>(word >> 8);
    gate.rnr_timer = static_cast<uint8_t>(word >> 16) & 31;
    gate.faults = static_cast<uint8_t>(word >> 24) & (kRequestsLost | kAnswersLost);
    gate.pd = static_cast<uint32_t>(word >> 32);
    return gate;
  }
};

/// What the sleeper wants to be woken by: the low two bits of `armed`. The rest is a generation:
/// one arming gives one signal.
enum class ArmMode : uint32_t { kPolls = 0, kAny = 1, kSolicited = 2 };
inline constexpr uint32_t kArmModeMask = 3;

struct alignas(128) ControlLine {
  SharedWord<uint64_t> gate;
  SharedWord<uint32_t> armed;
  SharedWord<uint32_t> sends_armed;  // 1: our sends wait for the peer asleep
};

/// Written by the owner with each message drained and each receive posted.
struct alignas(128) CreditLine {
  SharedWord<uint64_t> drained_slots;
  SharedWord<uint64_t> drained_bytes;
  SharedWord<uint64_t> posted;   // receives, since the start
  SharedWord<uint32_t> refused;  // wishes that met an empty SRQ, since the start
};

/// Written by the peer around each copy to or from the owner's memory: odd while it copies.
struct alignas(128) ActivityLine {
  SharedWord<uint64_t> active;
  SharedWord<uint32_t> key;      // the rkey of the copy; changes only while `active` is even
  SharedWord<uint32_t> retries;  // of wishes that were refused, since the start
};

/// The copy under way that resolved `key`: the count that names it, odd; 0 if there is none. A key
/// of 0 (kEveryKey), which no MR has: whatever it resolved.
inline constexpr uint32_t kAnyKey = 0;
inline uint64_t copy_under_way(const ActivityLine& activity, uint32_t key) {
  const uint64_t copy = activity.active.load(std::memory_order_acquire);
  if ((copy & 1) == 0) return 0;
  if (key == kAnyKey) return copy;
  const uint32_t resolved = activity.key.load(std::memory_order_acquire);
  // The key is of this copy only while the counter stands. If it moved, this copy has ended, and
  // those behind it began after the fence.
  if (activity.active.load(std::memory_order_relaxed) != copy) return 0;
  return resolved == key ? copy : 0;
}

struct SegmentHead {
  ControlLine control;
  CreditLine credit;
  ActivityLine activity;
};
static_assert(sizeof(SegmentHead) == 384);

// --- slots: written by the peer

enum class SlotKind : uint8_t {
  kSend = 1,      // a whole message or its last fragment; uses up a receive
  kFragment = 2,  // the same SEND goes on in the next slot
  kWriteImm = 3,  // the data has been placed; uses up a receive
  kFault = 4,     // the peer was refused, `length` is the status it got; `imm` is that for the next
                  // receive, or SUCCESS
  kWish = 5,      // the peer has a message and no receive; for owners whose receives are an SRQ's
};

inline constexpr uint8_t kSlotSolicited = 1;
inline constexpr uint8_t kSlotHasImm = 2;
inline constexpr uint8_t kSlotInvalidates = 4;  // of a SEND: the window whose key is `imm`
inline constexpr uint8_t kSlotFlags = 7;

inline constexpr uint32_t kSlotPayloadBytes = 48;

/// One cache line. `word` is stored last.
struct alignas(64) Slot {
  SharedWord<uint64_t> word;
  SharedWord<uint32_t> imm;     // network byte order, as in the work request
  SharedWord<uint32_t> length;  // of the whole message
  std::byte payload[kSlotPayloadBytes];
};
static_assert(sizeof(Slot) == 64);
static_assert(SharedWord<uint64_t>::is_always_lock_free);

/// The valid word of a slot.
struct SlotWord {
  uint32_t sequence = 0;  // position + 1
  SlotKind kind = SlotKind::kSend;
  uint8_t flags = 0;
  uint16_t bytes = 0;  // of the message that came with this slot, here or in the payload area

  constexpr uint64_t pack() const {
    return sequence | uint64_t{static_cast<uint8_t>(kind)} << 32 | uint64_t{flags} << 40 |
           uint64_t{bytes} << 48;
  }
  static constexpr SlotWord unpack(uint64_t word) {
    SlotWord slot;
    slot.sequence = static_cast<uint32_t>(word);
    slot.kind = static_cast<SlotKind>(word >> 32 & 0xff);
    slot.flags = static_cast<uint8_t>(word >> 40);
    slot.bytes = static_cast<uint16_t>(word >> 48);
    return slot;
  }
};

/// In `lengths`: a receive whose memory may not be written.
inline constexpr uint32_t kUnusableReceive = 1U << 31;

// --- geometry

/// The sizes of one inbound segment, chosen by its owner, told and checked at connect.
struct Geometry {
  uint32_t slots = 0;          // a power of two
  uint32_t receives = 0;       // a power of two, at least max_recv_wr
  uint32_t payload_bytes = 0;  // a power of two
  uint32_t receive_keys = 0;   // told of each receive: max_recv_sge

  static constexpr uint32_t kSlotsMin = 16, kSlotsMax = 1U << 16;
  static constexpr uint32_t kReceivesMin = 16, kReceivesMax = 1U << 15;
  static constexpr uint32_t kPayloadMin = 4096, kPayloadMax = 1U << 17;
  static constexpr uint32_t kReceiveKeysMax = 16;

  /// Each receive can be answered by a slot without waiting for room, with half as many to spare
  /// for what uses up none.
  static constexpr Geometry for_receives(uint32_t max_recv_wr, uint32_t payload_bytes,
                                         uint32_t max_recv_sge = 0) {
    const uint32_t receives = std::max(max_recv_wr, kReceivesMin);
    return {.slots = std::bit_ceil(receives + receives / 2),
            .receives = std::bit_ceil(receives),
            .payload_bytes = payload_bytes,
            .receive_keys = max_recv_sge};
  }
  /// A payload area for four SENDs of `longest` bytes, at most the area given, which is also that
  /// for who does not know (0).
  static constexpr uint32_t payload_for(uint32_t longest_bytes, uint32_t most_bytes) {
    if (longest_bytes == 0 || longest_bytes >= most_bytes / 4) return most_bytes;
    return std::max(kPayloadMin, std::bit_ceil(4 * longest_bytes));
  }
  constexpr bool valid() const {
    return std::has_single_bit(slots) && slots >= kSlotsMin && slots <= kSlotsMax &&
           std::has_single_bit(receives) && receives >= kReceivesMin && receives <= kReceivesMax &&
           std::has_single_bit(payload_bytes) && payload_bytes >= kPayloadMin &&
           payload_bytes <= kPayloadMax && receive_keys <= kReceiveKeysMax;
  }

  static constexpr size_t lengths_offset() { return sizeof(SegmentHead); }
  /// Of what is told of one receive: its length, then its keys.
  constexpr size_t receive_words() const { return size_t{1} + receive_keys; }
  constexpr size_t slots_offset() const {
    return round_up(lengths_offset() + receives * receive_words() * 4, 128);
  }
  constexpr size_t payload_offset() const {
    return round_up(slots_offset() + slots * sizeof(Slot), 4096);
  }
  constexpr size_t total_bytes() const { return payload_offset() + payload_bytes; }
  /// A SEND above this goes in fragments.
  constexpr uint32_t fragment_bytes() const { return payload_bytes / 4; }

 private:
  static constexpr size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }
};
static_assert(Geometry::kPayloadMax / 4 <= UINT16_MAX);

/// A stretch of the payload area, by the rule that both sides follow: 64-byte steps, never across
/// the end.
struct PayloadCursor {
  uint64_t position = 0;  // bytes used since the start, with what was skipped

  /// Where `bytes` lie that come next; `after` is the position behind them.
  struct Place {
    uint64_t after;
    uint32_t offset;
  };
  constexpr Place place(uint32_t bytes, uint32_t area_bytes) const {
    const uint64_t rounded = (uint64_t{bytes} + 63) / 64 * 64;
    uint64_t begin = position;
    const uint64_t offset = begin & (area_bytes - 1);
    if (offset + rounded > area_bytes) begin += area_bytes - offset;
    return {.after = begin + rounded, .offset = static_cast<uint32_t>(begin & (area_bytes - 1))};
  }
};

/// Pointers into a mapped inbound segment. Borrows the memory.
class SegmentView {
 public:
  /// `base` has geometry.total_bytes(), aligned to a page; geometry is valid.
  SegmentView(std::byte* base, const Geometry& geometry) : base_(base), geometry_(geometry) {}

  const Geometry& geometry() const { return geometry_; }
  SegmentHead& head() const { return *reinterpret_cast<SegmentHead*>(base_); }
  SharedWord<uint32_t>& length_at(uint64_t receive) const {
    return reinterpret_cast<SharedWord<uint32_t>*>(
        base_ + Geometry::lengths_offset())[(receive & (geometry_.receives - 1)) *
                                            geometry_.receive_words()];
  }
  /// Of a part of the receive's memory, below geometry().receive_keys; 0: it has no more parts.
  SharedWord<uint32_t>& key_at(uint64_t receive, uint32_t part) const {
    return (&length_at(receive))[1 + part];
  }
  Slot& slot_at(uint64_t position) const {
    return reinterpret_cast<Slot*>(base_ +
                                   geometry_.slots_offset())[position & (geometry_.slots - 1)];
  }
  std::byte* payload() const { return base_ + geometry_.payload_offset(); }

 private:
  std::byte* base_;
  Geometry geometry_;
};

/// Counts the copies of a link within its own process: odd during one. Written by its thread.
struct CopyMark {
  std::atomic<uint64_t> activity{0};
};

}  // namespace braid::vhca::soft::inhost
