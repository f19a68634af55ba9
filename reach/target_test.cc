// What people type is understood, or refused with a sentence that names it.
#include "reach/target.h"

#include <gtest/gtest.h>

namespace braid::reach {
namespace {

using base::Errc;

TEST(Target, server_port_and_export_are_told_apart) {
  const struct {
    const char* text;
    const char* ip;
    int port;
    const char* name;
  } cases[] = {
      {"10.0.0.1/disk.img", "10.0.0.1", 1234, "disk.img"},
      {"10.0.0.1:99/a/b.img", "10.0.0.1", 99, "a/b.img"},
      {"[::1]:7/x", "::1", 7, "x"},
      {"[fe80::2]/x", "fe80::2", 1234, "x"},
      {"ip:10.0.0.1/x", "10.0.0.1", 1234, "x"},
      {"localhost/x", "localhost", 1234, "x"},
  };
  for (const auto& c : cases) {
    auto target = parse_target(c.text);
    ASSERT_TRUE(target.ok()) << c.text;
    ASSERT_EQ(target->paths.size(), 1u) << c.text;
    EXPECT_EQ(target->paths[0].server.ip, c.ip) << c.text;
    EXPECT_EQ(target->paths[0].server.port, c.port) << c.text;
    EXPECT_EQ(target->paths[0].source, "") << c.text;
    EXPECT_EQ(target->export_name, c.name) << c.text;
  }
}

TEST(Target, has_the_name_of_an_export_that_can_be_asked_for) {
  EXPECT_TRUE(parse_target("10.0.0.1/" + std::string(254, 'x')).ok());
  const auto longer = parse_target("10.0.0.1/" + std::string(255, 'x'));
  ASSERT_EQ(longer.code(), Errc::kInvalid);
  EXPECT_NE(longer.error().message().find("has 255 bytes; 254 are the most"), std::string::npos)
      << longer.error().message();
}

TEST(Target, has_several_paths_with_sources_of_this_machine) {
  auto target = parse_target("10.0.0.1,ip:10.1.0.2@ip:10.1.0.1:99,[fd00::2]@[fd00::1]:7/a/b");
  ASSERT_TRUE(target.ok()) << target.error().message();
  EXPECT_EQ(paths_text(target->paths), "10.0.0.1:1234,10.1.0.2@10.1.0.1:99,fd00::2@[fd00::1]:7");
  EXPECT_EQ(target->export_name, "a/b");
  auto again = parse_target(paths_text(target->paths) + "/a/b");
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->paths, target->paths);
}

TEST(Target, a_gid_is_the_address_that_it_holds) {
  const struct {
    const char* text;
    const char* path;
  } cases[] = {
      {"gid:2001:0db8:0000:0000:0002:c903:0010:c0f5", "[2001:db8::2:c903:10:c0f5]:1234"},
      {"gid:0000:0000:0000:0000:0000:ffff:0a00:0001", "10.0.0.1:1234"},
      {"gid:[::ffff:10.0.0.1]:7", "10.0.0.1:7"},
      {"gid:::ffff:10.0.0.2@gid:::ffff:10.0.0.1", "10.0.0.2@10.0.0.1:1234"},
  };
  for (const auto& c : cases) {
    auto path = parse_path(c.text);
    ASSERT_TRUE(path.ok()) << path.error().message();
    EXPECT_EQ(path_text(*path), c.path) << c.text;
  }
  for (const char* text : {"gid:10.0.0.1", "gid:ip:10.0.0.1", "gid:", "gid:x"}) {
    auto path = parse_path(text);
    ASSERT_FALSE(path.ok()) << text;
    EXPECT_NE(path.error().message().find(text), std::string::npos) << path.error().message();
  }
}

TEST(Target, a_gid_and_the_address_that_it_holds_are_one_path) {
  EXPECT_EQ(*parse_path("gid:::ffff:10.0.0.1"), *parse_path("ip:10.0.0.1"));
  const auto twice = parse_target("10.0.0.1,gid:::ffff:10.0.0.1/x");
  ASSERT_EQ(twice.code(), Errc::kInvalid);
  EXPECT_NE(twice.error().message().find("there twice"), std::string::npos);
}

TEST(Target, a_link_local_gid_is_refused_with_what_would_be_right) {
  for (const char* text : {"gid:fe80:0000:0000:0000:0002:c903:0010:c0f5", "gid:[fe80::1]:7",
                           "gid:::ffff:10.0.0.2@gid:fe80::1", "gid:fe80::1@10.0.0.1"}) {
    const auto refused = parse_path(text);
    ASSERT_EQ(refused.code(), Errc::kInvalid) << text;
    for (const char* words : {"link-local", "::ffff:a.b.c.d"})
      EXPECT_NE(refused.error().message().find(words), std::string::npos)
          << refused.error().message();
  }
}

// One can come by the control socket, and what reads it then sees another address than what
// compares paths.
TEST(Target, no_address_goes_on_behind_a_zero_byte) {
  using namespace std::string_view_literals;  // NOLINT
  for (const std::string_view text :
       {"10.0.0.1\0x"sv, "10.0.0.2\0@10.0.0.1"sv, "gid:::ffff:10.0.0.1\0x"sv, "[::1\0]:7"sv}) {
    EXPECT_EQ(parse_path(text).code(), Errc::kInvalid) << text;
  }
}

TEST(Target, wrong_paths_are_named) {
  const struct {
    const char* text;
    const char* words;
  } cases[] = {
      {"10.0.0.1,/x", "host is missing"},
      {"10.0.0.1,10.0.0.1:1234/x", "10.0.0.1:1234 is there twice"},
      {"@10.0.0.1/x", "source before '@' is missing"},
      {"host@10.0.0.1/x", "source \"host\""},
      {"10.0.0.2:1@10.0.0.1/x", "without a port"},
      {"10.0.0.2@10.0.0.3@10.0.0.1/x", "one '@' at most"},
  };
  for (const auto& c : cases) {
    auto target = parse_target(c.text);
    ASSERT_FALSE(target.ok()) << c.text;
    EXPECT_NE(target.error().message().find(c.words), std::string::npos)
        << target.error().message();
  }
  std::string many = "10.0.0.1";
  for (int i = 2; i < 30; ++i) many += ",10.0.0." + std::to_string(i);
  EXPECT_FALSE(parse_target(many + "/x").ok());
}

TEST(Target, what_is_wrong_is_named) {
  for (const char* text :
       {"", "10.0.0.1", "10.0.0.1/", "/disk", "10.0.0.1:x/d", "10.0.0.1:70000/d", "[::1/x", ":"}) {
    auto target = parse_target(text);
    ASSERT_FALSE(target.ok()) << text;
    EXPECT_EQ(target.code(), base::Errc::kInvalid);
    EXPECT_NE(target.error().message().find(text), std::string::npos) << target.error().message();
  }
}

TEST(Target, listen_addresses_may_leave_out_the_host) {
  auto any = parse_address(":0");
  ASSERT_TRUE(any.ok());
  EXPECT_EQ(any->ip, "0.0.0.0");
  EXPECT_EQ(any->port, 0);
  auto bare = parse_address("::1");
  ASSERT_TRUE(bare.ok());
  EXPECT_EQ(bare->ip, "::1");
}

TEST(Size, units_are_powers_of_1024) {
  EXPECT_EQ(*parse_size("4096"), 4096u);
  EXPECT_EQ(*parse_size("64k"), 65536u);
  EXPECT_EQ(*parse_size("2G"), 2ull << 30);
  EXPECT_EQ(*parse_size("1.5M"), 1572864u);
  EXPECT_EQ(*parse_size("2GiB"), 2ull << 30);
  for (const char* text : {"", "0", "-1", "G", "2X", "2Gx", "nan", "1e300", "2 G"})
    EXPECT_FALSE(parse_size(text).ok()) << text;
  EXPECT_EQ(size_text(512), "512 B");
  EXPECT_EQ(size_text(2ull << 30), "2.0 GiB");
}

TEST(Duration, has_a_unit_or_is_never) {
  EXPECT_EQ(*parse_duration("30s"), 30 * base::kSecond);
  EXPECT_EQ(*parse_duration("500ms"), base::kSecond / 2);
  EXPECT_EQ(*parse_duration("1.5m"), 90 * base::kSecond);
  EXPECT_EQ(*parse_duration("2h"), 7200 * base::kSecond);
  EXPECT_EQ(*parse_duration("never"), base::kNever);
  for (const char* text :
       {"", "30", "0s", "-1s", "s", "1d", "1 s", "nans", "infs", "1e30h", "0.1ms"}) {
    auto parsed = parse_duration(text);
    EXPECT_EQ(parsed.code(), base::Errc::kInvalid) << text;
    EXPECT_NE(parsed.error().message().find("for example 30s"), std::string::npos);
  }
  EXPECT_EQ(duration_text(30 * base::kSecond), "30 s");
  EXPECT_EQ(duration_text(base::kSecond / 2), "0.5 s");
  EXPECT_EQ(duration_text(base::kNever), "never");
}

TEST(PollBudget, is_a_duration_or_microseconds_or_nothing) {
  EXPECT_EQ(*parse_poll_budget("50us"), 50 * base::kMicrosecond);
  EXPECT_EQ(*parse_poll_budget("1000000us"), base::kSecond);
  EXPECT_EQ(*parse_poll_budget("2ms"), 2 * base::kMillisecond);
  EXPECT_EQ(*parse_poll_budget("0"), 0U);
  EXPECT_EQ(*parse_poll_budget("never"), base::kNever);
  for (const char* text : {"", "50", "0us", "-1us", "us", "1.5us", "1000001us", "50 us", "00"}) {
    const auto parsed = parse_poll_budget(text);
    EXPECT_EQ(parsed.code(), base::Errc::kInvalid) << text;
    EXPECT_NE(parsed.error().message().find("such as 50us, 2ms or 1s, 0 or never"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace braid::reach
