#include "cli/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/result.h"

namespace braid::cli {

std::string printable(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) text[i] = '?';
    // In UTF-8 the second half of the control characters is C2 80 to C2 9F.
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) text.replace(i, 2, "?");
  }
  return text;
}

Table::Table(std::vector<std::string> heads) : heads_(std::move(heads)) {
  for (std::string& head : heads_) {
    right_.push_back(head.starts_with('>'));
    if (right_.back()) head.erase(0, 1);
  }
}

void Table::row(std::vector<std::string> cells) {
  BRAID_ASSERT(cells.size() == heads_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> width(heads_.size());
  const auto widen = [&](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i) width[i] = std::max(width[i], cells[i].size());
  };
  widen(heads_);
  for (const auto& cells : rows_) widen(cells);
  std::string out;
  const auto print = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) line += "  ";
      line += right_[i] ? fmt::format("{:>{}}", cells[i], width[i])
                        : fmt::format("{:<{}}", cells[i], width[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  print(heads_);
  for (const auto& cells : rows_) print(cells);
  return out;
}

}  // namespace braid::cli
