// The block devices that this process serves to the kernel, and what lies on them.
//
// A process that opens, reads or writes a file on such a disk waits for itself, and if it is killed
// meanwhile it never ends. So open_beneath() refuses those files.
//
// Threads: any. Reads /proc and /sys only, never a disk.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "base/result.h"

namespace braid::base {

class OwnDisks {
 public:
  /// `name` is that below /dev: "loop3".
  void set(const std::string& name, bool served);
  /// kInvalid if the file or folder is, or lies on, one of these disks: on a partition of it, or on
  /// devices that stand on it (device mapper, RAID). What is not seen: an image file on such a disk
  /// under another loop device. `path_fd` may be O_PATH.
  Status check(int path_fd, const std::string& name) const;

 private:
  /// The own disk that the device ("7:3") is or stands on; empty: none.
  std::string below(const std::string& device) const;
  std::string below_name(const std::string& name, int depth) const;

  mutable std::mutex mutex_;
  std::set<std::string> names_;  // mutex_
};

}  // namespace braid::base
