#include "bnbd/server/door.h"

#include <algorithm>
#include <utility>

namespace braid::bnbd::server {

using base::Errc;

std::shared_ptr<DoorPlace> Door::place_of(const std::string& client) {
  std::erase_if(clients_, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<DoorPlace>& its = clients_[client];
  std::shared_ptr<DoorPlace> place = its.lock();
  if (!place) its = place = std::make_shared<DoorPlace>();
  return place;
}

bool Door::keeps_control(RequestSlot& slot) {
  DoorPlace& place = slot.pool->session.door();
  if (!several_ && place.control.empty()) return false;
  put(slot, place.control);
  return true;
}

bool Door::keeps_handed_over(RequestSlot& slot) {
  DoorPlace& place = slot.pool->session.door();
  if (!several_ && place.handed_over.empty()) return false;
  put(slot, place.handed_over);
  return true;
}

bool Door::keeps_long(RequestSlot& slot) {
  const BlockRequest& block = slot.block;
  if (!several_ || !slot.device->exported.works_inside_submit) return false;
  if (block.op == BlockOp::kRead || block.op == BlockOp::kFlush) return false;
  begin_turn();
  const uint64_t pages = pages_of(block.length_bytes);
  if (pages <= left_ && slot.pool->session.door().in_parts.empty()) return spend(pages), false;
  slot.left_bytes = block.length_bytes;
  slot.status = Errc::kOk;
  put(slot, slot.pool->session.door().in_parts);
  return true;
}

void Door::put(RequestSlot& slot, base::IntrusiveList<RequestSlot>& where) {
  where.push_back(slot);
  stand_in_line(slot.pool->session.door());
}

void Door::stand_in_line(DoorPlace& place) {
  if (!place.linked()) places_.push_back(place);
  if (!base::Poller::linked()) home_.add(*this);
}

void Door::begin_turn() {
  if (turn_ns_ == home_.now_ns()) return;
  turn_ns_ = home_.now_ns();
  left_ = kTurn;
}

bool Door::poll() {
  begin_turn();
  DoorPlace* place = places_.pop_front();  // one at least, or who waits might wait for ever
  if (place == nullptr) return false;
  do {
    serve(*place);
  } while (left_ > 0 && (place = places_.pop_front()) != nullptr);
  return true;
}

/// All is in order before anything is done: its end may bring the session's.
void Door::serve(DoorPlace& place) {
  base::Resumable* const task = place.going_on.pop_front();
  RequestSlot* const control = task != nullptr ? nullptr : place.control.pop_front();
  RequestSlot* whole = nullptr;
  RequestSlot* part = nullptr;
  if (task == nullptr && control == nullptr) whole = place.handed_over.pop_front();
  if (task == nullptr && control == nullptr && whole == nullptr) {
    part = place.in_parts.front();
    if (part != nullptr && part->left_bytes <= kPartBytes) place.in_parts.pop_front();
  }
  if (!place.empty()) places_.push_back(place);
  if (places_.empty()) base::Poller::unlink();
  if (task != nullptr) {
    spend(kTurn);
    task->handle.resume();
  } else if (control != nullptr) {
    spend(kTurn);
    user_.do_control(*control);
  } else if (whole != nullptr) {
    spend(1);
    user_.do_handed_over(*whole);
  } else if (part != nullptr) {  // a task that stood here may be gone
    spend(pages_of(std::min(part->left_bytes, kPartBytes)));
    do_part(*part);
  }
}

uint64_t Door::pages_of(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes;
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
