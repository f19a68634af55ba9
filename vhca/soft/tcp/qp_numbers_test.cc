// QP numbers of the TCP wire: each device has its own, and nothing leads from one to the next.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/linux_host.h"
#include "base/log.h"
#include "vhca/soft/tcp/wire.h"

namespace braid::vhca::soft::tcp {
namespace {

class TcpQpNumbers : public ::testing::Test {
 protected:
  static constexpr int kCount = 1000;
  TcpQpNumbers() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    host = std::move(*base::create_linux_host(options));
  }
  static std::vector<uint32_t> allocate(TcpWire& wire) {
    std::vector<uint32_t> all;
    for (int i = 0; i < kCount; ++i) all.push_back(wire.allocate_qp_number());
    return all;
  }
  std::unique_ptr<base::Host> host;
};

TEST_F(TcpQpNumbers, EachIsOneOf24BitsAndNobodyElsesOfTheDevice) {
  TcpWire wire(*host, "127.0.0.1", nullptr);
  const std::vector<uint32_t> all = allocate(wire);
  EXPECT_EQ(std::set<uint32_t>(all.begin(), all.end()).size(), all.size());
  // 0 and 1 name special QPs.
  for (const uint32_t each : all) EXPECT_TRUE(each >= 2 && each < 1u << 24) << each;
}

TEST_F(TcpQpNumbers, NoneTellsOfTheNextOrOfAnotherDevices) {
  TcpWire one(*host, "127.0.0.1", nullptr), other(*host, "127.0.0.1", nullptr);
  const std::vector<uint32_t> all = allocate(one);
  std::set<uint32_t> steps;
  for (size_t i = 1; i < all.size(); ++i) steps.insert(all[i] - all[i - 1]);
  EXPECT_GT(steps.size(), all.size() - 10) << "a pattern";
  EXPECT_NE(all, allocate(other));
}

}  // namespace
}  // namespace braid::vhca::soft::tcp
