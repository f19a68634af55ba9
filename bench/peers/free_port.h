// A TCP port for a peer that cannot choose one itself and tell.
//
// Any thread.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace braid::bench {

/// One of 127.0.0.1 that is free now; another program may take it before its use.
base::Result<uint16_t> free_port();

}  // namespace braid::bench
