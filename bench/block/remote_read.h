// Ours in the block rows: an export server with a memory device in one process, a remote device in
// another, over the in-host software HCA.
//
// Main thread.
#pragma once

#include "bench/rounds.h"

namespace braid::bench {

/// Random 4 KiB reads at depth 1, IOPS. Both sides poll.
std::unique_ptr<Candidate> braid_remote_read();

}  // namespace braid::bench
