// Who uses a block device of this machine: for messages to people, and to refuse a detach.
//
// Reads /proc and /sys only, never the device. Threads: any; blocks a little (walks all processes),
// so a worker.
#pragma once

#include <string>
#include <vector>

namespace braid::bnbd {

/// Sentences such as "mounted at /mnt/disk", "open in process 812 (dd)", "held by dm-0", "used as
/// swap"; of its partitions too: "nbd0p1 mounted at /mnt". Empty: none that this process can see.
/// `name` is that below /dev, such as "loop3".
std::vector<std::string> users_of_block_device(const std::string& name);

/// The names of its partitions.
std::vector<std::string> partitions_of(const std::string& name);

/// Itself and what stands on it, whoever is above before what is below: holders (device mapper,
/// RAID) of its partitions, the partitions, its own holders, the device.
std::vector<std::string> block_devices_on(const std::string& name);

/// One line of mountinfo: where `device` ("7:3") or `source` ("/dev/loop3") is mounted, or nothing.
/// Pure, for tests.
std::string mount_point_in_line(const std::string& line, const std::string& device,
                                const std::string& source);

}  // namespace braid::bnbd
