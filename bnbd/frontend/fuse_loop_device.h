// The front end for kernels without nbd.ko: a FUSE session with one file, a loop device on it.
//
// Threads: the reactor's.
#pragma once

#include <memory>
#include <string>

#include "base/reactor.h"
#include "bnbd/block.h"
#include "bnbd/kernel_device.h"

namespace braid::bnbd {

/// `why` ends the sentence of kind_text(): "because this kernel has no nbd module". The options
/// have been checked.
base::Task<base::Result<std::unique_ptr<KernelDevice>>> attach_fuse_loop(
    base::Reactor& reactor, BlockDevice& device, KernelDeviceOptions options, std::string why);

}  // namespace braid::bnbd
