// What may be shown of a text that others have written: characters of UTF-8 that do nothing. Pure.
#pragma once

#include <cstddef>

namespace braid::base {

/// Bytes of the character that begins at `at`, before `end`; 0: it is a control character, of which
/// UTF-8 has some in two bytes, or no UTF-8.
size_t plain_character_bytes(const char* at, const char* end);

}  // namespace braid::base
