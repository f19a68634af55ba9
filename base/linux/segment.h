// Shared memory segments over memfds, and the table that finds a segment by address.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>

#include "base/host.h"

namespace braid::base {

/// The segments made by this process, by address. Any thread. Outlives its segments.
class SegmentTable {
 public:
  Result<std::unique_ptr<Segment>> create(size_t size_bytes, std::string_view purpose);
  Segment* find(const void* address, size_t length) const;

 private:
  class Owned;
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, Segment*> by_address_;
};

/// A segment whose seals let nobody map it for writing any more, but for the mapping it has.
Result<std::unique_ptr<Segment>> create_published_linux_segment(size_t size_bytes,
                                                                std::string_view purpose);

/// Maps a peer's segment, for reading only if it is a published one. The memfd must be sealed
/// against shrinking: else the peer could make every access here end in SIGBUS.
Result<std::unique_ptr<Segment>> map_linux_segment(std::unique_ptr<Handle> handle,
                                                   size_t size_bytes);

}  // namespace braid::base
