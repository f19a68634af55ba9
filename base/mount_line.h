// Lines of /proc/PID/mountinfo and /proc/swaps, whose texts are whatever people call their folders
// and devices. Pure; threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace braid::base {

struct MountLine {
  uint64_t id = 0;
  std::string device;  // "7:3"; "0:52" for file systems with numbers of their own (btrfs)
  std::string point;   // where it is mounted
  std::string source;  // "/dev/loop3", or whatever was said; may be empty
};

/// Of a line of mountinfo, without its newline; nothing: it is none.
std::optional<MountLine> parse_mount_line(std::string_view line);

/// The file or device of a line of swaps; empty: it has none, as the first.
std::string swap_in_line(std::string_view line);

}  // namespace braid::base
