// A name for the bytes of a block device, for File::Info::identity.
#pragma once

#include <string>

namespace braid::base {

/// Of the device that the folder of sysfs describes (/sys/dev/block/MAJOR:MINOR):
///   its own name: of an LVM, multipath or LUKS mapping, of an MD array, or the disk's serial; for
///   a partition the disk's, and where it begins. The same after every restart.
///   Else "MAJOR:MINOR", which names a device only until the machine restarts: `boot_id` is part of
///   it, so that what has these numbers next time is another disk.
/// Blocks (reads sysfs); any thread.
std::string disk_identity(const std::string& folder, const std::string& numbers,
                          const std::string& boot_id);

}  // namespace braid::base
