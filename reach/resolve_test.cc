#include "reach/resolve.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace braid::reach {
namespace {

TEST(Resolve, addresses_are_told_from_names) {
  for (const char* ip : {"127.0.0.1", "::1", "fe80::2"}) EXPECT_TRUE(is_ip(ip)) << ip;
  for (const char* name : {"localhost", "a.b", "10.0.0", "", "1.2.3.4.5"})
    EXPECT_FALSE(is_ip(name)) << name;
}

TEST(Resolve, routes_tell_the_source) {
  for (const char* ip : {"127.0.0.1", "127.0.0.5"}) {
    auto source = source_to(ip);
    ASSERT_TRUE(source.ok()) << source.error().message();
    EXPECT_TRUE(source->starts_with("127.0.0.")) << *source;
  }
  EXPECT_EQ(source_to("localhost").code(), base::Errc::kInvalid);
}

TEST(Resolve, the_system_gives_each_address_once) {
  auto found = look_up_host("localhost");
  ASSERT_TRUE(found.ok()) << found.error().message();
  std::vector<std::string> addresses = *found;
  for (const std::string& address : addresses) EXPECT_TRUE(is_ip(address)) << address;
  std::sort(addresses.begin(), addresses.end());
  EXPECT_EQ(std::adjacent_find(addresses.begin(), addresses.end()), addresses.end());
}

TEST(Resolve, a_host_that_is_not_there_is_named) {
  const auto nonsense = look_up_host("no.such.host.invalid");
  EXPECT_EQ(nonsense.code(), base::Errc::kNotFound);
  EXPECT_NE(nonsense.error().message().find("no.such.host.invalid"), std::string::npos);
}

}  // namespace
}  // namespace braid::reach
