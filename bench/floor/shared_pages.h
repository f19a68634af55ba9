// Memory that a measurement's processes share: made before they are forked.
//
// Main thread; what is written there is the users' matter.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "base/pages.h"
#include "base/result.h"

namespace braid::bench {

/// Zeroes at first; goes with the last process that has it. At a multiple of huge pages.
class SharedPages {
 public:
  explicit SharedPages(size_t size_bytes) : size_(size_bytes) {
    room_ = mmap(nullptr, room_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    BRAID_ASSERT(room_ != MAP_FAILED);
    const auto begin = reinterpret_cast<uintptr_t>(room_);
    const size_t ahead =
        (base::kHugePageBytes - begin % base::kHugePageBytes) % base::kHugePageBytes;
    void* const at = mmap(static_cast<std::byte*>(room_) + ahead, size_, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    BRAID_ASSERT(at != MAP_FAILED);
    data_ = static_cast<std::byte*>(at);
  }
  ~SharedPages() { munmap(room_, room_bytes()); }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  /// Maps all pages in this process, so that no access faults.
  void populate() const { madvise(data_, size_, MADV_POPULATE_WRITE); }
  /// As the memory of a server with --huge-pages. False: the kernel gives none.
  bool make_huge() const { return base::populate_huge({data_, size_}).ok(); }

 private:
  size_t room_bytes() const { return size_ + base::kHugePageBytes; }
  size_t size_;
  void* room_;
  std::byte* data_;
};

/// Whether this machine's kernel gives huge pages to who asks: then stores have them, ours and the
/// floor's.
inline bool stores_have_huge_pages() {
  static const bool kHave = SharedPages(base::kHugePageBytes).make_huge();
  return kHave;
}

}  // namespace braid::bench
