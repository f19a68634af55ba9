// What `braid nbd` is told to export: "[NAME=]HOST[:PORT]/EXPORT", "[NAME=]file:PATH",
// "[NAME=]memory:SIZE", "[NAME=]null:SIZE"; and its options. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/node.h"

namespace braid::cli {

/// The options of `braid nbd`, as they are typed.
struct NbdArguments {
  std::vector<std::string> targets;
  std::string unix_path;
  std::vector<std::string> listen;
  bool read_only = false;
  std::string give_up_after = "never";
  std::string key;
  unsigned reactors = 0;  // 0: as the node has it
  bool guard_reads = false;
  std::string wire = "auto";
};

struct NbdTarget {
  std::string name;                     // of the export
  std::optional<LocalNbdExport> local;  // none: a remote device
  std::string remote;                   // as parse_target() takes it
};

/// Names are those of devices (bnbd::check_device_name); without one it is the last word of the
/// target. A file's path is made absolute. kInvalid says what is wrong.
base::Result<NbdTarget> parse_nbd_target(std::string_view text);

}  // namespace braid::cli
