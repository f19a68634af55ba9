// Copying into memory that somebody may be spinning on.
#pragma once

#include <cstddef>

namespace braid::vhca::soft {

/// Copies so that whoever sees the last byte changed sees all of it: everything before the last
/// aligned word of at most 8 bytes is stored first, then, behind a release fence, that word.
void copy_last_word_last(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace braid::vhca::soft
