// A session's paths as JSON (private to cli/).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/target.h"
#include "trs/client.h"

namespace braid::cli {

/// What one path is and has carried, and each of its connections. Percentiles are powers of two, as
/// the bounds of the histogram beside them are.
nlohmann::json path_status(const trs::PathStatus& status, const PathSpec& spec);

}  // namespace braid::cli
