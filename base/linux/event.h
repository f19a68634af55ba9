// Event over an eventfd.
#pragma once

#include <memory>

#include "base/host.h"

namespace braid::base {

Result<std::unique_ptr<Event>> create_linux_event();
/// Refuses (kProtocol) what is not a non-blocking eventfd: a peer could make us block in signal().
Result<std::unique_ptr<Event>> adopt_linux_event(std::unique_ptr<Handle> handle);

}  // namespace braid::base
