// Ours in the block rows: an export server with a memory device in one process, a remote device in
// another, over the in-host software HCA.
//
// Main thread.
#pragma once

#include <memory>
#include <string>

#include "bench/rounds.h"

namespace braid::bench {

struct RemoteRead {
  std::string name = "braid remote device, in-host software HCA";
  uint64_t pause_ns = 0;       // after each answer
  bool beside_clears = false;  // another client of the same server clears all the time
  unsigned idle_sessions = 0;  // of another client
};

/// Random 4 KiB reads at depth 1, IOPS. Both sides poll.
std::unique_ptr<Candidate> braid_remote_read(const RemoteRead& read = {});

}  // namespace braid::bench
