#include "vhca/soft/tcp/complaint_box.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/test_host.h"
#include "base/test_lines.h"

namespace braid::vhca::soft::tcp {
namespace {

TEST(TcpComplaintBox, logs_a_few_of_each_address_and_none_when_it_is_closed) {
  base::TestHost host;
  const auto reactor = std::move(base::Reactor::create(host, {})).value();
  const auto lines = std::make_shared<base::TestLines>();
  const auto box = std::make_shared<ComplaintBox>();
  EXPECT_FALSE(box->put("10.0.0.2", "too early"));
  box->open(*reactor, base::Logger(lines, "test", base::LogLevel::kInfo));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(box->put("10.0.0.2", "noisy"));
  EXPECT_TRUE(box->put("10.0.0.3", "other"));
  EXPECT_TRUE(lines->all.empty()) << "not on this thread";
  reactor->turn();
  EXPECT_EQ(std::count(lines->all.begin(), lines->all.end(), "noisy"), 10);
  EXPECT_EQ(lines->all.back(), "other");
  EXPECT_TRUE(box->put("10.0.0.3", "too late to be heard"));
  box->close();
  EXPECT_FALSE(box->put("10.0.0.3", "too late"));
  EXPECT_EQ(lines->all.back(), "90 lines of this kind were not logged: 90 of 10.0.0.2");
  const size_t said = lines->all.size();
  reactor->turn();
  EXPECT_EQ(lines->all.size(), said);
}

}  // namespace
}  // namespace braid::vhca::soft::tcp
