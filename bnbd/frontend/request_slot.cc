#include "bnbd/frontend/request_slot.h"

#include <algorithm>

namespace braid::bnbd {

uint32_t slot_payload_bytes(const BlockInfo& info, uint32_t most) {
  constexpr uint32_t kPage = 4096;
  const uint32_t wanted = std::min(info.max_io_bytes, most);
  // A device that takes less than a page at once gets pages in pieces (DeviceOp).
  return std::max(wanted - wanted % kPage, kPage);
}

}  // namespace braid::bnbd
