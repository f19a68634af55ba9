// Output for people: aligned tables without ornament.
#pragma once

#include <string>
#include <vector>

namespace braid::cli {

/// The text with control characters replaced by '?': names and error texts come from other
/// machines.
std::string printable(std::string text);

class Table {
 public:
  /// Column heads; one starting with '>' is right-aligned.
  explicit Table(std::vector<std::string> heads);
  void row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  /// All lines, each ended by a newline.
  std::string text() const;

 private:
  std::vector<std::string> heads_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace braid::cli
