#include "base/pages.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace braid::base {

namespace {

// A call holds the lock of the process's mappings: between two of them others may map memory.
constexpr size_t kPieceBytes = size_t{1} << 20;

/// `begin` is a page's.
void store_to_each_page(std::byte* begin, size_t size_bytes, size_t page_bytes) {
  for (size_t at = 0; at < size_bytes; at += page_bytes) {
    auto* const byte = const_cast<volatile std::byte*>(begin + at);
    *byte = *byte;
  }
}

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

Status collapse(std::byte* page) {
  // Of 2 MiB that have no page at all none is made.
  BRAID_CHECK(populate({page, 1}));
  constexpr int kTries = 1000;
  for (int tries = 0; ::madvise(page, kHugePageBytes, MADV_COLLAPSE) != 0; ++tries) {
    const int error = errno;
    if ((error == EAGAIN || error == EINTR) && tries < kTries) continue;
    const std::string why = sys_error(error, "madvise(MADV_COLLAPSE)").message();
    if (error == ENOMEM || error == EBUSY || error == EAGAIN)
      return make_error(Errc::kNoMemory, "no memory for a huge page: {}", why);
    return make_error(Errc::kNotSupported,
                      "no huge page: {}; Linux makes them on demand from 6.1 on", why);
  }
  return {};
}

}  // namespace

Status populate_huge(std::span<std::byte> memory) {
  BRAID_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % kHugePageBytes == 0);
  for (; memory.size() >= kHugePageBytes; memory = memory.subspan(kHugePageBytes)) {
    BRAID_CHECK(collapse(memory.data()));
  }
  return populate(memory);
}

Status populate(std::span<std::byte> memory) {
  if (memory.empty()) return {};
  const auto page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t ahead = reinterpret_cast<uintptr_t>(memory.data()) % page_bytes;
  std::byte* const begin = memory.data() - ahead;
  const size_t size_bytes = memory.size() + ahead;
  for (size_t at = 0; at < size_bytes; at += kPieceBytes) {
    const size_t length = std::min(kPieceBytes, size_bytes - at);
    while (::madvise(begin + at, length, MADV_POPULATE_WRITE) != 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      if (errno == EINVAL) {
        store_to_each_page(begin + at, size_bytes - at, page_bytes);
        return {};
      }
      // A limit of a control group, or pages that were never promised.
      return make_error(Errc::kNoMemory, "no memory for {} bytes: {}", memory.size(),
                        sys_error(errno, "madvise").message());
    }
  }
  return {};
}

void map_pages(std::span<std::byte> memory) {
  const auto page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t ahead = reinterpret_cast<uintptr_t>(memory.data()) % page_bytes;
  (void)::madvise(memory.data() - ahead, memory.size() + ahead, MADV_POPULATE_WRITE);
}

}  // namespace braid::base
