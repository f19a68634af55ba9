#include "vhca/soft/inhost/outbound_ring.h"

#include <algorithm>
#include <utility>

namespace braid::vhca::soft::inhost {

void gather(std::span<const Piece> pieces, uint32_t offset, uint32_t bytes, std::byte* target) {
  for (const Piece& piece : pieces) {
    if (bytes == 0) return;
    if (offset >= piece.length) {
      offset -= piece.length;
      continue;
    }
    const uint32_t part = std::min(bytes, piece.length - offset);
    copy_to_shared(target, piece.address + offset, part);
    target += part;
    bytes -= part;
    offset = 0;
  }
}

/// Reads what the peer publishes. False if it cannot be true.
bool OutboundRing::refresh() {
  const CreditLine& credit = view_.head().credit;
  const uint64_t posted = credit.posted.load(std::memory_order_acquire);
  const uint64_t slots = credit.drained_slots.load(std::memory_order_acquire);
  const uint64_t bytes = credit.drained_bytes.load(std::memory_order_acquire);
  const uint32_t refused = credit.refused.load(std::memory_order_acquire);
  // Unsigned differences: a value that went backwards is far out of range as well.
  const bool sane = posted - posted_ <= view_.geometry().receives &&
                    posted - consumed_ <= view_.geometry().receives &&
                    slots - drained_slots_ <= tail_ - drained_slots_ &&
                    bytes - drained_bytes_ <= cursor_.position - drained_bytes_ &&
                    refused - refused_ <= retries_ + (wishing_ ? 1 : 0) - refused_;
  if (!sane) {
    broken_ = true;
    return false;
  }
  if (posted != posted_) wishing_ = refusal_told_ = false;  // granted
  posted_ = posted;
  drained_slots_ = slots;
  drained_bytes_ = bytes;
  refused_ = refused;
  return true;
}

OutboundRing::Room OutboundRing::refresh_for_message() {
  if (broken_ || !refresh()) return Room::kBroken;
  if (consumed_ == posted_) return shares_receives_ ? ask() : Room::kNoReceive;
  return tail_ - drained_slots_ < view_.geometry().slots - 1 ? Room::kReady : Room::kFull;
}

/// A wish for a receive is put into the ring, stands there, or was refused.
OutboundRing::Room OutboundRing::ask() {
  if (!wishing_) {
    if (tail_ - drained_slots_ >= view_.geometry().slots - 1) return Room::kFull;
    publish(SlotKind::kWish, 0, 0, 0, 0);
    wishing_ = asked_ = true;
    return Room::kFull;
  }
  if (refused_ == retries_) return Room::kFull;  // no answer yet
  if (!std::exchange(refusal_told_, true)) return Room::kNoReceive;
  refusal_told_ = false;
  asked_ = true;
  view_.head().activity.retries.store(++retries_, std::memory_order_release);
  return Room::kFull;
}

OutboundRing::Receive OutboundRing::next_receive() {
  const uint32_t word = view_.length_at(consumed_).load(std::memory_order_relaxed);
  return {.capacity_bytes = word & ~kUnusableReceive, .usable = (word & kUnusableReceive) == 0};
}

/// A slot and `bytes` of the payload area.
OutboundRing::Room OutboundRing::reserve(uint32_t bytes, PayloadCursor::Place& place) {
  const Geometry& geometry = view_.geometry();
  place = cursor_.place(bytes, geometry.payload_bytes);
  for (bool again = false;; again = true) {
    const bool slot_free = tail_ - drained_slots_ < geometry.slots - 1;
    if (slot_free && place.after - drained_bytes_ <= geometry.payload_bytes) return Room::kReady;
    if (again) return Room::kFull;
    if (broken_ || !refresh()) return Room::kBroken;
  }
}

OutboundRing::Room OutboundRing::push_send(const Request& request, uint8_t flags) {
  if (!in_fragments()) {
    if (const Room room = ready(); room != Room::kReady) return room;
  }
  if (request.length <= kSlotPayloadBytes) {
    gather(request.pieces, 0, request.length, view_.slot_at(tail_).payload);
    ++consumed_;
    publish(SlotKind::kSend, flags, request.length, request.imm, request.length);
    return Room::kReady;
  }
  do {
    const uint32_t left = request.length - fragment_offset_;
    const uint32_t bytes = std::min(left, view_.geometry().fragment_bytes());
    PayloadCursor::Place place;
    if (const Room room = reserve(bytes, place); room != Room::kReady) return room;
    gather(request.pieces, fragment_offset_, bytes, view_.payload() + place.offset);
    cursor_.position = place.after;
    fragment_offset_ += bytes;
    const bool last = bytes == left;
    if (last) ++consumed_;
    publish(last ? SlotKind::kSend : SlotKind::kFragment, flags, bytes, request.imm,
            request.length);
  } while (fragment_offset_ < request.length);
  fragment_offset_ = 0;
  return Room::kReady;
}

void OutboundRing::push_fault(ibv_wc_status status, ibv_wc_status for_receive) {
  if (std::exchange(faulted_, true)) return;
  publish(SlotKind::kFault, 0, 0, static_cast<uint32_t>(for_receive),
          static_cast<uint32_t>(status));
}

/// A look that comes late sees the arming after that at which its message was taken. For that one
/// there is nothing to signal yet, and it gives only one signal. What is not drained by then the
/// peer finds while it is armed.
bool OutboundRing::must_signal_armed(uint32_t armed, bool solicited) {
  const bool asked = (armed & kArmModeMask) != static_cast<uint32_t>(ArmMode::kSolicited);
  if (!(asked || solicited) || armed == signalled_) return false;
  if (view_.head().credit.drained_slots.load(std::memory_order_acquire) == tail_) return false;
  signalled_ = armed;
  return true;
}

}  // namespace braid::vhca::soft::inhost
