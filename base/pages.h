// Pages of memory that must be there before something needs them in a hurry.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace braid::base {

/// Gives all of this memory its pages (Linux: MADV_POPULATE_WRITE; before 5.14 by a store to each).
/// What lies in it stays. kNoMemory: the system, or a limit, has none. Any thread; takes as long as
/// the system takes to find that much, so not a reactor's.
Status populate(std::span<std::byte> memory);

}  // namespace braid::base
