#include "base/limited_log.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/test_host.h"
#include "base/test_lines.h"

namespace braid::base {
namespace {

class LimitedLogTest : public testing::Test {
 protected:
  void pass(uint64_t ns) {
    host.clock_ns += ns;
    reactor->turn();
  }

  TestHost host;
  std::unique_ptr<Reactor> reactor = std::move(Reactor::create(host, {})).value();
  std::shared_ptr<TestLines> lines = std::make_shared<TestLines>();
  LimitedLog log{*reactor, Logger(lines, "test", LogLevel::kInfo), {.burst = 3, .per_second = 2}};
};

TEST_F(LimitedLogTest, a_burst_is_logged_and_then_so_many_a_second) {
  for (int i = 0; i < 10; ++i) log.info("line {}", i);
  EXPECT_EQ(lines->all, (std::vector<std::string>{"line 0", "line 1", "line 2"}));
  pass(kSecond / 2 - 1);
  log.info("too early");
  EXPECT_EQ(lines->all.size(), 3u);
  pass(1);
  log.warning("in time");
  ASSERT_EQ(lines->all.size(), 5u);
  EXPECT_EQ(lines->all[3], "8 lines of this kind were not logged before this one");
  EXPECT_EQ(lines->all[4], "in time");
}

TEST_F(LimitedLogTest, after_a_rest_it_has_a_whole_burst_again) {
  for (int i = 0; i < 10; ++i) log.info("line {}", i);
  pass(3600 * kSecond);
  lines->all.clear();
  for (int i = 0; i < 10; ++i) log.info("line {}", i);
  EXPECT_EQ(lines->all.size(), 1u + 3u);
}

TEST_F(LimitedLogTest, what_the_level_leaves_out_counts_for_nothing) {
  for (int i = 0; i < 10; ++i) log.log(LogLevel::kDebug, "line {}", i);
  log.info("the first");
  EXPECT_EQ(lines->all, (std::vector<std::string>{"the first"}));
}

}  // namespace
}  // namespace braid::base
