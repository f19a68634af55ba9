// How often one address may begin a path.
#include "trs/server/connect_rate.h"

#include <gtest/gtest.h>

#include "trs/server/session.h"

namespace braid::trs::server {
namespace {

using base::kSecond;

constexpr uint64_t kBeginNs = 7 * kSecond;
constexpr uint64_t kAtOnce = 128;

TEST(ConnectRate, SoManyMayComeAtOnceAndThenSoManyASecond) {
  ConnectRate rate(kAtOnce);
  uint64_t allowed = 0;
  for (int i = 0; i < 1000; ++i) allowed += rate.allow("a", kBeginNs) ? 1 : 0;
  EXPECT_EQ(allowed, kAtOnce);
  allowed = 0;
  for (uint64_t ns = 0; ns < kSecond; ns += kSecond / 5000)
    allowed += rate.allow("a", kBeginNs + ns) ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(allowed), ConnectRate::kPerSecond, 1);
}

TEST(ConnectRate, OneAddressTakesNothingFromAnother) {
  ConnectRate rate(kAtOnce);
  while (rate.allow("a", kBeginNs)) {
  }
  EXPECT_TRUE(rate.allow("b", kBeginNs));
  EXPECT_FALSE(rate.allow("a", kBeginNs));
}

TEST(ConnectRate, WhoHasBeenQuietMayComeInNumbersAgain) {
  ConnectRate rate(kAtOnce);
  while (rate.allow("a", kBeginNs)) {
  }
  uint64_t allowed = 0;
  while (rate.allow("a", kBeginNs + kSecond)) ++allowed;
  EXPECT_EQ(allowed, kAtOnce);
}

TEST(ConnectRate, ManyAddressesThatComeOnceDoNotLetABusyOneOff) {
  ConnectRate rate(kAtOnce);
  while (rate.allow("busy", kBeginNs)) {
  }
  for (int i = 0; i < 5000; ++i) EXPECT_TRUE(rate.allow(std::to_string(i), kBeginNs));
  EXPECT_FALSE(rate.allow("busy", kBeginNs));
}

// As each wire says who its peer is.
TEST(AddressOf, IsThatOfTheNetwork) {
  EXPECT_EQ(address_of("10.1.0.2:40312"), "10.1.0.2");
  EXPECT_EQ(address_of("10.1.0.2:40312 through rxe_b0"), "10.1.0.2");
  EXPECT_EQ(address_of("10.1.0.2:40312 (process client of machine client)"), "10.1.0.2");
  EXPECT_EQ(address_of("process 12 on this host"), "process 12 on this host");
  // The other 64 bits a host chooses for itself.
  EXPECT_EQ(address_of("2001:db8:1:2::1:40312"), "2001:db8:1:2::/64");
  EXPECT_EQ(address_of("[2001:db8:1:2:ffff::9]:40312 through mlx5_0"), "2001:db8:1:2::/64");
}

}  // namespace
}  // namespace braid::trs::server
