#include "base/plain_text.h"

#include <gtest/gtest.h>

#include <string>

namespace braid::base {
namespace {

size_t bytes_of(const std::string& text) {
  return plain_character_bytes(text.data(), text.data() + text.size());
}

TEST(PlainText, characters_of_one_to_four_bytes_are_plain) {
  EXPECT_EQ(bytes_of("a"), 1u);
  EXPECT_EQ(bytes_of(" b"), 1u);
  EXPECT_EQ(bytes_of("\xc3\xa4"), 2u);
  EXPECT_EQ(bytes_of("\xe2\x82\xac"), 3u);
  EXPECT_EQ(bytes_of("\xed\x9f\xbf"), 3u) << "the last before the surrogates";
  EXPECT_EQ(bytes_of("\xf4\x8f\xbf\xbf"), 4u) << "the last of all";
}

TEST(PlainText, control_characters_are_not) {
  for (const char* text : {"\n", "\x1b[", "\x7f", "\xc2\x80", "\xc2\x9b"})
    EXPECT_EQ(bytes_of(text), 0u) << text;
}

TEST(PlainText, what_is_no_utf8_is_not) {
  for (const char* text : {"\xff", "\x80", "\xc3", "\xc0\xaf", "\xe2\x82", "\xe0\x82\x9b",
                           "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x80\x80\x80"})
    EXPECT_EQ(bytes_of(text), 0u);
}

}  // namespace
}  // namespace braid::base
