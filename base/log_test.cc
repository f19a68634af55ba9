#include "base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <vector>

namespace braid::base {
namespace {

class LogLines : public LogSink {
 public:
  void write(LogLevel level, std::string_view name, std::string_view message) override {
    lines.push_back(fmt::format("{} {}: {}", to_string(level), name, message));
  }
  std::vector<std::string> lines;
};

TEST(Logger, FormatsAndFiltersByLevel) {
  auto sink = std::make_shared<LogLines>();
  Logger log(sink, "braid", LogLevel::kInfo);
  log.debug("hidden {}", 1);
  log.info("path {} is up", 2);
  log.warning("late");
  log.error("gone: {}", "peer");
  EXPECT_EQ(sink->lines,
            (std::vector<std::string>{"info braid: path 2 is up", "warning braid: late",
                                      "error braid: gone: peer"}));
}

TEST(Logger, ChildrenHaveLongerNamesAndFollowTheLevel) {
  auto sink = std::make_shared<LogLines>();
  Logger log(sink, "braid", LogLevel::kOff);
  Logger child = log.child("trs").child("path0");
  child.error("no");
  log.set_level(LogLevel::kDebug);
  child.debug("yes");
  EXPECT_EQ(sink->lines, std::vector<std::string>{"debug braid.trs.path0: yes"});
}

TEST(Logger, WhatAPeerSaysBeginsNoLineAndTellsTheTerminalNothing) {
  auto sink = std::make_shared<LogLines>();
  Logger log(sink, "braid", LogLevel::kInfo);
  log.info("no device '{}'", "x\nerror braid: forged\x1b[2J\r\x7f\t");
  log.info("no device '{}'", "Größe " + std::string(2000, '\n'));
  std::string many;
  for (int i = 0; i < 2000; ++i) many += "\\x0a";
  EXPECT_EQ(sink->lines,
            (std::vector<std::string>{
                "info braid: no device 'x\\x0aerror braid: forged\\x1b[2J\\x0d\\x7f\\x09'",
                "info braid: no device 'Größe " + many + "'"}));
}

TEST(Logger, ControlCharactersOfTwoBytesAndWhatIsNoUtf8AreShownByTheirBytes) {
  auto sink = std::make_shared<LogLines>();
  Logger log(sink, "braid", LogLevel::kInfo);
  log.info("{}", "a\xc2\x9b\x31m b\x9b c\xc3 d\xe0\x82\x9b\xff");
  log.info("{}", "\xc2\xa0 \xe2\x82\xac \xf0\x9f\x98\x80");
  log.info("{}", "cut off \xe2\x82");
  EXPECT_EQ(sink->lines, (std::vector<std::string>{
                             "info braid: a\\xc2\\x9b1m b\\x9b c\\xc3 d\\xe0\\x82\\x9b\\xff",
                             "info braid: \xc2\xa0 \xe2\x82\xac \xf0\x9f\x98\x80",
                             "info braid: cut off \\xe2\\x82"}));
}

TEST(Logger, WritesWholeLinesToAFile) {
  const std::string path = testing::TempDir() + "/braid-log-" + std::to_string(::getpid());
  {
    Logger log(make_file_sink(path), "braid", LogLevel::kInfo);
    log.info("curly {{}} braces and {}", "{}");
  }
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  ::unlink(path.c_str());
  EXPECT_NE(text.str().find("info    [braid] curly {} braces and {}\n"), std::string::npos)
      << text.str();
  EXPECT_EQ(make_file_sink("/proc/no-such-folder/log"), nullptr);
}

}  // namespace
}  // namespace braid::base
