#include "base/mount_line.h"

#include <algorithm>
#include <charconv>

namespace braid::base {
namespace {

/// Up to a space, which is taken along. Nothing else ends a word: the kernel writes spaces, tabs,
/// newlines and backslashes of names as \ooo, and other bytes as they are.
std::string_view take_word(std::string_view& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

std::string unescape(std::string_view text) {
  const auto digit = [&](size_t at) {
    return at < text.size() && text[at] >= '0' && text[at] < '8';
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && digit(i + 1) && digit(i + 2) && digit(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::optional<MountLine> parse_mount_line(std::string_view line) {
  // id parent major:minor root mount-point options [tags] - type source super-options
  MountLine found;
  const std::string_view id = take_word(line);
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), found.id);
  if (error != std::errc() || end != id.data() + id.size()) return std::nullopt;
  take_word(line);
  found.device = take_word(line);
  take_word(line);
  found.point = unescape(take_word(line));
  if (found.device.empty() || found.point.empty()) return std::nullopt;
  while (!line.empty() && take_word(line) != "-") {
  }
  take_word(line);
  found.source = unescape(take_word(line));
  return found;
}

std::string swap_in_line(std::string_view line) {
  // Filename, filled up with spaces, Type, Size, Used, Priority
  if (!line.starts_with('/')) return {};
  return unescape(line.substr(0, line.find_first_of(" \t")));
}

}  // namespace braid::base
