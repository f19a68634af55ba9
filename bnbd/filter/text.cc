// The text form of filters: "KIND", or "KIND:" and words with commas between them, "WORD" or
// "KEY=VALUE", each at most once.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "bnbd/filter/words.h"

namespace braid::bnbd {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;
using namespace filter;  // NOLINT(google-build-using-namespace): its words

namespace {

constexpr std::array<FilterKind, 4> kKinds{FilterKind::kDelay, FilterKind::kError,
                                           FilterKind::kRate, FilterKind::kChecksum};

/// A word of a specification: "KEY=VALUE", or a value alone.
struct Word {
  std::string_view text;
  std::string_view key;  // empty: a value alone
  std::string_view value;
};

/// What a word sets, if it is one of those that it knows; else the words that it knows.
using Outcome = Result<bool>;

/// The value's parser tells what would be right; this names the word.
template <typename T, typename U>
Outcome set(T& member, Result<U> value) {
  if (!value.ok()) return value.error();
  member = *value;
  return true;
}

Outcome set_match(FilterMatch& match, const Word& word) {
  if (word.key == "percent") return set(match.percent, parse_percent(word.value));
  if (word.key == "from") return set(match.from_bytes, parse_bytes(word.value, 0));
  if (word.key == "to") return set(match.to_bytes, parse_bytes(word.value));
  return false;
}

Outcome set_delay(FilterSpec& spec, const Word& word) {
  DelayOptions& delay = spec.delay;
  if (const auto op = find_op(word.key))
    return set(delay.by_op[static_cast<size_t>(*op)], parse_bounds(word.value));
  if (!word.key.empty()) return set_match(delay.match, word);
  auto bounds = parse_bounds(word.value);
  const bool number = !word.value.empty() && word.value.front() >= '0' && word.value.front() <= '9';
  if (!bounds.ok() && !number) return false;
  if (!bounds.ok()) return bounds.error();
  // Those that are named keep their own.
  for (DelayOptions::Bounds& one : delay.by_op)
    if (one.max_ns == 0) one = *bounds;
  return true;
}

Outcome set_error(FilterSpec& spec, const Word& word) {
  ErrorOptions& error = spec.error;
  if (word.key.empty() || word.key == "op") {
    const auto op = find_op(word.value);
    if (!op && word.key.empty()) return false;
    if (!op) return make_error(Errc::kInvalid, "want {}", kOpWords);
    error.ops[static_cast<size_t>(*op)] = true;
    return true;
  }
  if (word.key == "every") return set(error.every, parse_count(word.value));
  if (word.key == "count") return set(error.count, parse_count(word.value));
  if (word.key == "errno") return set(error.status, parse_errno(word.value));
  return set_match(error.match, word);
}

Outcome set_rate(FilterSpec& spec, const Word& word) {
  RateOptions& rate = spec.rate;
  if (word.key == "burst") return set(rate.burst_ns, parse_time(word.value));
  std::string_view what = word.key;
  RateOptions::Limit* limit = &rate.all;
  if (what.starts_with("read-")) {
    limit = &rate.reads;
    what.remove_prefix(5);
  } else if (what.starts_with("write-")) {
    limit = &rate.writes;
    what.remove_prefix(6);
  }
  if (what == "bytes") return set(limit->bytes_per_second, parse_bytes(word.value, 4096));
  if (what == "ops") return set(limit->ops_per_second, parse_count(word.value));
  return false;
}

Outcome set_checksum(FilterSpec& spec, const Word& word) {
  ChecksumOptions& checksum = spec.checksum;
  if (word.text == "learn") return checksum.learn = true;
  if (word.key == "memory") return set(checksum.memory_max_bytes, parse_bytes(word.value, 1 << 20));
  if (word.key != "block") return false;
  uint64_t bytes = 0;
  Outcome parsed = set(bytes, parse_bytes(word.value));
  if (parsed.ok() && (!std::has_single_bit(bytes) || bytes < 512 || bytes > kBlockBytesMax))
    return make_error(Errc::kInvalid, "want a power of two from 512 to 32K");
  checksum.block_bytes = static_cast<uint32_t>(bytes);
  return parsed;
}

struct Kind {
  Outcome (*set)(FilterSpec& spec, const Word& word);
  const char* words;
};
Kind rules_of(FilterKind kind) {
  switch (kind) {
    case FilterKind::kDelay:
      return {&set_delay,
              "TIME or TIME-TIME for all, read=TIME, write=, flush=, discard=, write-zeroes=, "
              "secure-erase=, percent=, from=, to="};
    case FilterKind::kError:
      return {&set_error,
              "read, write, flush, discard, write-zeroes, secure-erase, percent=, every=, count=, "
              "from=, to=, errno="};
    case FilterKind::kRate:
      return {&set_rate,
              "bytes=, ops=, read-bytes=, read-ops=, write-bytes=, write-ops=, burst=TIME"};
    case FilterKind::kChecksum:
      break;
  }
  return {&set_checksum, "block=, memory=, learn"};
}

/// What no word can tell by itself.
Status finish(FilterSpec& spec, std::set<std::string, std::less<>>& seen) {
  const FilterMatch& match = spec.kind == FilterKind::kDelay ? spec.delay.match : spec.error.match;
  if (match.to_bytes != 0 && match.to_bytes <= match.from_bytes)
    return make_error(Errc::kInvalid, "to={} lies not behind from={}", bytes_text(match.to_bytes),
                      bytes_text(match.from_bytes));
  if (spec.kind == FilterKind::kDelay && spec.delay == DelayOptions{.match = match})
    return make_error(Errc::kInvalid, "delays nothing: want a time, for example delay:1ms");
  if (spec.kind == FilterKind::kError) {
    if (seen.contains("percent") && seen.contains("every"))
      return make_error(Errc::kInvalid, "want percent= or every=, not both");
    auto& ops = spec.error.ops;
    if (std::none_of(ops.begin(), ops.end(), [](bool on) { return on; })) ops.fill(true);
  }
  if (spec.kind == FilterKind::kRate && spec.rate == RateOptions{.burst_ns = spec.rate.burst_ns})
    return make_error(Errc::kInvalid, "limits nothing: want bytes= or ops= (a second)");
  return {};
}

/// Two words for the same: "trim" and "op=discard", all times without a name.
std::string same_as(FilterKind kind, const Word& word) {
  const std::string_view name = word.key.empty() || word.key == "op" ? word.value : word.key;
  if (const auto op = find_op(name)) return std::string(op_word(*op));
  if (kind == FilterKind::kDelay && word.key.empty()) return "a time for all";
  return std::string(name);
}

Status set_words(FilterSpec& spec, std::string_view words) {
  const Kind kind = rules_of(spec.kind);
  std::set<std::string, std::less<>> seen;
  std::vector<Word> all;
  for (;;) {
    const size_t comma = words.find(',');
    Word word{.text = words.substr(0, comma), .key = {}, .value = words.substr(0, comma)};
    if (const size_t equals = word.text.find('='); equals != std::string_view::npos) {
      word.key = word.text.substr(0, equals);
      word.value = word.text.substr(equals + 1);
    }
    all.push_back(word);
    if (comma == std::string_view::npos) break;
    words.remove_prefix(comma + 1);
  }
  // What is named goes before what is meant for all the rest.
  std::stable_partition(all.begin(), all.end(), [](const Word& word) { return !word.key.empty(); });
  for (const Word& word : all) {
    Outcome known = kind.set(spec, word);
    if (!known.ok()) return known.error().with("\"{}\"", word.text);
    if (!*known) return make_error(Errc::kInvalid, "\"{}\": want {}", word.text, kind.words);
    if (!seen.insert(same_as(spec.kind, word)).second)
      return make_error(Errc::kInvalid, "\"{}\": that was said before", word.text);
  }
  return finish(spec, seen);
}

std::string match_text(const FilterMatch& match) {
  std::string text;
  if (match.percent != 100) text += ",percent=" + percent_text(match.percent);
  if (match.from_bytes != 0) text += ",from=" + bytes_text(match.from_bytes);
  if (match.to_bytes != 0) text += ",to=" + bytes_text(match.to_bytes);
  return text;
}

std::string delay_text(const DelayOptions& delay) {
  std::string text;
  const auto& all = delay.by_op;
  if (std::all_of(all.begin(), all.end(), [&](const auto& one) { return one == all.front(); }))
    return "," + bounds_text(all.front()) + match_text(delay.match);
  for (size_t i = 0; i < kBlockOps; ++i)
    if (all[i].max_ns != 0)
      text += fmt::format(",{}={}", op_word(static_cast<BlockOp>(i)), bounds_text(all[i]));
  return text + match_text(delay.match);
}

std::string error_text(const ErrorOptions& error) {
  std::string text;
  const bool all = std::all_of(error.ops.begin(), error.ops.end(), [](bool on) { return on; });
  for (size_t i = 0; i < kBlockOps && !all; ++i)
    if (error.ops[i]) text += fmt::format(",{}", op_word(static_cast<BlockOp>(i)));
  text += match_text(error.match);
  if (error.every != 1) text += fmt::format(",every={}", error.every);
  if (error.count != 0) text += fmt::format(",count={}", error.count);
  if (error.status != Errc::kIo) text += fmt::format(",errno={}", errno_word(error.status));
  return text;
}

std::string limit_text(const char* before, const RateOptions::Limit& limit) {
  std::string text;
  if (limit.bytes_per_second != 0)
    text += fmt::format(",{}bytes={}", before, bytes_text(limit.bytes_per_second));
  if (limit.ops_per_second != 0) text += fmt::format(",{}ops={}", before, limit.ops_per_second);
  return text;
}

std::string checksum_text(const ChecksumOptions& checksum) {
  const ChecksumOptions usual;
  std::string text;
  if (checksum.block_bytes != usual.block_bytes)
    text += ",block=" + bytes_text(checksum.block_bytes);
  if (checksum.memory_max_bytes != usual.memory_max_bytes)
    text += ",memory=" + bytes_text(checksum.memory_max_bytes);
  return text + (checksum.learn ? ",learn" : "");
}

std::string words_text(const FilterSpec& spec) {
  switch (spec.kind) {
    case FilterKind::kDelay:
      return delay_text(spec.delay);
    case FilterKind::kError:
      return error_text(spec.error);
    case FilterKind::kRate:
      return limit_text("", spec.rate.all) + limit_text("read-", spec.rate.reads) +
             limit_text("write-", spec.rate.writes) +
             (spec.rate.burst_ns == RateOptions().burst_ns
                  ? ""
                  : ",burst=" + time_text(spec.rate.burst_ns));
    case FilterKind::kChecksum:
      break;
  }
  return checksum_text(spec.checksum);
}

}  // namespace

std::string_view to_string(FilterKind kind) {
  switch (kind) {
    case FilterKind::kDelay:
      return "delay";
    case FilterKind::kError:
      return "error";
    case FilterKind::kRate:
      return "rate";
    case FilterKind::kChecksum:
      return "checksum";
  }
  return "?";
}

Result<FilterSpec> parse_filter(std::string_view text) {
  const size_t colon = text.find(':');
  const auto found = std::find_if(kKinds.begin(), kKinds.end(), [&](FilterKind kind) {
    return to_string(kind) == text.substr(0, colon);
  });
  if (found == kKinds.end())
    return make_error(Errc::kInvalid,
                      "filter \"{}\": want delay:, error:, rate: or checksum, for example "
                      "delay:read=200us",
                      text);
  FilterSpec spec;
  spec.kind = *found;
  std::set<std::string, std::less<>> none;
  const Status set = colon == std::string_view::npos ? finish(spec, none)
                                                     : set_words(spec, text.substr(colon + 1));
  if (!set.ok()) return set.error().with("filter \"{}\"", text);
  return spec;
}

std::string to_string(const FilterSpec& spec) {
  std::string words = words_text(spec);
  if (!words.empty()) words.front() = ':';
  return std::string(to_string(spec.kind)) + words;
}

}  // namespace braid::bnbd
