#include "vhca/soft/inhost/exports.h"

#include <algorithm>

#include "base/log.h"

namespace braid::vhca::soft::inhost {

using base::Errc;
using base::Status;

namespace {

CmMessage announcement(CmKind kind, uint32_t id, uint64_t size_bytes) {
  CmMessage message;
  message.kind = kind;
  message.segment = {.id = id, .size_bytes = size_bytes};
  return message;
}

}  // namespace

Exports::Member* Exports::Export::find(uint32_t pd) {
  const auto found = std::find_if(members.begin(), members.end(),
                                  [pd](const Member& member) { return member.pd == pd; });
  return found != members.end() ? &*found : nullptr;
}

bool Exports::Export::in_use() const {
  return std::any_of(members.begin(), members.end(),
                     [](const Member& member) { return member.mrs > 0; });
}

MrPlace Exports::place(const std::byte* address, uint64_t length_bytes, uint32_t pd) {
  base::Segment* const segment = host_.find_segment(address, length_bytes);
  if (segment == nullptr) return {};
  const std::lock_guard lock(mutex_);
  const auto offset = static_cast<uint64_t>(address - segment->data());
  auto known = std::find_if(exports_.begin(), exports_.end(),
                            [segment](const Export& each) { return each.segment == segment; });
  if (known == exports_.end() && exports_.size() >= kSegmentsMax) {
    host_.log().warning(
        "more than {} segments hold registered memory: peers reach this one by "
        "system calls",
        kSegmentsMax);
    return {};
  }
  if (known == exports_.end()) {
    exports_.push_back({.id = choose_id_locked(), .segment = segment, .members = {}});
    known = exports_.end() - 1;
  }
  if (Member* const member = known->find(pd)) {
    ++member->mrs;
  } else {
    known->members.push_back({.pd = pd, .mrs = 1});
    tell_locked(pd, announcement(CmKind::kSegment, known->id, segment->size()), &segment->handle());
  }
  return {.segment = known->id, .offset = offset, .pd = pd};
}

/// The next id whose place in the peers' tables is free. Those of older versions are smaller.
uint32_t Exports::choose_id_locked() {
  const uint32_t places = exports_.size() < kSegmentsOfOlder ? kSegmentsOfOlder : kSegmentsMax;
  const auto taken = [this, places](uint32_t id) {
    return std::any_of(exports_.begin(), exports_.end(), [id, places](const Export& known) {
      return known.id % places == id % places;
    });
  };
  while (taken(next_id_)) ++next_id_;
  return next_id_++;
}

void Exports::release(const MrPlace& place) {
  if (place.segment == kForeignMemory) return;
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(exports_.begin(), exports_.end(), [&place](const Export& known) {
    return known.id == place.segment;
  });
  BRAID_ASSERT(found != exports_.end());
  Member* const member = found->find(place.pd);
  BRAID_ASSERT(member != nullptr && member->mrs > 0);
  if (--member->mrs > 0) return;
  if (!found->in_use()) {
    for (const Member& each : found->members) {
      tell_locked(each.pd, announcement(CmKind::kRetire, place.segment, 0), nullptr);
    }
    exports_.erase(found);
  } else if (!anybody_locked(place.pd)) {
    std::erase_if(found->members, [&place](const Member& each) { return each.pd == place.pd; });
  }
}

bool Exports::anybody_locked(uint32_t pd) const {
  return std::any_of(channels_.begin(), channels_.end(),
                     [pd](const Joined& joined) { return joined.pd == pd; });
}

void Exports::tell_locked(uint32_t pd, const CmMessage& message, const base::Handle* handle) {
  const std::span<const base::Handle* const> handles(&handle, handle == nullptr ? 0 : 1);
  for (const Joined& joined : channels_) {
    if (joined.pd != pd) continue;
    const Status sent = joined.channel->send(message, handles);
    if (sent.ok() || sent.error().code() == Errc::kDisconnected) continue;
    // A peer that has not read hundreds of announcements cannot be told of what comes next.
    joined.channel->fail(sent.error().with("cannot announce a memory segment").message());
  }
}

Status Exports::join(std::shared_ptr<Channel> channel, uint32_t pd, Told& told) {
  const std::lock_guard lock(mutex_);
  Told gone = told;
  for (Export& known : exports_) {
    if (known.find(pd) == nullptr) continue;  // not any more, if it was told
    gone.erase(known.id);
    if (told.contains(known.id)) continue;
    const base::Handle* const handle = &known.segment->handle();
    BRAID_CHECK(channel->send(announcement(CmKind::kSegment, known.id, known.segment->size()),
                              {&handle, 1}));
    told.insert(known.id);
  }
  for (const uint32_t id : gone) {
    BRAID_CHECK(channel->send(announcement(CmKind::kRetire, id, 0)));
    told.erase(id);
  }
  channels_.push_back({std::move(channel), pd});
  return {};
}

void Exports::leave(const Channel& channel) {
  const std::lock_guard lock(mutex_);
  const auto left = std::find_if(channels_.begin(), channels_.end(), [&](const Joined& joined) {
    return joined.channel.get() == &channel;
  });
  if (left == channels_.end()) return;
  const uint32_t pd = left->pd;
  channels_.erase(left);
  if (anybody_locked(pd)) return;
  for (Export& known : exports_) {
    std::erase_if(known.members,
                  [pd](const Member& each) { return each.pd == pd && each.mrs == 0; });
  }
}

}  // namespace braid::vhca::soft::inhost
