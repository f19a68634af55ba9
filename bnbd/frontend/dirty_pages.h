// Whether the page cache of a block device holds anything that is not on the device, asked without
// any I/O.
//
// Threads: count_dirty_pages() is system calls only, for run_apart; the rest any.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"

namespace braid::bnbd {

/// Dirty pages and those under write-back; 0 or an errno: ENOSYS before Linux 6.5.
int count_dirty_pages(int device_fd, uint64_t& pages);

/// What is wrong with taking such a device away without I/O; nothing: something else was.
std::optional<base::Error> dirty_pages_error(int sys_errno, uint64_t pages);

}  // namespace braid::bnbd
