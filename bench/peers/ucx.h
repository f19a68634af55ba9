// The peer of the message row: UCX active messages over shared memory, by ucx_perftest.
//
// Main thread.
#pragma once

#include "bench/rounds.h"

namespace braid::bench {

/// 8-byte active message, one way (half of the round trip), ns. kNotFound without ucx_perftest.
std::unique_ptr<Candidate> ucx_active_message();

/// Takes the average one-way latency and the median out of ucx_perftest's CSV output (-f -v).
base::Result<Sample> parse_ucx(const std::string& text);

}  // namespace braid::bench
