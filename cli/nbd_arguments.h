// What `braid nbd` is told to export: "[NAME=]HOST[:PORT]/EXPORT", "[NAME=]file:PATH",
// "[NAME=]memory:SIZE", "[NAME=]null:SIZE". Pure parser; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/node.h"

namespace braid::cli {

struct NbdTarget {
  std::string name;                     // of the export
  std::optional<LocalNbdExport> local;  // none: a remote device
  std::string remote;                   // as parse_target() takes it
};

/// Names are those of devices (bnbd::check_device_name); without one it is the last word of the
/// target. A file's path is made absolute. kInvalid says what is wrong.
base::Result<NbdTarget> parse_nbd_target(std::string_view text);

}  // namespace braid::cli
