// Braid's front ends as fio sees them: the NBD server, and the kernel's device by FUSE and loop.
//
// Main thread.
#pragma once

#include "bench/peers/fio.h"

namespace braid::bench {

/// fio's nbd engine on `braid nbd` over a unix socket, with memory in the same process.
std::unique_ptr<FioTarget> braid_nbd_memory();

/// The same on a remote device, whose server is a process of its own; fio is on the client's CPU,
/// `braid nbd` on either.
std::unique_ptr<FioTarget> braid_nbd_remote();

/// fio's io_uring engine with O_DIRECT on the loop device that `braid map` makes of a remote device
/// by FUSE; fio is on the client's CPU, `braid map` on either. Root.
std::unique_ptr<FioTarget> braid_fuse_loop();

}  // namespace braid::bench
