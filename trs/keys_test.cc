// Keys in text: what is taken, what is refused, and that nothing secret is in the words.
#include "trs/keys.h"

#include <gmock/gmock.h>

#include "base/sim.h"

namespace braid::trs {
namespace {

using base::Errc;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// 32 bytes 0, 1, 2 ... 31; made with coreutils' base64.
constexpr const char* kLine = "vm7:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

TEST(Keys, LineIsReadAndWrittenAsBase64) {
  auto key = Key::parse(kLine);
  ASSERT_TRUE(key.ok()) << key.error().message();
  EXPECT_EQ((*key)->name(), "vm7");
  ASSERT_EQ((*key)->secret().size(), 32u);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ((*key)->secret()[i], i);
  EXPECT_EQ((*key)->line(), kLine);
}

TEST(Keys, NewOnesDiffer) {
  base::sim::SimWorld world({});
  auto& host = world.add_machine("m").start_process("p");
  auto one = Key::random("a", host), other = Key::random("a", host);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ((*one)->secret().size(), 32u);
  EXPECT_FALSE((*one)->same_secret(**other));
  auto again = Key::parse((*one)->line());
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE((*again)->same_secret(**one));
}

TEST(Keys, FileMayHaveCommentsAndBlankLines) {
  auto ring = parse_keys(std::string("# clients\n\n  ") + kLine +
                         "  \r\nhost-2.lan:" + std::string(kLine).substr(4));
  ASSERT_TRUE(ring.ok()) << ring.error().message();
  EXPECT_THAT((*ring)->names(), ElementsAre("host-2.lan", "vm7"));
  EXPECT_EQ((*ring)->find("vm7")->name(), "vm7");
  EXPECT_EQ((*ring)->find("vm"), nullptr);
  auto none = parse_keys("");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ((*none)->size(), 0u);
}

TEST(Keys, WhatIsWrongIsNamedByItsLineAndWithoutTheSecret) {
  struct Case {
    const char* text;
    const char* complaint;
  };
  const std::string good = kLine;
  const std::string twice = good + "\n" + good;
  const Case cases[] = {
      {"vm7", "line 1: no key: NAME:BASE64"},
      {":AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "line 1: this is no name"},
      {"-x:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "no name"},
      {"a b:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "no name"},
      {"#\nvm7:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", "line 2: what stands behind \"vm7:\""},
      {"vm7:AAECAwQFBgcICQ!LDA0ODxAREhMUFRYXGBkaGxwdHh8=", "what stands behind"},
      {"vm7:AAECAw==", "key \"vm7\" has 4 bytes; 32 to 128 are right"},
      {twice.c_str(), "line 2: there are two keys by the name \"vm7\""},
  };
  for (const Case& wrong : cases) {
    auto ring = parse_keys(wrong.text);
    ASSERT_FALSE(ring.ok()) << wrong.text;
    EXPECT_THAT(ring.error().message(), HasSubstr(wrong.complaint)) << wrong.text;
    EXPECT_THAT(ring.error().message(), Not(HasSubstr("AAEC"))) << wrong.text;
  }
  const std::vector<uint8_t> long_secret(129);
  EXPECT_EQ(Key::create("x", long_secret).code(), Errc::kInvalid);
  EXPECT_FALSE(check_key_name(std::string(64, 'x')).ok());
  EXPECT_TRUE(check_key_name(std::string(63, 'x')).ok());
  EXPECT_FALSE(parse_keys(std::string(kKeysTextBytesMax + 1, '#')).ok());
}

}  // namespace
}  // namespace braid::trs
