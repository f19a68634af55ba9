// What people type is understood, or refused with a sentence that names it.
#include "cli/target.h"

#include <gtest/gtest.h>

namespace braid::cli {
namespace {

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
    EXPECT_EQ(target->server.ip, c.ip) << c.text;
    EXPECT_EQ(target->server.port, c.port) << c.text;
    EXPECT_EQ(target->export_name, c.name) << c.text;
  }
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

}  // namespace
}  // namespace braid::cli
