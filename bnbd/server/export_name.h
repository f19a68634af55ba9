// What the name in an OPEN means beneath the exported directory (docs/bnbd-wire.md, "Names"). Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "bnbd/server.h"

namespace braid::bnbd::server {

/// Beneath ExportRoot::folder, in the one spelling (normal_export_name()). `owner`: the session's;
/// kInvalid if its name cannot be that of a directory.
base::Result<std::string> file_name(const ExportRoot& root, std::string_view owner,
                                    std::string_view name);

}  // namespace braid::bnbd::server
