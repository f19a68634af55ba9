// The fixed set of requests that a front end has in flight, and their memory.
//
//   region:  | head | payload .......... | head | payload .......... | ...
//              4 KiB  payload_bytes
//
// A payload starts at a page, so that disks which want aligned memory take it as it is; what a
// protocol puts before a payload is received into the end of the head.
//
// Threads: the reactor's, but in_use() and create(), which gets and touches all the memory: on a
// worker, as it takes as long as the system is slow to find that much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/intrusive_list.h"
#include "base/result.h"
#include "bnbd/block.h"
#include "bnbd/frontend/device_op.h"
#include "bnbd/frontend/offloaded.h"

namespace braid::bnbd {

/// One request from the kernel, from its arrival to its answer. A front end adds what it needs.
struct RequestSlot : base::ListNode {
  std::byte* payload =
      nullptr;  // payload_bytes, in the pool's region; kSlotHeadBytes before it too
  DeviceOp operation;
};

/// Whole pages; what follows a payload for kSlotHeadBytes is in the region too.
inline constexpr size_t kSlotHeadBytes = 4096;
inline constexpr uint32_t kSlotPayloadMax = 1 << 20;

/// The payload of a slot for this device: what it takes at once, in whole pages, at most 1 MiB.
uint32_t slot_payload_bytes(const BlockInfo& info);

template <typename Slot>
class SlotPool {
 public:
  static base::Result<std::unique_ptr<SlotPool>> create(BlockDevice& device, unsigned count) {
    return create(device, count, slot_payload_bytes(device.info()));
  }
  static base::Result<std::unique_ptr<SlotPool>> create(BlockDevice& device, unsigned count,
                                                        uint32_t payload_bytes) {
    const size_t slot_bytes = kSlotHeadBytes + payload_bytes;
    auto region = device.create_region(count * slot_bytes + 2 * kSlotHeadBytes);
    if (!region.ok()) return region.error().with("memory for {} requests", count);
    return std::unique_ptr<SlotPool>(
        new SlotPool(std::move(region).value(), count, payload_bytes, slot_bytes));
  }

  uint32_t payload_bytes() const { return payload_bytes_; }
  const Region* region() const { return region_.get(); }
  unsigned in_use() const { return base::read_shared(in_use_); }
  bool empty() const { return free_.empty(); }
  std::vector<Slot>& all() { return slots_; }

  /// A free slot, or null.
  Slot* acquire() {
    Slot* const slot = free_.pop_front();
    if (slot != nullptr) base::add_shared(in_use_, 1);
    return slot;
  }
  void release(Slot& slot) {
    base::subtract_shared(in_use_, 1);
    free_.push_front(slot);  // the one whose memory is warm
  }

 private:
  SlotPool(std::unique_ptr<Region> region, unsigned count, uint32_t payload_bytes,
           size_t slot_bytes)
      : region_(std::move(region)), payload_bytes_(payload_bytes), slots_(count) {
    const auto begin = reinterpret_cast<uintptr_t>(region_->data());
    const size_t align = (kSlotHeadBytes - begin % kSlotHeadBytes) % kSlotHeadBytes;
    std::byte* next = region_->data() + align + kSlotHeadBytes;
    for (Slot& slot : slots_) {
      slot.payload = next;
      slot.operation.buffer.region = region_.get();
      slot.operation.buffer.address = next;
      free_.push_back(slot);
      next += slot_bytes;
    }
    // Every page is there before I/O starts: memory may be short just when the kernel writes to us.
    for (size_t at = 0; at < region_->size(); at += kSlotHeadBytes) {
      *const_cast<volatile std::byte*>(region_->data() + at) = std::byte{0};
    }
  }

  std::unique_ptr<Region> region_;
  const uint32_t payload_bytes_;
  unsigned in_use_ = 0;
  std::vector<Slot> slots_;
  base::IntrusiveList<Slot> free_;
};

/// The requests of a front end's server, made where that holds nobody up. `device` outlives it.
template <typename Server>
base::Task<base::Result<std::unique_ptr<SlotPool<typename Server::Slot>>>> make_slots(
    base::Reactor& reactor, BlockDevice& device, unsigned count) {
  using Pool = SlotPool<typename Server::Slot>;
  // The device's properties are its reactor's.
  const uint32_t payload_bytes = slot_payload_bytes(device.info());
  std::function<base::Result<std::unique_ptr<Pool>>()> make = [&device, count, payload_bytes] {
    return Pool::create(device, count, payload_bytes);
  };
  co_return co_await offloaded(reactor, std::move(make));
}

}  // namespace braid::bnbd
