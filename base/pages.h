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

inline constexpr size_t kHugePageBytes = 2 << 20;

/// As populate(), and in huge pages, but for what is left of the last one, if that is none.
/// `memory` begins at a multiple of them, as segments do that are as large. It asks for them itself
/// (Linux 6.1: MADV_COLLAPSE), and heeds no setting of transparent huge pages. kNotSupported: the
/// kernel does not do that; kNoMemory: it has no huge page. A GiB takes 0.2 s, and up to some
/// seconds where memory has to be moved for it.
Status populate_huge(std::span<std::byte> memory);

/// Of memory that others use already: no fault for a page of it later. A wish (before Linux 5.14
/// nothing happens): who first uses it pays otherwise. Any thread.
void map_pages(std::span<std::byte> memory);

}  // namespace braid::base
