// Locks of bytes of shared memory, or of a file: among processes, and among threads of one.
//
// Threads: any. The bytes need not be there: an offset is a name that nobody sees who has no
// handle.
#pragma once

#include <cstdint>
#include <memory>

#include "base/host.h"
#include "base/result.h"

namespace braid::base {

/// Until what it gives is destroyed, or the process dies, nobody else locks any of these bytes, be
/// it another thread of this process (a fork without exec shares the lock). Never waits. kBusy:
/// somebody has; kNoMemory: no descriptor or memory is left. Costs a descriptor meanwhile.
Result<std::unique_ptr<Handle>> lock_bytes(const Handle& of, uint64_t offset, uint64_t length);

}  // namespace braid::base
