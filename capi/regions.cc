#include "capi/regions.h"

#include <algorithm>

namespace braid::capi {

void Regions::add(braid_device& owner, std::unique_ptr<bnbd::Region> region) {
  Entry entry;
  entry.first = reinterpret_cast<uintptr_t>(region->data());
  entry.bytes = region->size();
  entry.region = std::move(region);
  entry.owner = &owner;
  const auto place =
      std::upper_bound(all_.begin(), all_.end(), entry.first,
                       [](uintptr_t first, const Entry& other) { return first < other.first; });
  all_.insert(place, std::move(entry));
}

bool Regions::remove(const braid_device& owner, const void* first) {
  return std::erase_if(all_, [&](const Entry& entry) {
           return entry.owner == &owner && entry.first == reinterpret_cast<uintptr_t>(first);
         }) > 0;
}

void Regions::remove_all(const braid_device& owner) {
  std::erase_if(all_, [&](const Entry& entry) { return entry.owner == &owner; });
}

bool Regions::touches(const braid_device& owner, const void* first, const void* address,
                      size_t length) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return std::any_of(all_.begin(), all_.end(), [&](const Entry& entry) {
    if (entry.owner != &owner) return false;
    if (first != nullptr && entry.first != reinterpret_cast<uintptr_t>(first)) return false;
    // The bytes begin in it, or it begins in the bytes; below 0 is beyond any length.
    return at - entry.first < entry.bytes || entry.first - at < length;
  });
}

const bnbd::Region* Regions::search(const void* address, size_t length) const {
  const auto behind =
      std::upper_bound(all_.begin(), all_.end(), reinterpret_cast<uintptr_t>(address),
                       [](uintptr_t at, const Entry& entry) { return at < entry.first; });
  if (behind == all_.begin()) return nullptr;
  const Entry& entry = *std::prev(behind);
  if (!entry.holds(address, length)) return nullptr;
  last_ = static_cast<size_t>(std::prev(behind) - all_.begin());
  return entry.region.get();
}

}  // namespace braid::capi
