#include "base/ip_network.h"

#include <gtest/gtest.h>

namespace braid::base {
namespace {

TEST(NetworkOf, IsAnIpv4AddressItself) {
  EXPECT_EQ(network_of("10.1.0.2"), "10.1.0.2");
}

TEST(NetworkOf, IsTheUpperHalfOfAnIpv6Address) {
  EXPECT_EQ(network_of("2001:db8:1:2::1"), "2001:db8:1:2::/64");
  EXPECT_EQ(network_of("2001:db8:1:2:ffff::9"), "2001:db8:1:2::/64");
  EXPECT_EQ(network_of("2001:db8:1:3::1"), "2001:db8:1:3::/64");
}

TEST(NetworkOf, OfWhatIsNoAddressIsThat) {
  EXPECT_EQ(network_of("process 12 on this host"), "process 12 on this host");
  EXPECT_EQ(network_of(""), "");
}

}  // namespace
}  // namespace braid::base
