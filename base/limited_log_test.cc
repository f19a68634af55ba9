#include "base/limited_log.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/test_host.h"
#include "base/test_lines.h"

namespace braid::base {
namespace {

using Lines = std::vector<std::string>;

class LimitedLogTest : public testing::Test {
 protected:
  static constexpr LimitedLog::Limits kLimits{.burst = 3, .per_second = 2};
  void pass(uint64_t ns) {
    host.clock_ns += ns;
    reactor->turn();
  }
  void say(const std::string& peer, int count) {
    for (int i = 0; i < count; ++i) log->of(peer).info("{} {}", peer, i);
  }
  /// Since the last call.
  Lines said() { return std::exchange(lines->all, {}); }

  TestHost host;
  std::unique_ptr<Reactor> reactor = std::move(Reactor::create(host, {})).value();
  std::shared_ptr<TestLines> lines = std::make_shared<TestLines>();
  std::optional<LimitedLog> log{std::in_place, *reactor, Logger(lines, "test", LogLevel::kInfo),
                                kLimits};
};

TEST_F(LimitedLogTest, a_burst_is_logged_and_then_so_many_a_second) {
  for (int i = 0; i < 10; ++i) log->info("line {}", i);
  EXPECT_EQ(said(), (Lines{"line 0", "line 1", "line 2"}));
  pass(kSecond / 2 - 1);
  log->info("too early");
  EXPECT_EQ(said(), Lines());
  pass(1);
  log->warning("in time");
  log->warning("once");
  EXPECT_EQ(said(), Lines{"in time"});
}

TEST_F(LimitedLogTest, after_a_rest_it_has_a_whole_burst_again) {
  for (int i = 0; i < 10; ++i) log->info("line {}", i);
  pass(3600 * kSecond);
  said();
  for (int i = 0; i < 10; ++i) log->info("line {}", i);
  EXPECT_EQ(said().size(), 3u);
}

TEST_F(LimitedLogTest, what_the_level_leaves_out_counts_for_nothing) {
  for (int i = 0; i < 10; ++i) log->of("a").log(LogLevel::kDebug, "line {}", i);
  log->of("a").info("the first");
  pass(2 * kSecond);
  EXPECT_EQ(said(), Lines{"the first"});
}

TEST_F(LimitedLogTest, one_peer_does_not_hide_what_is_said_of_another) {
  say("noisy", 100);
  said();
  say("other", 1);
  EXPECT_EQ(said(), Lines{"other 0"});
}

TEST_F(LimitedLogTest, what_is_left_out_is_told_by_peer_though_no_line_follows) {
  say("a", 5);
  say("b", 13);
  for (int i = 0; i < 4; ++i) log->info("of nobody");
  EXPECT_EQ(said().size(), 3u * 3);
  pass(kSecond - 1);
  EXPECT_EQ(said(), Lines());
  pass(1);
  EXPECT_EQ(said(), Lines{"13 lines of this kind were not logged: 10 of b, 2 of a, 1 of others"});
  pass(10 * kSecond);
  EXPECT_EQ(said(), Lines()) << "once";
}

TEST_F(LimitedLogTest, what_is_left_out_is_told_at_the_end) {
  say("a", 4);
  said();
  log.reset();
  EXPECT_EQ(said(), Lines{"1 lines of this kind were not logged: 1 of a"});
}

TEST_F(LimitedLogTest, of_many_peers_those_with_most_lines_are_named) {
  for (int i = 1; i <= 6; ++i) say("p" + std::to_string(i), 3 + i);
  said();
  pass(kSecond);
  EXPECT_EQ(said(), Lines{"21 lines of this kind were not logged: 6 of p6, 5 of p5, 4 of p4, "
                          "3 of p3, 3 of others"});
}

TEST_F(LimitedLogTest, peers_without_end_are_bounded_together) {
  for (int i = 0; i < 1000; ++i) say("p" + std::to_string(i), 2);
  EXPECT_EQ(said().size(), LimitedLog::kTogether * kLimits.burst);
  const int seconds = 10;
  size_t most = 0;
  for (int i = 0; i < 100 * seconds; ++i) {
    pass(kSecond / 100);
    say("q" + std::to_string(i), 2);
    most = said().size() + most;
  }
  const size_t told = seconds;  // what is left out, once a second
  EXPECT_LE(most, told + seconds * LimitedLog::kTogether * kLimits.per_second);
}

TEST_F(LimitedLogTest, peers_beyond_the_table_share_a_bucket_until_there_is_a_place) {
  log.emplace(*reactor, Logger(lines, "test", LogLevel::kInfo),
              LimitedLog::Limits{.burst = 20, .per_second = 2});
  for (size_t i = 0; i < LimitedLog::kPeers; ++i) say("p" + std::to_string(i), 1);
  said();
  say("late", 15);
  say("later", 15);
  EXPECT_EQ(said().size(), 20u);
  pass(60 * kSecond);
  said();
  say("late", 15);
  say("later", 15);
  EXPECT_EQ(said().size(), 30u);
}

}  // namespace
}  // namespace braid::base
