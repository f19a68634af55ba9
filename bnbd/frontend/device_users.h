// Who uses a block device of this machine: for messages to people, and to refuse a detach.
//
// Reads /proc and /sys only, never the device. Threads: any; blocks a little (walks all processes),
// so a worker.
#pragma once

#include <string>
#include <vector>

namespace braid::bnbd {

/// Sentences such as "mounted at /mnt/disk", "open in process 812 (dd)", "held by dm-0", "used as
/// swap". Empty: none that this process can see. `name` is that below /dev, such as "loop3".
std::vector<std::string> users_of_block_device(const std::string& name);

/// One line of mountinfo: where `device` ("7:3") or `source` ("/dev/loop3") is mounted, or nothing.
/// Pure, for tests.
std::string mount_point_in_line(const std::string& line, const std::string& device,
                                const std::string& source);

}  // namespace braid::bnbd
