// The memory of a context's devices that they need not copy: which region an address lies in.
//
// Threads: in the context. A look-up is a comparison where the last one was in the same region, and
// a binary search else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bnbd/block.h"

struct braid_device;

namespace braid::capi {

class Regions {
 public:
  void add(braid_device& owner, std::unique_ptr<bnbd::Region> region);
  /// Frees that which begins at `first` and is the owner's. False: there is none.
  bool remove(const braid_device& owner, const void* first);
  void remove_all(const braid_device& owner);
  /// Whether any of the bytes lie in memory of the owner's: in that which begins at `first`, or, if
  /// that is null, in any. Looks at all there is.
  bool touches(const braid_device& owner, const void* first, const void* address,
               size_t length) const;

  /// The region that holds all of the bytes, or null.
  const bnbd::Region* find(const void* address, size_t length) const {
    if (last_ < all_.size() && all_[last_].holds(address, length)) return all_[last_].region.get();
    return search(address, length);
  }

 private:
  struct Entry {
    uintptr_t first = 0;
    size_t bytes = 0;
    std::unique_ptr<bnbd::Region> region;
    const braid_device* owner = nullptr;
    bool holds(const void* address, size_t length) const {
      const uintptr_t at = reinterpret_cast<uintptr_t>(address) - first;
      return at < bytes && length <= bytes - at;
    }
  };
  const bnbd::Region* search(const void* address, size_t length) const;

  std::vector<Entry> all_;  // by `first`
  mutable size_t last_ = 0;
};

}  // namespace braid::capi
