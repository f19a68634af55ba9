// Ours in the message row: WRITE_WITH_IMM between two processes over the in-host software HCA.
//
// Main thread.
#pragma once

#include "bench/rounds.h"

namespace braid::bench {

enum class Memory : uint8_t {
  kSegment,  // Braid's own: both processes have it
  kForeign,  // any other memory of a program: reached by system calls
};

/// One way (half of a ping-pong), ns, of messages of `length_bytes` (8 .. 1 MiB). Both sides poll.
std::unique_ptr<Candidate> write_imm_one_way(uint32_t length_bytes, Memory memory);

}  // namespace braid::bench
