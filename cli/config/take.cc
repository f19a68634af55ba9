// Values of keys: what would be right, and whether one is.
#include <fmt/format.h>

#include <optional>

#include "bnbd/filters.h"
#include "bnbd/kernel_device.h"
#include "cli/config/keys.h"
#include "cli/metrics/options.h"
#include "cli/serve_arguments.h"
#include "cli/target.h"
#include "trs/keys.h"

namespace braid::cli {

using base::Status;

namespace {

constexpr uint64_t kPageBytes = 4096;

/// NAME:BASE64, or something very like it.
bool is_a_key_itself(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return false;
  if (trs::Key::parse(text).ok()) return true;
  const bool name = trs::check_key_name(text.substr(0, colon)).ok();
  return name && text.size() - colon > 20 && text.find('/') != 0;
}

std::optional<std::string> wrong_size(const ConfigKey& key, const Value& value, Value& taken) {
  if (value.kind == ValueKind::kInteger) {
    taken.kind = ValueKind::kText;
    taken.text = fmt::format("{}", value.integer);
  } else if (value.kind != ValueKind::kText) {
    return "";
  }
  const auto bytes = parse_size(taken.text);
  const bool fits = bytes.ok() && bytes.value() % kPageBytes == 0 &&
                    bytes.value() >= static_cast<uint64_t>(key.least) &&
                    (key.most == 0 || bytes.value() <= static_cast<uint64_t>(key.most));
  if (fits) return std::nullopt;
  return "";
}

std::optional<std::string> why(const Status& status) {
  if (status.ok()) return std::nullopt;
  return status.error().message();
}

template <typename T>
std::optional<std::string> why(const base::Result<T>& result) {
  if (result.ok()) return std::nullopt;
  return result.error().message();
}

/// Of a text: nothing if it is right, else why it is not, or "" where wanted_by() says it all.
std::optional<std::string> wrong_text(const ConfigKey& key, const std::string& text) {
  if (text.empty() || text.find('\0') != std::string::npos) return "";
  switch (key.kind) {
    case KeyKind::kKeyFile:
      if (is_a_key_itself(text))
        return "this is a key itself, and a file that others may read is no place for it: put it "
               "into a file of its own (mode 0600, see braid key new) and name that here";
      [[fallthrough]];
    case KeyKind::kPath:
      if (text.front() != '/') return "";
      return std::nullopt;
    case KeyKind::kWord: {
      const std::string words = fmt::format(", {}, ", key.words);
      if (text.find(',') != std::string::npos || words.find(", " + text + ", ") == words.npos)
        return "";
      return std::nullopt;
    }
    case KeyKind::kDuration:
      if (!parse_duration(text).ok()) return "";
      return std::nullopt;
    case KeyKind::kPollBudget:
      if (!parse_poll_budget(text).ok()) return "";
      return std::nullopt;
    case KeyKind::kAddresses:
      return why(parse_listen(text));
    case KeyKind::kTarget:
      return why(parse_target(text));
    case KeyKind::kDeviceName:
      return why(bnbd::check_device_name(text));
    case KeyKind::kMetrics:
      return why(parse_metrics(text, "here"));
    case KeyKind::kFilters:
      return why(bnbd::parse_filter(text));
    default:
      return std::nullopt;
  }
}

std::optional<std::string> wrong_list(const ConfigKey& key, const Value& value, Value& taken) {
  if (value.kind == ValueKind::kText) {  // one of them, without brackets
    taken = Value{.kind = ValueKind::kList, .place = value.place, .items = {value}};
    taken.items[0].key.clear();
  }
  if (taken.kind != ValueKind::kList || taken.items.empty()) return "";
  for (const Value& item : taken.items) {
    if (item.kind != ValueKind::kText) return "";
    if (auto wrong = wrong_text(key, item.text)) return wrong;
  }
  return std::nullopt;
}

std::optional<std::string> wrong(const ConfigKey& key, const Value& value, Value& taken) {
  switch (key.kind) {
    case KeyKind::kTruth:
      if (value.kind != ValueKind::kTruth) return "";
      return std::nullopt;
    case KeyKind::kCount:
      if (value.kind != ValueKind::kInteger || value.integer < key.least ||
          value.integer > key.most)
        return "";
      return std::nullopt;
    case KeyKind::kSize:
      return wrong_size(key, value, taken);
    case KeyKind::kAddresses:
    case KeyKind::kFilters:
      return wrong_list(key, value, taken);
    default:
      if (value.kind != ValueKind::kText) return "";
      return wrong_text(key, value.text);
  }
}

}  // namespace

std::string wanted_by(const ConfigKey& key) {
  switch (key.kind) {
    case KeyKind::kText:
    case KeyKind::kDeviceName:
      return "a text";
    case KeyKind::kPath:
      return "an absolute path";
    case KeyKind::kKeyFile:
      return "the absolute path of a key file";
    case KeyKind::kWord: {
      std::string words = key.words;
      for (size_t at = 0; (at = words.find(", ", at)) != std::string::npos; at += 4)
        words.replace(at, 2, "\", \"");
      const size_t last = words.rfind(", ");
      return fmt::format("\"{} or {}\"", words.substr(0, last), words.substr(last + 2));
    }
    case KeyKind::kTruth:
      return "true or false";
    case KeyKind::kCount:
      return fmt::format("a number from {} to {}", key.least, key.most);
    case KeyKind::kSize:
      if (key.most == 0) return "a size, a multiple of 4 KiB, for example \"64M\" or \"1.5G\"";
      return fmt::format("a size from {} to {}, a multiple of 4 KiB, for example \"64K\"",
                         size_text(static_cast<uint64_t>(key.least)),
                         size_text(static_cast<uint64_t>(key.most)));
    case KeyKind::kDuration:
      return "a time with its unit, ms, s, m or h, for example \"30s\", or \"never\"";
    case KeyKind::kPollBudget:
      return "a time, for example \"50us\" or \"2ms\", or \"0\", or \"never\"";
    case KeyKind::kAddresses:
      return "an address, for example \"10.0.0.1:1234\", or a list of them";
    case KeyKind::kTarget:
      return "a target, for example \"10.0.0.1/disk.img\"";
    case KeyKind::kMetrics:
      return "an IP address, with a port if it is not 9943, for example \"127.0.0.1\"";
    case KeyKind::kFilters:
      return "a filter, for example \"delay:read=1ms\", or a list of them, the one nearest to the "
             "user first";
  }
  return "";
}

std::variant<Value, Problem> take_value(const ConfigKey& key, const Value& value) {
  Value taken = value;
  const std::optional<std::string> reason = wrong(key, value, taken);
  if (!reason) return taken;
  const bool secret = key.kind == KeyKind::kKeyFile && value.kind == ValueKind::kText &&
                      is_a_key_itself(value.text);
  if (secret) return Problem{value.place, fmt::format("{}: {}", key_text(key), *reason)};
  std::string what = fmt::format("{} = {}: ", key_text(key), value.written());
  if (key.kind == KeyKind::kTarget && !reason->empty())  // which says what would be right, too
    return Problem{value.place, what + *reason};
  if (!reason->empty()) what += *reason + "; ";
  return Problem{value.place, what + "want " + wanted_by(key)};
}

}  // namespace braid::cli
