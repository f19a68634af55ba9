// fio on a file or a block device, without a server: what a local disk does.
//
// Main thread.
#pragma once

#include "bench/peers/fio.h"

namespace braid::bench {

/// fio's io_uring engine with O_DIRECT on a file beneath the scratch folder.
std::unique_ptr<FioTarget> io_uring_on_file();

}  // namespace braid::bench
