// nbdkit as a peer: fio's nbd engine on its memory plugin.
//
// Main thread.
#pragma once

#include "bench/peers/fio.h"

namespace braid::bench {

enum class Socket : uint8_t { kUnix, kTcp };

/// start(): kNotFound without nbdkit.
std::unique_ptr<FioTarget> nbdkit_memory(Socket socket, Placement placement = Placement::kServer);

}  // namespace braid::bench
