// Pages of memory that must be there before something needs them in a hurry.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace braid::base {

/// Gives all of this memory its pages (Linux: MADV_POPULATE_WRITE; before 5.14 by a store to each).
/// What lies in it stays. kNoMemory: the system, or a limit, has none. Any thread; takes as long as
/// the system takes to find that much: a reactor's only where that is little.
Status populate(std::span<std::byte> memory);

/// Of memory that others use already: no fault for a page of it later. A wish (before Linux 5.14
/// nothing happens): who first uses it pays otherwise. Any thread.
void map_pages(std::span<std::byte> memory);

}  // namespace braid::base
