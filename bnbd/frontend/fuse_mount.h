// A FUSE file system that is attached to no directory.
//
// Made with the kernel's descriptor-based mount calls: it has no path, appears in no mount table,
// and goes with the last descriptor or file that refers to it, however this process ends.
//
// Threads: any; does not wait for the server of the file system. Needs CAP_SYS_ADMIN, Linux 5.4.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "bnbd/frontend/fd_handle.h"

namespace braid::bnbd {

struct FuseMount {
  UniqueFd device;  // /dev/fuse, non-blocking: requests are read and answered here
  UniqueFd root;    // the root directory, for openat: which waits for the server
};

base::Result<FuseMount> create_fuse_mount(uint32_t max_read_bytes);

}  // namespace braid::bnbd
