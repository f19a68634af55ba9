// The word that a server process leaves at a file when a flush of it has failed there, for the next
// one: what was written before may be lost, and not everyone may have been told. It counts until
// the machine restarts, which says the same by itself (docs/bnbd.md, "Flush").
//
// All of it blocks: call it through offload.
#pragma once

#include <cstdint>

#include "base/host.h"

namespace braid::bnbd {

/// What changes when acknowledged writes that were not flushed may be lost: a hash of the machine's
/// boot and of the mark that a process left at the file since.
base::Result<uint64_t> incarnation_of(base::Host& host, const base::File& file);

/// `number`: a random one, not 0. kNotSupported: the file keeps none.
base::Status mark_loss(base::Host& host, base::File& file, uint64_t number);

}  // namespace braid::bnbd
