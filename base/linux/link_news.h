// News of interfaces from the kernel (rtnetlink), for LinuxHost.
#pragma once

#include <memory>

#include "base/host.h"
#include "base/result.h"

namespace braid::base {

/// Of the network namespace of the calling thread.
Result<std::unique_ptr<LinkNews>> watch_linux_links();

}  // namespace braid::base
