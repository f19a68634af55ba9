// Pages and tables of `braid top`, to the column.
#include "cli/top/screen.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace braid::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

TopView view_of(size_t rows) {
  TopView view;
  view.nodes = 1;
  view.interval_s = 1;
  view.time = "12:00:00";
  for (size_t i = 0; i < rows; ++i) {
    TopRow row{RowKind::kDevice, "daemon", "disk" + std::to_string(i), "open", Rates()};
    row.rates->reads = 12345;
    row.rates->read_bytes = 50.6e6;
    row.rates->p50_us = 17.4;
    row.rates->p99_us = 120;
    row.rates->queue = 0.4;
    view.rows.push_back(row);
  }
  return view;
}

std::vector<std::string> screen_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

size_t columns_of(const std::string& line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

TEST(Screen, shows_a_device_with_all_columns_where_there_is_room) {
  const std::string page = screen_text(view_of(1), {.width = 120, .height = 24, .color = false});
  const auto lines = screen_lines(page);
  ASSERT_EQ(lines.size(), 4u) << page;
  EXPECT_EQ(lines[0], "braid top  12:00:00  1 node, each 1 s, by bytes");
  EXPECT_THAT(lines[1], HasSubstr("KIND"));
  EXPECT_THAT(lines[2], testing::MatchesRegex("device disk0 +12.3k +0.0|device disk0 .*"));
  for (const char* cell : {"12.3k", "50.6", "17.4", "120", "0.4", "open", "daemon"})
    EXPECT_THAT(lines[2], HasSubstr(cell));
  EXPECT_THAT(lines[3], HasSubstr("q quit"));
}

TEST(Screen, fits_every_size_of_terminal) {
  TopView view = view_of(30);
  view.rows[3].name = std::string(200, 'n') + "\xc3\xbc";
  view.rows[4].state = "unavailable (gave up)";
  view.silent = {"node \"a\": the node does not answer: " + std::string(100, 'w')};
  for (size_t width = 1; width <= 200; width += 3)
    for (const size_t height : {1u, 2u, 4u, 10u, 24u, 80u}) {
      const auto lines =
          screen_lines(screen_text(view, {.width = width, .height = height, .color = false}));
      ASSERT_LE(lines.size(), height) << width;
      for (const std::string& line : lines) ASSERT_LE(columns_of(line), width) << line;
    }
}

TEST(Screen, a_narrow_one_keeps_name_and_state) {
  const std::string page = screen_text(view_of(1), {.width = 24, .height = 24, .color = false});
  EXPECT_THAT(page, HasSubstr("disk0"));
  EXPECT_THAT(page, HasSubstr("open"));
  EXPECT_THAT(page, Not(HasSubstr("P99")));
}

TEST(Screen, moves_and_says_what_is_shown) {
  const TopView view = view_of(30);
  ScreenOptions options{.width = 100, .height = 13, .color = false};
  EXPECT_EQ(rows_on_screen(view, options), 10u);
  EXPECT_THAT(screen_text(view, options), HasSubstr("1-10 of 30"));
  options.first = 5;
  const std::string page = screen_text(view, options);
  EXPECT_THAT(page, HasSubstr("disk5 "));
  EXPECT_THAT(page, Not(HasSubstr("disk4 ")));
  options.first = 99;
  EXPECT_THAT(screen_text(view, options), HasSubstr("21-30 of 30"));
}

TEST(Screen, without_color_has_no_escape_and_names_none_of_others) {
  TopView view = view_of(2);
  view.rows[0].name = "x\x1b[2Jy";
  view.rows[1].state = "path-down";
  view.silent = {"node \"\x1b]0;z\": gone"};
  EXPECT_THAT(screen_text(view, {.color = false}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(batch_text(view), Not(HasSubstr("\x1b")));
  const std::string colored = screen_text(view, {.color = true});
  EXPECT_THAT(colored, HasSubstr("\x1b[31mdevice disk1"));
  EXPECT_THAT(colored, Not(HasSubstr("\x1b[2J")));
}

TEST(Screen, says_that_there_is_nothing_and_who_is_silent_and_that_it_is_paused) {
  TopView view = view_of(0);
  view.silent = {"node \"a\" has ended"};
  const std::string page = screen_text(view, {.color = false, .paused = true});
  EXPECT_THAT(page, HasSubstr("nothing is mapped or exported here"));
  EXPECT_THAT(page, HasSubstr("silent: node \"a\" has ended"));
  EXPECT_THAT(page, HasSubstr("PAUSED"));
}

TEST(Batch, is_a_table_of_all_rows) {
  TopView view = view_of(50);
  view.rows[7].rates.reset();
  const auto lines = screen_lines(batch_text(view));
  ASSERT_EQ(lines.size(), 52u);
  EXPECT_EQ(lines[0], "12:00:00  1 node");
  EXPECT_THAT(lines[9], testing::MatchesRegex("device  disk7 +- +- .*"));
}

TEST(TopJson, tells_rates_or_null) {
  TopView view = view_of(2);
  view.rows[1].rates.reset();
  const json told = to_json(view);
  EXPECT_EQ(told["rows"][0]["rates"]["reads_per_s"], 12345);
  EXPECT_EQ(told["rows"][0]["rates"]["p99_us"], 120);
  EXPECT_EQ(told["rows"][1]["rates"], nullptr);
  EXPECT_EQ(told["rows"][1]["kind"], "device");
}

TEST(ShortNumber, keeps_to_five_characters) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.04), "0.0");
  EXPECT_EQ(short_number(9.94), "9.9");
  EXPECT_EQ(short_number(99.96), "100");
  EXPECT_EQ(short_number(9999), "9999");
  EXPECT_EQ(short_number(12'345), "12.3k");
  EXPECT_EQ(short_number(123'456), "123k");
  EXPECT_EQ(short_number(9'999'999), "10.0M");
  EXPECT_EQ(short_number(1.5e9), "1500M");
}

TEST(Cut, keeps_characters_whole) {
  EXPECT_EQ(cut("abc", 3), "abc");
  EXPECT_EQ(cut("abcd", 3), "ab~");
  EXPECT_EQ(cut("\xc3\xbc\xc3\xbc\xc3\xbc", 3), "\xc3\xbc\xc3\xbc\xc3\xbc");
  EXPECT_EQ(cut("\xc3\xbc\xc3\xbc\xc3\xbc", 2), "\xc3\xbc~");
  EXPECT_EQ(cut("abc", 0), "");
}

}  // namespace
}  // namespace braid::cli
