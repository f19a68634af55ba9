// A request that a front end has in flight, and the memory of those that come together.
//
//   region:  | head | payload .......... | head | payload .......... | ...
//              4 KiB  payload_bytes
//
// A payload starts at a page, so that disks which want aligned memory take it as it is; what a
// protocol puts before a payload is received into the end of the head.
//
// Threads: the reactor's, but create(), which gets all the memory, with its pages: on a worker, as
// it takes as long as the system is slow to find that much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/intrusive_list.h"
#include "base/pages.h"
#include "base/result.h"
#include "bnbd/block.h"
#include "bnbd/frontend/device_op.h"

namespace braid::bnbd {

/// One request from the kernel, from its arrival to its answer. A front end adds what it needs.
struct RequestSlot : base::ListNode {
  const Region* region = nullptr;
  std::byte* payload =
      nullptr;  // payload_bytes, in the region; kSlotHeadBytes before and behind it too
  DeviceOp operation;
};

/// Whole pages; what follows a payload for kSlotHeadBytes is in the region too.
inline constexpr size_t kSlotHeadBytes = 4096;
inline constexpr uint32_t kSlotPayloadMax = 1 << 20;

/// The payload of a slot for this device: what it takes at once, in whole pages, at most `most`.
uint32_t slot_payload_bytes(const BlockInfo& info, uint32_t most);

/// Slots that came together, in one region.
template <typename Slot>
class SlotPart {
 public:
  static base::Result<std::unique_ptr<SlotPart>> create(BlockDevice& device, unsigned count,
                                                        uint32_t payload_bytes) {
    const size_t slot_bytes = kSlotHeadBytes + payload_bytes;
    auto region = device.create_region(count * slot_bytes + 2 * kSlotHeadBytes);
    if (!region.ok()) return region.error().with("memory for {} requests", count);
    // Every page is there before I/O comes: memory may be short just when the kernel writes to us.
    BRAID_CHECK(base::populate({(*region)->data(), (*region)->size()}));
    return std::unique_ptr<SlotPart>(new SlotPart(std::move(region).value(), count, slot_bytes));
  }
  std::vector<Slot>& slots() { return slots_; }

 private:
  SlotPart(std::unique_ptr<Region> region, unsigned count, size_t slot_bytes)
      : region_(std::move(region)), slots_(count) {
    const auto begin = reinterpret_cast<uintptr_t>(region_->data());
    const size_t align = (kSlotHeadBytes - begin % kSlotHeadBytes) % kSlotHeadBytes;
    std::byte* next = region_->data() + align + kSlotHeadBytes;
    for (Slot& slot : slots_) {
      slot.region = region_.get();
      slot.payload = next;
      slot.operation.buffer = {.region = slot.region, .address = next};
      next += slot_bytes;
    }
  }

  const std::unique_ptr<Region> region_;
  std::vector<Slot> slots_;
};

}  // namespace braid::bnbd
