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

/// What a device is called for want of a name: the last word of an export's name or a path, with
/// what a name may not hold replaced.
std::string default_device_name(const std::string& export_name);

}  // namespace braid::cli
