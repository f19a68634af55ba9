// One inbound segment at a fixed address, with the rings of both ends.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "tests/explore/world.h"
#include "vhca/soft/inhost/inbound_ring.h"
#include "vhca/soft/inhost/outbound_ring.h"

namespace braid::explore {

namespace inhost = vhca::soft::inhost;
namespace soft = vhca::soft;

inline constexpr inhost::Geometry kGeometry = inhost::Geometry::for_receives(16, 4096);

/// A zero-filled page-aligned area that each run uses again.
template <size_t kBytes, int kWhich = 0>
std::byte* fresh_area() {
  alignas(4096) static std::byte area[kBytes];
  std::memset(area, 0, kBytes);
  return area;
}

/// Two segments at a time must differ in `kWhich`.
template <int kWhich = 0>
class Segment {
 public:
  explicit Segment(World& world, bool heavy_fence_exists = true, bool shares_receives = false)
      : base_(fresh_area<kGeometry.total_bytes(), kWhich>()),
        view(base_, kGeometry),
        inbound(view, shares_receives),
        outbound(view, mark, heavy_fence_exists, shares_receives) {
    world.share(base_, kGeometry.total_bytes());
    for (uint64_t i = 0; i < kGeometry.slots; ++i) {
      world.name_place("slot", &view.slot_at(i), sizeof(inhost::Slot));
    }
    world.name_place("posted", &view.head().credit.posted, sizeof(uint64_t));
    world.name_place("activity", &view.head().activity, sizeof(inhost::ActivityLine));
  }
  /// Whether the bytes lie in the payload area or a slot.
  bool holds(std::span<const std::byte> bytes) const {
    return bytes.data() >= base_ && bytes.size() <= kGeometry.total_bytes() &&
           bytes.data() + bytes.size() <= base_ + kGeometry.total_bytes();
  }

 private:
  std::byte* const base_;
  inhost::CopyMark mark;  // NOLINT: as the ring under test names it

 public:
  inhost::SegmentView view;
  inhost::InboundRing inbound;
  inhost::OutboundRing outbound;
};

}  // namespace braid::explore
