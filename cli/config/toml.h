// TOML text as a tree whose every part knows where it stands. Pure; any thread.
//
// The library that reads it (toml++) is seen by toml.cc only. Text comes from files that anybody
// may have written: depth and size are bounded, and nothing in it stops the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace braid::cli {

/// Of one text: more is no configuration.
inline constexpr size_t kTomlBytesMax = 1 << 20;

/// Where something stands. Line and column count from 1; line 0: no place in a text, `file` is all
/// that there is to say ("the command line").
struct Place {
  std::string file;
  unsigned line = 0;
  unsigned column = 0;
  std::string text() const;  // "FILE:LINE:COLUMN"
};

/// What is wrong with a configuration, or only strange.
struct Problem {
  Place place;
  std::string what;
  bool warning = false;
  std::string text() const;  // "FILE:LINE:COLUMN: what"
};

inline void wrong(std::vector<Problem>& problems, const Place& place, std::string what) {
  problems.push_back({place, std::move(what)});
}

enum class ValueKind : uint8_t { kText, kInteger, kNumber, kTruth, kDate, kList, kTable };

struct Value {
  ValueKind kind = ValueKind::kText;
  Place place;
  std::string text;     // of kText; of kNumber and kDate for people
  int64_t integer = 0;  // of kInteger
  bool truth = false;   // of kTruth
  /// Of kList in order; of kTable the members, in the order of the text.
  std::vector<Value> items;
  std::string key;  // of a table's member
  Place key_place;

  /// As one would write it, cut to a length that fits a sentence: `"64M"`, `5`, `[..]`, `{..}`.
  std::string written() const;
};

/// The table that the text is. Else what is wrong with it.
std::variant<Value, Problem> parse_toml(std::string_view text, const std::string& file);

}  // namespace braid::cli
