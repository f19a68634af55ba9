// Memory that a measurement's processes share: made before they are forked.
//
// Main thread; what is written there is the users' matter.
#pragma once

#include <sys/mman.h>

#include <cstddef>

#include "base/result.h"

namespace braid::bench {

/// Zeroes at first; goes with the last process that has it.
class SharedPages {
 public:
  explicit SharedPages(size_t size_bytes) : size_(size_bytes) {
    void* const at =
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    BRAID_ASSERT(at != MAP_FAILED);
    data_ = static_cast<std::byte*>(at);
  }
  ~SharedPages() { munmap(data_, size_); }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  /// Maps all pages in this process, so that no access faults.
  void populate() const { madvise(data_, size_, MADV_POPULATE_WRITE); }

 private:
  size_t size_;
  std::byte* data_;
};

}  // namespace braid::bench
