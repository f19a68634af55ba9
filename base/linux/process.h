// Copying to and from another process's memory.
#pragma once

#include <memory>

#include "base/host.h"

namespace braid::base {

Result<std::unique_ptr<PeerProcess>> open_linux_process(const PeerIdentity& identity);

}  // namespace braid::base
