#include "vhca/soft/inhost/inbound_ring.h"

#include <cstring>
#include <utility>

namespace braid::vhca::soft::inhost {

InboundRing::InboundRing(const SegmentView& view, bool shares_receives)
    : view_(view), shares_receives_(shares_receives), capacities_(view.geometry().receives) {}

void InboundRing::post(uint32_t length_bytes, bool usable, std::span<const uint32_t> keys) {
  BRAID_ASSERT(posted_ - consumed_ < capacities_.size() && length_bytes < kUnusableReceive);
  capacities_[posted_ & (capacities_.size() - 1)] = length_bytes;
  const uint32_t word = length_bytes | (usable ? 0 : kUnusableReceive);
  view_.length_at(posted_).store(word, std::memory_order_relaxed);
  const uint32_t parts = view_.geometry().receive_keys;
  BRAID_ASSERT(keys.size() <= parts);
  for (uint32_t part = 0; part < parts; ++part) {
    const uint32_t key = part < keys.size() ? keys[part] : 0;
    view_.key_at(posted_, part).store(key, std::memory_order_relaxed);
  }
  view_.head().credit.posted.store(++posted_, std::memory_order_release);
  if (std::exchange(wished_, false)) drain_slot();
}

void InboundRing::refuse_wish() {
  wished_ = false;
  view_.head().credit.refused.store(++refused_, std::memory_order_release);
}

Next InboundRing::broken(std::string_view rule) {
  broken_rule_ = rule;
  return Next::kBroken;
}

/// The data of a write lies in the sender's cache; whoever is told of it will look soon. A prefetch
/// of any address is harmless.
static void prefetch_data(const Slot& slot, uint32_t length) {
  uint64_t address = 0;
  std::memcpy(&address, slot.payload, sizeof(address));
  if (length == 0) return;
  __builtin_prefetch(reinterpret_cast<const void*>(address));
  __builtin_prefetch(reinterpret_cast<const void*>(address + length - 1));
}

Next InboundRing::next_slot(uint64_t raw, Arrival& arrival) {
  if (!broken_rule_.empty()) return Next::kBroken;
  for (;;) {
    const SlotWord word = SlotWord::unpack(raw);
    const Slot& slot = view_.slot_at(head_);
    const uint32_t imm = slot.imm.load(std::memory_order_relaxed);
    const uint32_t length = slot.length.load(std::memory_order_relaxed);
    if ((word.flags & ~kSlotFlags) != 0) return broken("a slot with unknown flags");
    arrival.solicited = (word.flags & kSlotSolicited) != 0;
    arrival.has_imm = (word.flags & kSlotHasImm) != 0;
    arrival.invalidates = (word.flags & kSlotInvalidates) != 0;
    arrival.imm = imm;
    arrival.length = length;
    arrival.payload = {};
    cursor_after_ = cursor_.position;
    switch (word.kind) {
      case SlotKind::kWriteImm:
        if (word.bytes != 0 || !arrival.has_imm || arrival.invalidates || !assembled_.empty()) {
          return broken("an RDMA write with payload or key, without immediate or inside of a SEND");
        }
        if (consumed_ == posted_) return broken("a message without a receive");
        prefetch_data(slot, length);
        arrival.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
        return Next::kArrival;
      case SlotKind::kSend:
        if (consumed_ == posted_) return broken("a message without a receive");
        if (!take_payload(word, slot, length, arrival))
          return broken("a SEND of impossible length");
        arrival.opcode = IBV_WC_RECV;
        return Next::kArrival;
      case SlotKind::kFragment:
        if (consumed_ == posted_) return broken("a message without a receive");
        if (!take_fragment(word, length)) return broken("a fragment of impossible length");
        drain_slot();
        break;
      case SlotKind::kFault:
        if (imm != IBV_WC_SUCCESS && imm != IBV_WC_LOC_LEN_ERR && imm != IBV_WC_LOC_PROT_ERR) {
          return broken("a fault of unknown status");
        }
        if (length != IBV_WC_REM_INV_REQ_ERR && length != IBV_WC_REM_ACCESS_ERR &&
            length != IBV_WC_REM_OP_ERR) {
          return broken("a fault of unknown cause");
        }
        arrival.fault = static_cast<ibv_wc_status>(imm);
        arrival.refused = static_cast<ibv_wc_status>(length);
        return Next::kFault;
      case SlotKind::kWish:
        return take_wish(word);
      default:
        return broken("a slot of unknown kind");
    }
    raw = view_.slot_at(head_).word.load(std::memory_order_acquire);
    if (static_cast<uint32_t>(raw) != static_cast<uint32_t>(head_ + 1)) return Next::kNone;
  }
}

/// The payload of a whole message: in the slot, in the payload area, or the end of an assembled
/// one.
bool InboundRing::take_payload(const SlotWord& word, const Slot& slot, uint32_t length,
                               Arrival& arrival) {
  if (length <= kSlotPayloadBytes) {
    if (word.bytes != length || !assembled_.empty()) return false;
    arrival.payload = {slot.payload, length};
    return true;
  }
  const uint32_t capacity = capacities_[consumed_ & (capacities_.size() - 1)];
  if (length > capacity || word.bytes > view_.geometry().fragment_bytes()) return false;
  const PayloadCursor::Place place = cursor_.place(word.bytes, view_.geometry().payload_bytes);
  cursor_after_ = place.after;
  if (assembled_whole_) {  // next() was called again before pop()
    arrival.payload = assembled_;
    return assembled_.size() == length;
  }
  if (assembled_.size() + word.bytes != length) return false;
  const std::byte* bytes = view_.payload() + place.offset;
  if (assembled_.empty()) {
    arrival.payload = {bytes, length};
    return true;
  }
  assembled_.insert(assembled_.end(), bytes, bytes + word.bytes);
  assembled_whole_ = true;
  arrival.payload = assembled_;
  return true;
}

bool InboundRing::take_fragment(const SlotWord& word, uint32_t length) {
  const uint32_t capacity = capacities_[consumed_ & (capacities_.size() - 1)];
  if (length > capacity || word.bytes == 0 || word.bytes > view_.geometry().fragment_bytes() ||
      assembled_.size() + word.bytes >= length) {
    return false;
  }
  const PayloadCursor::Place place = cursor_.place(word.bytes, view_.geometry().payload_bytes);
  cursor_after_ = place.after;
  if (assembled_.empty()) assembled_.reserve(length);
  const std::byte* bytes = view_.payload() + place.offset;
  assembled_.insert(assembled_.end(), bytes, bytes + word.bytes);
  return true;
}

/// One that was refused waits in its slot until the peer retries.
Next InboundRing::take_wish(const SlotWord& word) {
  if (!shares_receives_ || consumed_ != posted_ || word.bytes != 0 || !assembled_.empty()) {
    return broken("a wish for a receive where none may be");
  }
  const uint32_t retries = view_.head().activity.retries.load(std::memory_order_acquire);
  if (retries == refused_) {
    wished_ = true;
    return Next::kWish;
  }
  return retries + 1 == refused_ ? Next::kNone : broken("a retry of what was not refused");
}

/// Gives the slot at the head, and its part of the payload area, back to the peer.
void InboundRing::drain_slot() {
  ++head_;
  cursor_.position = cursor_after_;
  CreditLine& credit = view_.head().credit;
  credit.drained_bytes.store(cursor_.position, std::memory_order_release);
  credit.drained_slots.store(head_, std::memory_order_release);
}

void InboundRing::pop() {
  ++consumed_;
  assembled_.clear();
  assembled_whole_ = false;
  drain_slot();
}

void InboundRing::arm(ArmMode mode) {
  if (mode == ArmMode::kPolls && (armed_ & kArmModeMask) == 0) return;
  armed_ = (armed_ & ~kArmModeMask) + (kArmModeMask + 1) + static_cast<uint32_t>(mode);
  // Release: who sees it sees what was drained before.
  view_.head().control.armed.store(armed_, std::memory_order_release);
}

}  // namespace braid::vhca::soft::inhost
