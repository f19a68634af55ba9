// Writes back what the kernel holds dirty of a block device that this process serves, while others
// use the device: before it is taken away by force.
//
// Threads: blocks for as long as the device does; a worker. The calls that wait are made in a
// process apart.
#pragma once

#include <string>

#include "base/result.h"

namespace braid::bnbd {

/// Has the file systems on the device, wherever they are mounted, and the devices on it
/// (partitions, device mapper) write what is dirty, and flushes them. kIo: it could not be written.
/// Pages of files that failed may go unreported by the kernel: the device's own count of errors
/// tells.
base::Status write_back(const std::string& name);

}  // namespace braid::bnbd
