#include "bnbd/server/door.h"

#include <algorithm>

namespace braid::bnbd::server {

using base::Errc;

bool Door::keeps_control(RequestSlot& slot) {
  DoorPlace& place = slot.pool->session.door;
  if (!several_ && place.control.empty()) return false;
  put(slot, place.control);
  return true;
}

bool Door::keeps_handed_over(RequestSlot& slot) {
  DoorPlace& place = slot.pool->session.door;
  if (!several_ && place.handed_over.empty()) return false;
  put(slot, place.handed_over);
  return true;
}

bool Door::keeps_long(RequestSlot& slot) {
  const BlockRequest& block = slot.block;
  if (!several_ || !slot.device->exported.works_inside_submit) return false;
  if (block.length_bytes <= kPartBytes || block.op == BlockOp::kRead) return false;
  slot.left_bytes = block.length_bytes;
  slot.status = Errc::kOk;
  put(slot, slot.pool->session.door.in_parts);
  return true;
}

void Door::put(RequestSlot& slot, base::IntrusiveList<RequestSlot>& where) {
  where.push_back(slot);
  DoorPlace& place = slot.pool->session.door;
  if (!place.linked()) places_.push_back(place);
  if (!base::Poller::linked()) home_.add(*this);
}

bool Door::poll() {
  bool did = false;
  for (unsigned left = several_ ? kTurn : kTurnsOfOne * kTurn; left > 0; did = true) {
    DoorPlace* const place = places_.pop_front();
    if (place == nullptr) break;
    left -= std::min(left, serve(*place));
  }
  return did;
}

/// All is in order before anything is done: its end may bring the session's. What it is worth.
unsigned Door::serve(DoorPlace& place) {
  RequestSlot* const control = place.control.pop_front();
  RequestSlot* const whole = control != nullptr ? nullptr : place.handed_over.pop_front();
  RequestSlot* part = nullptr;
  if (control == nullptr && whole == nullptr) {
    part = place.in_parts.front();
    if (part->left_bytes <= kPartBytes) place.in_parts.pop_front();
  }
  if (!place.empty()) places_.push_back(place);
  if (places_.empty()) base::Poller::unlink();
  if (whole != nullptr) return user_.do_handed_over(*whole), 1;
  if (control != nullptr) {
    user_.do_control(*control);
  } else {
    do_part(*part);
  }
  return kTurn;
}

void Door::do_part(RequestSlot& slot) {
  BlockRequest& whole = slot.block;
  const uint64_t done_bytes = whole.length_bytes - slot.left_bytes;
  BlockRequest part;  // may lie here, as it ends inside submit()
  part.op = whole.op;
  part.force_unit_access = whole.force_unit_access;
  part.preflush = whole.preflush;
  part.no_unmap = whole.no_unmap;
  part.offset_bytes = whole.offset_bytes + done_bytes;
  part.length_bytes = std::min(slot.left_bytes, kPartBytes);
  if (whole.buffer.address != nullptr) part.buffer.address = whole.buffer.address + done_bytes;
  part.context = &slot;
  part.done = [](BlockRequest& ended, Errc status) {
    auto& its = *static_cast<RequestSlot*>(ended.context);
    its.left_bytes -= ended.length_bytes;
    if (status != Errc::kOk) its.status = status;
  };
  slot.device->exported.device->submit(part);
  BRAID_ASSERT(slot.left_bytes + done_bytes + part.length_bytes == whole.length_bytes);
  if (slot.left_bytes == 0) whole.done(whole, slot.status);
}

}  // namespace braid::bnbd::server
