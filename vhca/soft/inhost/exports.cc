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

MrPlace Exports::place(const std::byte* address, uint64_t length_bytes) {
  base::Segment* const segment = host_.find_segment(address, length_bytes);
  if (segment == nullptr) return {};
  const std::lock_guard lock(mutex_);
  const auto offset = static_cast<uint64_t>(address - segment->data());
  for (Export& known : exports_) {
    if (known.segment != segment) continue;
    ++known.mrs;
    return {.segment = known.id, .offset = offset};
  }
  if (exports_.size() >= kSegmentsMax) {
    host_.log().warning(
        "more than {} segments hold registered memory: peers reach this one by "
        "system calls",
        kSegmentsMax);
    return {};
  }
  const uint32_t id = choose_id_locked();
  exports_.push_back({.id = id, .segment = segment, .mrs = 1});
  tell_all_locked(announcement(CmKind::kSegment, id, segment->size()), &segment->handle());
  return {.segment = id, .offset = offset};
}

/// The next id whose place in the peers' tables is free.
uint32_t Exports::choose_id_locked() {
  const auto taken = [this](uint32_t id) {
    return std::any_of(exports_.begin(), exports_.end(), [id](const Export& known) {
      return known.id % kSegmentsMax == id % kSegmentsMax;
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
  if (--found->mrs != 0) return;
  exports_.erase(found);
  tell_all_locked(announcement(CmKind::kRetire, place.segment, 0), nullptr);
}

void Exports::tell_all_locked(const CmMessage& message, const base::Handle* handle) {
  const std::span<const base::Handle* const> handles(&handle, handle == nullptr ? 0 : 1);
  for (const auto& channel : channels_) {
    const Status sent = channel->send(message, handles);
    if (sent.ok() || sent.error().code() == Errc::kDisconnected) continue;
    // A peer that has not read hundreds of announcements cannot be told of what comes next.
    channel->fail(sent.error().with("cannot announce a memory segment").message());
  }
}

Status Exports::join(std::shared_ptr<Channel> channel) {
  const std::lock_guard lock(mutex_);
  for (const Export& known : exports_) {
    const base::Handle* const handle = &known.segment->handle();
    BRAID_CHECK(channel->send(announcement(CmKind::kSegment, known.id, known.segment->size()),
                              {&handle, 1}));
  }
  channels_.push_back(std::move(channel));
  return {};
}

void Exports::leave(const Channel& channel) {
  const std::lock_guard lock(mutex_);
  std::erase_if(channels_, [&channel](const auto& each) { return each.get() == &channel; });
}

}  // namespace braid::vhca::soft::inhost
