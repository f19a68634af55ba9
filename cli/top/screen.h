// `braid top` as text: a page for a terminal of some size, a table for a file, an object for a
// program. Pure; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/top/rates.h"

namespace braid::cli {

/// One look at all nodes.
struct TopView {
  std::vector<TopRow> rows;         // sorted
  size_t nodes = 0;                 // that have answered
  std::vector<std::string> silent;  // why others have not; one sentence each
  double interval_s = 0;            // between two looks
  std::string time;                 // of the day
};

struct ScreenOptions {
  size_t width = 80, height = 24;
  bool color = true;
  bool paused = false;
  TopOrder order = TopOrder::kBytes;
  size_t first = 0;  // the first row that is shown
};

/// At most `height` lines of at most `width` columns, without a newline behind the last. What does
/// not fit is left out: columns from the right, rows with words that say so.
std::string screen_text(const TopView& view, const ScreenOptions& options);
/// How many rows a page has room for.
size_t rows_on_screen(const TopView& view, const ScreenOptions& options);

/// All rows, without escape sequences; lines that end with a newline.
std::string batch_text(const TopView& view);
nlohmann::json to_json(const TopView& view);

/// As wide as `width` columns at most; a last '~' says that something is missing. Characters of
/// UTF-8 take one column each.
std::string cut(std::string text, size_t width);

/// "0", "9.9", "123", "12.3k", "4.5M": at most five characters up to 9999 of its largest unit.
std::string short_number(double value);

}  // namespace braid::cli
