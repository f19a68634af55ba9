#include "bnbd/frontend/dirty_pages.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace braid::bnbd {

namespace {

// As in headers of kernels from 6.5 on.
constexpr long kSysCachestat = 451;
struct CacheRange {
  uint64_t offset = 0;
  uint64_t length = 0;  // 0: to the end
};
struct CacheStatistics {
  uint64_t cached = 0;
  uint64_t dirty = 0;
  uint64_t under_write_back = 0;
  uint64_t evicted = 0;
  uint64_t recently_evicted = 0;
};

}  // namespace

int count_dirty_pages(int device_fd, uint64_t& pages) {
  const CacheRange all;
  CacheStatistics found;
  if (::syscall(kSysCachestat, device_fd, &all, &found, 0) != 0) return errno;
  pages = found.dirty + found.under_write_back;
  return 0;
}

std::optional<base::Error> dirty_pages_error(int sys_errno, uint64_t pages) {
  if (pages != 0) {
    return base::make_error(base::Errc::kIo, "{} pages of it are not written back", pages);
  }
  if (sys_errno != ENOSYS) return std::nullopt;
  return base::make_error(base::Errc::kNotSupported,
                          "this kernel cannot tell whether pages of it are dirty (from Linux 6.5 "
                          "on it can)");
}

}  // namespace braid::bnbd
