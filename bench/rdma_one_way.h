// Ours in the message row: WRITE_WITH_IMM between two processes over the in-host software HCA.
//
// Main thread.
#pragma once

#include "bench/rounds.h"

namespace braid::bench {

/// One way (half of a ping-pong), ns, of messages of `length_bytes` (1 .. 1 MiB). Both sides poll.
std::unique_ptr<Candidate> write_imm_one_way(uint32_t length_bytes);

}  // namespace braid::bench
