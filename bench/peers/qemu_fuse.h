// qemu-storage-daemon as a peer: a loop device on the file that it shows by FUSE.
//
// Main thread.
#pragma once

#include "bench/peers/fio.h"

namespace braid::bench {

/// fio's io_uring engine with O_DIRECT on the loop device; the image lies in /dev/shm. start():
/// kNotFound without qemu-storage-daemon or losetup; root.
std::unique_ptr<FioTarget> qemu_fuse_loop();

}  // namespace braid::bench
