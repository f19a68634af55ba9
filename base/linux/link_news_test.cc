// What LinuxHost tells of links: of interfaces in a network namespace of the test's own.
#include "base/linux/link_news.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>

#include "base/linux/test_support.h"
#include "base/linux_test_network.h"

namespace braid::base {
namespace {

constexpr const char* kIp = "10.213.8.1";
constexpr const char* kIpBits = "10.213.8.1/24";
constexpr std::optional<bool> kUp = true;
constexpr std::optional<bool> kDown = false;

bool wait(Host& host, const std::function<bool()>& done) {
  const uint64_t deadline_ns = host.now_ns() + 30 * kSecond;
  while (!done()) {
    if (host.now_ns() > deadline_ns) return false;
    host.yield();
  }
  return true;
}

/// How many messages the kernel could not leave with the netlink sockets of this namespace.
unsigned long messages_lost() {
  std::ifstream table("/proc/thread-self/net/netlink");
  std::string line, word;
  std::getline(table, line);  // the titles
  unsigned long lost = 0;
  while (std::getline(table, line)) {
    std::istringstream columns(line);
    for (int column = 0; column < 9; ++column) columns >> word;
    lost += std::stoul(word);
  }
  return lost;
}

testing::AssertionResult becomes(Host& host, std::optional<bool> wanted) {
  if (wait(host, [&] { return host.has_link(kIp) == wanted; })) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "it did not within 30 s";
}

TEST(Links, addresses_without_an_interface_have_a_link_as_far_as_they_are_here) {
  auto host = quiet_linux_host();
  EXPECT_EQ(host->has_link("127.0.0.1"), kUp);
  EXPECT_EQ(host->has_link("127.3.2.1"), kUp);
  EXPECT_EQ(host->has_link("192.0.2.1"), kDown) << "nobody's";
  EXPECT_EQ(host->has_link("2001:db8::1"), kDown) << "nobody's";
  EXPECT_EQ(host->has_link("localhost"), kDown) << "no address";
  EXPECT_EQ(host->has_link(""), kDown);
}

TEST(Links, a_link_is_that_of_any_interface_which_has_the_address) {
  const bool ran = with_cable(kIpBits, [] {
    auto host = quiet_linux_host();
    EXPECT_TRUE(becomes(*host, kUp));
    ASSERT_TRUE(run_command("ip link set far down"));
    EXPECT_TRUE(becomes(*host, kDown)) << "no carrier";
    // A second cable with the same address: the first one's end is still there, without carrier.
    ASSERT_TRUE(
        run_command("ip link add near2 type veth peer name far2 && ip link set near2 up && "
                    "ip link set far2 up && ip addr add 10.213.8.1/24 dev near2"));
    EXPECT_TRUE(becomes(*host, kUp));
    ASSERT_TRUE(
        run_command("ip link set near2 down && ip link set near2 name other && "
                    "ip link set other up"));
    EXPECT_TRUE(becomes(*host, kUp)) << "a name is nothing to an address";
    ASSERT_TRUE(run_command("ip link set other down"));
    EXPECT_TRUE(becomes(*host, kDown));
    ASSERT_TRUE(run_command("ip link set other up"));
    EXPECT_TRUE(becomes(*host, kUp));
    ASSERT_TRUE(run_command("ip link del other && ip link del near"));
    EXPECT_TRUE(becomes(*host, kDown)) << "the address is nobody's any more";
  });
  if (!ran) GTEST_SKIP() << kNeedsCable;
}

TEST(Links, addresses_of_version_6_are_found_however_they_are_written) {
  const bool ran = with_cable("2001:db8::8:1/64 nodad", [] {
    auto host = quiet_linux_host();
    EXPECT_EQ(host->has_link("2001:db8::8:1"), kUp);
    EXPECT_EQ(host->has_link("2001:0DB8:0:0::0008:0001"), kUp);
    ASSERT_TRUE(run_command("ip link set far down"));
    EXPECT_TRUE(wait(*host, [&] { return host->has_link("2001:DB8:0::8:1") == kDown; }));
  });
  if (!ran) GTEST_SKIP() << kNeedsCable;
}

TEST(Links, news_come_of_carriers_and_of_addresses_and_are_taken_once) {
  const bool ran = with_cable(kIpBits, [] {
    auto host = quiet_linux_host();
    auto news = std::move(*host->watch_links());
    // A carrier's news are a moment late: those of the cable's own making are over with this.
    ASSERT_TRUE(run_command("ip link set far down"));
    EXPECT_TRUE(becomes(*host, kDown));
    EXPECT_TRUE(wait(*host, [&] { return news->take(); }));
    ASSERT_TRUE(wait(*host, [&] { return !news->take(); }));
    ASSERT_TRUE(run_command("ip addr add 10.213.9.1/24 dev near"));
    EXPECT_TRUE(news->take()) << "of an address";
    EXPECT_FALSE(news->take());
    ASSERT_TRUE(run_command("ip addr del 10.213.9.1/24 dev near"));
    EXPECT_TRUE(news->take()) << "of its end";
    ASSERT_TRUE(run_command("ip link set far up"));
    EXPECT_TRUE(wait(*host, [&] { return host->has_link(kIp) == kUp && news->take(); }));
  });
  if (!ran) GTEST_SKIP() << kNeedsCable;
}

TEST(Links, more_news_than_there_is_room_for_are_news_and_others_follow) {
  const bool ran = with_cable(kIpBits, [] {
    auto host = quiet_linux_host();
    auto news = std::move(*host->watch_links());
    // Nobody takes any of them.
    for (int round = 0; round < 50 && messages_lost() == 0; ++round) {
      ASSERT_TRUE(
          run_command("for i in $(seq 200); do echo link set lo up; echo link set lo down; "
                      "done | ip -batch -"));
    }
    ASSERT_GT(messages_lost(), 0u);
    EXPECT_TRUE(news->take());
    EXPECT_TRUE(wait(*host, [&] { return !news->take(); }));
    ASSERT_TRUE(run_command("ip link set lo up"));
    EXPECT_TRUE(news->take());
  });
  if (!ran) GTEST_SKIP() << kNeedsCable;
}

}  // namespace
}  // namespace braid::base
