// A loop device on a file that this process serves. Every call that reaches the loop device or the
// file is made in a process apart.
//
// Threads: all functions block, for a worker (Reactor::offload).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "bnbd/frontend/held_device.h"

namespace braid::bnbd {

struct LoopOptions {
  std::string file_name;  // in the root directory of the FUSE mount
  std::string label;      // what LOOP_GET_STATUS64 tells: unique, under 64 bytes
  uint32_t logical_block_bytes = 512;
  bool read_only = false;
};

struct LoopDevice {
  int index = -1;          // N of /dev/loopN
  bool direct_io = false;  // the loop device bypasses the page cache of its file
};

/// Opens the file, finds a free loop device, sets it up (direct I/O, clear on last close) and
/// leaves it open in `held`.
base::Result<LoopDevice> attach_loop(int mount_root_fd, const LoopOptions& options,
                                     const HeldDevice& held);

/// How to take a loop device away.
enum class LoopRemoval : uint8_t {
  kPolite,  // claims it exclusively (kBusy if it is mounted, claimed or open) and writes back dirty
            // pages (kIo if that fails); either way it stays as it was
  kIfClean,  // the same, but refuses when pages are dirty (kIo), or the kernel cannot tell
             // (kNotSupported); no I/O
  kForced,   // takes no notice of users: it vanishes when the last one closes it
};
/// Takes the device out of `held` and clears it. kBusy of kForced: somebody has it open still, and
/// it goes when they close it. Ok too if it is gone, and its number free or another's.
base::Status detach_loop(int index, const std::string& label, const HeldDevice& held,
                         LoopRemoval removal);

/// Has the device ask its file for its size, which is `size_bytes` now. kNotSupported: this kernel
/// goes by what it was told once (before Linux 6.18). kNotFound: the device is gone.
base::Status resize_loop(int index, const std::string& label, uint64_t size_bytes);

}  // namespace braid::bnbd
