#include "cli/top/screen.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "cli/table.h"

namespace braid::cli {

using nlohmann::json;

namespace {

constexpr const char* kBold = "\x1b[1m";
constexpr const char* kRed = "\x1b[31m";
constexpr const char* kReverse = "\x1b[7m";
constexpr const char* kPlain = "\x1b[0m";

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues_character(c); }));
}

std::string fill(std::string text, size_t width, bool right) {
  const size_t columns = columns_of(text);
  const std::string blanks(width > columns ? width - columns : 0, ' ');
  return right ? blanks + text : text + blanks;
}

std::string number_or_dash(const std::optional<double>& value) {
  return value ? short_number(*value) : "-";
}

std::string with_unit(double bytes) {
  return fmt::format("{:.1f}", bytes / 1e6);
}

struct Column {
  const char* head;
  size_t width;
  bool right;
  std::string (*cell)(const TopRow& row);
};

template <double Rates::*Member>
std::string rate_cell(const TopRow& row) {
  return row.rates ? short_number(row.rates.value().*Member) : "-";
}
template <double Rates::*Member>
std::string megabytes_cell(const TopRow& row) {
  return row.rates ? with_unit(row.rates.value().*Member) : "-";
}
template <std::optional<double> Rates::*Member>
std::string optional_cell(const TopRow& row) {
  return row.rates ? number_or_dash(row.rates.value().*Member) : "-";
}

// The most needed first: a narrow terminal does without the last ones.
const std::array<Column, 11> kColumns = {{
    {"KIND", 6, false, [](const TopRow& row) { return std::string(to_string(row.kind)); }},
    {"NAME", 20, false, [](const TopRow& row) { return row.name; }},
    {"READ/s", 7, true, rate_cell<&Rates::reads>},
    {"WRITE/s", 7, true, rate_cell<&Rates::writes>},
    {"RD MB/s", 8, true, megabytes_cell<&Rates::read_bytes>},
    {"WR MB/s", 8, true, megabytes_cell<&Rates::written_bytes>},
    {"P50 us", 7, true, optional_cell<&Rates::p50_us>},
    {"P99 us", 7, true, optional_cell<&Rates::p99_us>},
    {"QUEUE", 6, true, optional_cell<&Rates::queue>},
    {"STATE", 12, false, [](const TopRow& row) { return row.state; }},
    {"NODE", 10, false, [](const TopRow& row) { return row.node; }},
}};
constexpr size_t kNameColumn = 1, kStateColumn = 9, kNodeColumn = 10;

/// Widths of the columns that fit, the state always among them: it is what an operator looks for.
std::vector<std::pair<size_t, size_t>> layout(const TopView& view, size_t width) {
  std::array<size_t, kColumns.size()> wide{};
  for (size_t i = 0; i < kColumns.size(); ++i) wide[i] = kColumns[i].width;
  for (const size_t i : {kNameColumn, kStateColumn, kNodeColumn}) {
    size_t longest = columns_of(kColumns[i].head);
    for (const TopRow& row : view.rows)
      longest = std::max(longest, columns_of(printable(kColumns[i].cell(row))));
    wide[i] = i == kNameColumn ? std::clamp<size_t>(longest, 8, 48) : std::min<size_t>(longest, 24);
  }
  std::vector<size_t> order = {kNameColumn, kStateColumn};
  for (size_t i = 0; i < kColumns.size(); ++i)
    if (i != kNameColumn && i != kStateColumn) order.push_back(i);
  std::vector<std::pair<size_t, size_t>> fits;
  size_t used = 0;
  for (const size_t i : order) {
    const size_t gap = fits.empty() ? 0 : 1;
    if (used + gap + wide[i] > width) break;
    used += gap + wide[i];
    fits.emplace_back(i, wide[i]);
  }
  if (fits.empty()) fits.emplace_back(kNameColumn, width);
  std::sort(fits.begin(), fits.end());
  return fits;
}

template <typename Cell>
std::string line_of(const std::vector<std::pair<size_t, size_t>>& columns, Cell cell) {
  std::string line;
  for (const auto& [index, width] : columns) {
    if (!line.empty()) line += ' ';
    line += fill(cut(printable(cell(kColumns[index])), width), width, kColumns[index].right);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

bool is_well(const TopRow& row) {
  return row.kind == RowKind::kExport || row.state == "open" || row.state == "connected";
}

/// What is said above the table, line by line.
std::vector<std::string> heading(const TopView& view, const ScreenOptions& options) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("braid top  {}  {} node{}, each {:.3g} s, by {}{}", view.time,
                              view.nodes, view.nodes == 1 ? "" : "s", view.interval_s,
                              to_string(options.order), options.paused ? "  PAUSED" : ""));
  for (const std::string& why : view.silent) lines.push_back("silent: " + printable(why));
  return lines;
}

