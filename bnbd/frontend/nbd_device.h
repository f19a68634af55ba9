// The front end on nbd.ko: socket pairs, one end the kernel's, at the other an NbdServer.
//
// Threads: the reactor's.
#pragma once

#include <memory>

#include "base/reactor.h"
#include "bnbd/block.h"
#include "bnbd/kernel_device.h"

namespace braid::bnbd {

inline constexpr unsigned kNbdConnectionsMax = 16;
/// How many there are to be, of those that were asked for: one for each reactor at least, up to the
/// most. The kernel sends nothing to the reactors beyond.
unsigned nbd_connections(unsigned asked, size_t reactors);

/// kNotSupported, with a sentence that fits behind "because": this kernel has no nbd.ko. The
/// options have been checked.
base::Task<base::Result<std::unique_ptr<KernelDevice>>> attach_nbd(base::Reactor& reactor,
                                                                   BlockDevice& device,
                                                                   KernelDeviceOptions options);

}  // namespace braid::bnbd
