// What braid_open() opens: a disk of a server, or one of this process or machine. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "reach/target.h"

namespace braid::capi {

struct MemoryDisk {
  uint64_t size_bytes = 0;
};
struct NullDisk {
  uint64_t size_bytes = 0;
};
struct FileDisk {
  std::string folder;  // absolute
  std::string name;    // in it
};
using DiskName = std::variant<reach::Target, MemoryDisk, NullDisk, FileDisk>;

/// "10.0.0.1/disk.img" and whatever reach::parse_target takes; "memory:1G", "null:1G",
/// "file:/srv/disk.img". kInvalid says what would be right. A server whose host is called memory,
/// null or file is named by its address.
base::Result<DiskName> parse_disk_name(std::string_view text);

}  // namespace braid::capi