std::string colored(const std::string& text, const char* color, bool wanted) {
  return wanted ? color + text + kPlain : text;
}

}  // namespace

std::string cut(std::string text, size_t width) {
  if (columns_of(text) <= width) return text;
  if (width == 0) return {};
  size_t columns = 0, at = 0;
  while (at < text.size()) {
    if (!continues_character(text[at]) && columns++ == width - 1) break;
    ++at;
  }
  return text.substr(0, at) + "~";
}

std::string short_number(double value) {
  constexpr std::array<const char*, 4> kUnits = {"", "k", "M", "G"};
  size_t unit = 0;
  while (value >= 9999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  if (value == 0) return "0";
  return fmt::format("{:.{}f}{}", value, value < 99.95 ? 1 : 0, kUnits[unit]);
}

size_t rows_on_screen(const TopView& view, const ScreenOptions& options) {
  const size_t taken = heading(view, options).size() + 2;  // heads, and the line of keys
  return options.height > taken ? options.height - taken : 0;
}

std::string screen_text(const TopView& view, const ScreenOptions& options) {
  std::vector<std::string> lines;
  const std::vector<std::string> above = heading(view, options);
  for (size_t i = 0; i < above.size(); ++i)
    lines.push_back(colored(cut(above[i], options.width), i == 0 ? kBold : kRed, options.color));
  const auto columns = layout(view, options.width);
  const std::string heads =
      line_of(columns, [](const Column& column) { return std::string(column.head); });
  lines.push_back(
      colored(fill(heads, options.color ? options.width : 0, false), kReverse, options.color));
  const size_t room = rows_on_screen(view, options);
  const size_t first =
      std::min(options.first, view.rows.size() > room ? view.rows.size() - room : 0);
  const size_t last = std::min(view.rows.size(), first + room);
  for (size_t i = first; i < last; ++i) {
    const TopRow& row = view.rows[i];
    lines.push_back(
        colored(line_of(columns, [&](const Column& column) { return column.cell(row); }), kRed,
                options.color && !is_well(row)));
  }
  if (view.rows.empty()) lines.push_back(cut("nothing is mapped or exported here", options.width));
  std::string keys = "q quit  p pause  s sort  up/down";
  if (last - first < view.rows.size())
    keys += fmt::format("  {}-{} of {}", first + 1, last, view.rows.size());
  lines.push_back(cut(keys, options.width));
  if (lines.size() > options.height) lines.resize(options.height);
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string batch_text(const TopView& view) {
  std::vector<std::string> heads;
  for (const Column& column : kColumns)
    heads.push_back((column.right ? ">" : "") + std::string(column.head));
  Table table(heads);
  for (const TopRow& row : view.rows) {
    std::vector<std::string> cells;
    for (const Column& column : kColumns) cells.push_back(printable(column.cell(row)));
    table.row(std::move(cells));
  }
  std::string text =
      fmt::format("{}  {} node{}\n", view.time, view.nodes, view.nodes == 1 ? "" : "s");
  for (const std::string& why : view.silent) text += "silent: " + printable(why) + "\n";
  return text + (table.empty() ? "nothing is mapped or exported here\n" : table.text());
}

json to_json(const TopView& view) {
  const auto number = [](const std::optional<double>& value) {
    return value ? json(*value) : json(nullptr);
  };
  json rows = json::array();
  for (const TopRow& row : view.rows) {
    json rates = nullptr;
    if (row.rates)
      rates = {{"reads_per_s", row.rates->reads},
               {"writes_per_s", row.rates->writes},
               {"read_bytes_per_s", row.rates->read_bytes},
               {"written_bytes_per_s", row.rates->written_bytes},
               {"errors_per_s", row.rates->errors},
               {"queue", number(row.rates->queue)},
               {"p50_us", number(row.rates->p50_us)},
               {"p99_us", number(row.rates->p99_us)}};
    rows.push_back({{"kind", to_string(row.kind)},
                    {"name", row.name},
                    {"node", row.node},
                    {"state", row.state},
                    {"rates", rates}});
  }
  return {{"time", view.time},
          {"interval_s", view.interval_s},
          {"nodes", view.nodes},
          {"silent", view.silent},
          {"rows", rows}};
}

}  // namespace braid::cli
