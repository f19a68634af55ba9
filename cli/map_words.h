// What a mapping is asked for, in the words that the control call "map" and a [[map]] of the
// configuration have in common. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "bnbd/filters.h"
#include "bnbd/wire.h"

namespace braid::cli {

/// "rw", "ro" or "migration"; kInvalid for anything else.
base::Result<bnbd::wire::AccessMode> parse_access(const std::string& text);

/// The filters of a device that is mapped with this access, the one nearest to its user first.
/// kInvalid: one that parse_filter() refuses, more than bnbd::kFiltersMax, or checksums where
/// another client may write, too.
base::Result<std::vector<bnbd::FilterSpec>> parse_filters(const std::vector<std::string>& texts,
                                                          bnbd::wire::AccessMode access);

}  // namespace braid::cli
