#include "cli/config/toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "cli/table.h"

// toml++ 3.3 asserts that a table's header goes on with a key ("[=" stops the process) before it
// looks whether it does. Without its assertions it tells of the error; with NDEBUG it would take
// them for true.
#undef NDEBUG
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace braid::cli {

namespace {

// toml++ bounds nested values, but not the tables that a key with dots makes, which are taken apart
// by recursion.
constexpr size_t kDotsMax = 100;
constexpr size_t kWrittenMax = 60;

/// The place of the first key with more dots than that; line 0: there is none. It looks at texts
/// and comments, too, where so many words with nothing but dots between them do not stand.
Place too_deep(std::string_view text, const std::string& file) {
  Place at{file, 1, 0};
  size_t dots = 0;
  bool behind_key = false;
  for (const char c : text) {
    ++at.column;
    if (c == '\n') {
      ++at.line;
      at.column = 0;
    }
    if (c == '.') {
      dots = behind_key ? dots + 1 : 0;
      behind_key = false;
    } else if (c == '\n' || c == '=' || c == ',' || c == '[' || c == '{' || c == '#') {
      dots = 0;
      behind_key = false;
    } else if (c != ' ' && c != '\t') {
      behind_key = true;
    }
    if (dots > kDotsMax) return at;
  }
  return {};
}

Place place_of(const toml::source_region& source, const std::string& file) {
  return {file, source.begin.line, source.begin.column};
}

template <typename T>
std::string streamed(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

Value value_of(const toml::node& node, const std::string& file);

void add_members(const toml::table& table, const std::string& file, Value& into) {
  for (const auto& [key, node] : table) {
    Value member = value_of(node, file);
    member.key = std::string(key.str());
    member.key_place = place_of(key.source(), file);
    into.items.push_back(std::move(member));
  }
  std::stable_sort(into.items.begin(), into.items.end(), [](const Value& a, const Value& b) {
    const auto at = [](const Value& one) {
      return std::pair(one.key_place.line, one.key_place.column);
    };
    return at(a) < at(b);
  });
}

Value value_of(const toml::node& node, const std::string& file) {
  Value value;
  value.place = place_of(node.source(), file);
  if (const auto* text = node.as_string()) {
    value.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    value.kind = ValueKind::kInteger;
    value.integer = integer->get();
  } else if (const auto* truth = node.as_boolean()) {
    value.kind = ValueKind::kTruth;
    value.truth = truth->get();
  } else if (const auto* number = node.as_floating_point()) {
    value.kind = ValueKind::kNumber;
    value.text = fmt::format("{}", number->get());
  } else if (const auto* list = node.as_array()) {
    value.kind = ValueKind::kList;
    for (const toml::node& item : *list) value.items.push_back(value_of(item, file));
  } else if (const auto* table = node.as_table()) {
    value.kind = ValueKind::kTable;
    add_members(*table, file, value);
  } else {
    value.kind = ValueKind::kDate;
    if (const auto* date = node.as_date()) value.text = streamed(date->get());
    if (const auto* time = node.as_time()) value.text = streamed(time->get());
    if (const auto* both = node.as_date_time()) value.text = streamed(both->get());
  }
  return value;
}

}  // namespace

std::string Place::text() const {
  if (line == 0) return printable(file);
  return fmt::format("{}:{}:{}", printable(file), line, column);
}

std::string Problem::text() const {
  return fmt::format("{}: {}{}", place.text(), warning ? "warning: " : "", printable(what));
}

std::string Value::written() const {
  switch (kind) {
    case ValueKind::kText: {
      if (text.size() <= kWrittenMax) return fmt::format("\"{}\"", text);
      size_t end = kWrittenMax;  // not within a character
      while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
      return fmt::format("\"{}...\"", text.substr(0, end));
    }
    case ValueKind::kInteger:
      return fmt::format("{}", integer);
    case ValueKind::kTruth:
      return truth ? "true" : "false";
    case ValueKind::kNumber:
    case ValueKind::kDate:
      return text;
    case ValueKind::kList:
    case ValueKind::kTable:
      break;
  }
  const bool list = kind == ValueKind::kList;
  std::string inner;
  for (const Value& item : items) {
    if (inner.size() > kWrittenMax) {
      inner += ", ...";
      break;
    }
    inner += inner.empty() ? "" : ", ";
    if (!list) inner += item.key + " = ";
    const bool deep = item.kind == ValueKind::kList || item.kind == ValueKind::kTable;
    inner += deep ? "..." : item.written();
  }
  return fmt::format("{}{}{}", list ? '[' : '{', inner, list ? ']' : '}');
}

std::variant<Value, Problem> parse_toml(std::string_view text, const std::string& file) {
  if (text.size() > kTomlBytesMax)
    return Problem{
        {file, 0, 0},
        fmt::format("it has {} bytes; at most {} are right", text.size(), kTomlBytesMax)};
  if (const Place deep = too_deep(text, file); deep.line > 0)
    return Problem{deep, fmt::format("a key with more than {} dots", kDotsMax)};
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& wrong = parsed.error();
    return Problem{place_of(wrong.source(), file), std::string(wrong.description())};
  }
  return value_of(parsed.table(), file);
}

}  // namespace braid::cli
