#include "base/plain_text.h"

namespace braid::base {

size_t plain_character_bytes(const char* at, const char* end) {
  const unsigned char first = static_cast<unsigned char>(*at);
  if (first < 0x80) return first < 0x20 || first == 0x7f ? 0 : 1;
  const size_t bytes = first < 0xc2   ? 0
                       : first < 0xe0 ? 2
                       : first < 0xf0 ? 3
                       : first < 0xf5 ? 4
                                      : 0;
  if (bytes == 0 || static_cast<size_t>(end - at) < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i)
    if ((static_cast<unsigned char>(at[i]) & 0xc0) != 0x80) return 0;
  const unsigned char second = static_cast<unsigned char>(at[1]);
  const bool control = first == 0xc2 && second < 0xa0;
  const bool too_long = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second >= 0xa0;
  const bool too_large = first == 0xf4 && second >= 0x90;
  return control || too_long || surrogate || too_large ? 0 : bytes;
}

}  // namespace braid::base
