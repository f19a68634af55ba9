// The least that a file by FUSE with a loop device on it does: the kernel's part, and a copy.
//
// Main thread.
#pragma once

#include <memory>

#include "bench/peers/fio.h"

namespace braid::bench {

/// fio's io_uring engine with O_DIRECT on a loop device on the file of a FUSE server of one thread
/// which spins while there is work: memory in the same process, libfuse, no checks. Root.
std::unique_ptr<FioTarget> bare_fuse_loop();

}  // namespace braid::bench
