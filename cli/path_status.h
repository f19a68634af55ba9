// A session's paths as JSON (private to cli/).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/target.h"
#include "trs/client.h"

namespace braid::cli {

/// What one path is and has carried. Percentiles are the upper ends of powers of two.
nlohmann::json path_status(const trs::PathStatus& status, const PathSpec& spec);

}  // namespace braid::cli
