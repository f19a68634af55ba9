// Names of listeners and QP numbers of the in-host wire.
#include "vhca/soft/inhost/rendezvous.h"

#include <set>
#include <string>
#include <utility>

#include "base/test_host.h"
#include "vhca/soft/inhost/party_test.h"
#include "vhca/soft/inhost/qp_numbers.h"

namespace braid::vhca::soft::inhost {
namespace {

class RendezvousTest : public testing::Test {
 protected:
  static std::unique_ptr<base::Host> make_host() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    return std::move(*base::create_linux_host(options));
  }
  /// Whether a client that dials the address meets a listener.
  bool reaches(const Address& address) {
    auto names = listener_names(*host, address);
    EXPECT_TRUE(names.ok()) << names.error().message();
    for (const std::string& name : *names) {
      if (host->connect_local(name).ok()) return true;
    }
    return false;
  }
  std::unique_ptr<base::Host> host = make_host();
};

TEST_F(RendezvousTest, AddressesHaveOneSpelling) {
  EXPECT_EQ(*canonical_ip("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(*canonical_ip("0:0:0:0:0:0:0:1"), "::1");
  for (const char* wrong : {"", "localhost", "127.0.0.1:80", "1.2.3", "[::1]", "127.0.0.01x"}) {
    const auto refused = canonical_ip(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.code(), base::Errc::kInvalid);
    EXPECT_NE(refused.error().message().find(wrong), std::string::npos);
  }
}

TEST_F(RendezvousTest, AWildcardListenerIsMetAtEveryAddressOfItsFamily) {
  auto v4 = bind_listener(*host, {.ip = "0.0.0.0", .port = 0});
  ASSERT_TRUE(v4.ok());
  const uint16_t port = v4->address.port;
  EXPECT_TRUE(reaches({.ip = "127.0.0.1", .port = port}));
  EXPECT_TRUE(reaches({.ip = "127.9.8.7", .port = port}));
  EXPECT_FALSE(reaches({.ip = "127.0.0.1", .port = static_cast<uint16_t>(port ^ 1)}));
}

TEST_F(RendezvousTest, AListenerOfOneAddressIsNotMetAtAnother) {
  auto bound = bind_listener(*host, {.ip = "127.0.0.2", .port = 0});
  ASSERT_TRUE(bound.ok());
  EXPECT_TRUE(reaches({.ip = "127.0.0.2", .port = bound->address.port}));
  EXPECT_FALSE(reaches({.ip = "127.0.0.1", .port = bound->address.port}));
}

TEST_F(RendezvousTest, ATakenPortAndAForeignAddressAreRefused) {
  auto bound = bind_listener(*host, {.ip = "127.0.0.1", .port = 0});
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bind_listener(*host, bound->address).code(), base::Errc::kExists);
  EXPECT_EQ(bind_listener(*host, {.ip = "192.0.2.9", .port = 0}).code(), base::Errc::kInvalid);
  EXPECT_EQ(listener_names(*host, {.ip = "192.0.2.9", .port = 7}).code(),
            base::Errc::kNotSupported);
  EXPECT_EQ(listener_names(*host, {.ip = "127.0.0.1", .port = 0}).code(), base::Errc::kInvalid);
}

TEST_F(RendezvousTest, QpNumbersDifferBetweenProcessesAndComeBack) {
  constexpr int kNumbers = 1000;
  QpNumbers numbers(*host);
  std::set<uint32_t> mine;
  for (int i = 0; i < kNumbers; ++i) mine.insert(numbers.allocate());
  EXPECT_EQ(mine.size(), static_cast<size_t>(kNumbers));
  EXPECT_GT(*mine.begin(), 1U);
  EXPECT_LT(*mine.rbegin(), 1U << 24);
  Child child([](const auto& tell) {
    const auto other_host = make_host();
    QpNumbers others(*other_host);
    for (int i = 0; i < kNumbers; ++i) tell(others.allocate());
    return 0;
  });
  for (int i = 0; i < kNumbers; ++i) EXPECT_TRUE(mine.insert(child.number()).second);
  EXPECT_EQ(child.wait(), 0);
  const uint32_t last = numbers.allocate();
  numbers.release(last);
  EXPECT_NE(numbers.allocate(), 0U);
}

TEST_F(RendezvousTest, AQpNumberSaysNothingOfTheNextAndIsNotUsedAgainSoon) {
  QpNumbers numbers(*host);
  std::vector<uint32_t> given;
  for (int i = 0; i < 100; ++i) {
    given.push_back(numbers.allocate());
    numbers.release(given.back());
  }
  EXPECT_EQ(std::set<uint32_t>(given.begin(), given.end()).size(), given.size());
  // Two random ones lie within 256 in one of 32768 cases.
  int near = 0;
  for (size_t i = 1; i < given.size(); ++i) {
    near += std::abs(static_cast<int>(given[i]) - static_cast<int>(given[i - 1])) < 256 ? 1 : 0;
  }
  EXPECT_LT(near, 3);
}

/// Counts what is drawn, and lets names be claimed unless they are taken.
class DrawingHost final : public base::TestHost {
 public:
  class Claim final : public base::LocalListener {
   public:
    base::Result<std::unique_ptr<base::LocalSocket>> accept() override {
      return base::make_error(base::Errc::kWouldBlock, "nobody");
    }
    const base::Handle& handle() const override { std::abort(); }
  };
  void random(std::span<std::byte> bytes) override {
    ++draws;
    std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(draws));
  }
  base::Result<std::unique_ptr<base::LocalListener>> listen_local(std::string_view name) override {
    if (!names.insert(std::string(name)).second) {
      return base::make_error(base::Errc::kExists, "{} is taken", name);
    }
    return std::unique_ptr<base::LocalListener>(std::make_unique<Claim>());
  }
  int draws = 0;
  std::set<std::string> names;
};

// A permutation by what the machine tells of itself could be followed by whoever is told.
TEST(QpNumberTest, EachNumberIsDrawnAndClaimedAnew) {
  DrawingHost host;
  QpNumbers numbers(host);
  std::set<uint32_t> given;
  for (int i = 1; i <= 20; ++i) {
    given.insert(numbers.allocate());
    EXPECT_EQ(host.draws, i);
    EXPECT_EQ(host.names.size(), given.size());
  }
  EXPECT_EQ(given.size(), 20u);
  for (const uint32_t number : given) numbers.release(number);
}

TEST(QpNumberTest, ANumberThatIsTakenIsDrawnAgain) {
  DrawingHost host;
  QpNumbers other(host);
  const uint32_t taken = other.allocate();
  host.draws = 0;
  QpNumbers numbers(host);
  EXPECT_NE(numbers.allocate(), taken);
  EXPECT_EQ(host.draws, 2);
}

}  // namespace
}  // namespace braid::vhca::soft::inhost
