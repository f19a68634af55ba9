#include "bnbd/filter/words.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace braid::bnbd::filter {

using base::Errc;
using base::make_error;
using base::Result;

namespace {

struct Unit {
  std::string_view word;
  uint64_t factor;
};
constexpr std::array<Unit, 6> kTimes{{{"h", 3'600'000'000'000},
                                      {"m", 60'000'000'000},
                                      {"s", 1'000'000'000},
                                      {"ms", 1'000'000},
                                      {"us", 1'000},
                                      {"ns", 1}}};
constexpr std::array<Unit, 5> kSizes{{{"T", uint64_t{1} << 40},
                                      {"G", uint64_t{1} << 30},
                                      {"M", uint64_t{1} << 20},
                                      {"K", uint64_t{1} << 10},
                                      {"", 1}}};

constexpr std::array<std::pair<std::string_view, BlockOp>, 8> kOps{
    {{"read", BlockOp::kRead},
     {"write", BlockOp::kWrite},
     {"flush", BlockOp::kFlush},
     {"discard", BlockOp::kDiscard},
     {"write-zeroes", BlockOp::kWriteZeroes},
     {"secure-erase", BlockOp::kSecureErase},
     {"trim", BlockOp::kDiscard},
     {"zero", BlockOp::kWriteZeroes}}};

constexpr std::array<std::pair<std::string_view, Errc>, 7> kErrors{
    {{"EIO", Errc::kIo},
     {"ENOSPC", Errc::kNoSpace},
     {"ETIMEDOUT", Errc::kTimedOut},
     {"EROFS", Errc::kReadOnly},
     {"ENOMEM", Errc::kNoMemory},
     {"EINVAL", Errc::kInvalid},
     {"EOPNOTSUPP", Errc::kNotSupported}}};

/// The number at the begin of `text`, which is left with what follows it. Without an exponent: a
/// '-' stands between two times.
std::optional<double> take_number(std::string_view& text) {
  double number = 0;
  const auto [end, status] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (status != std::errc() || !std::isfinite(number) || number < 0) return {};
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

template <size_t n>
std::string in_units(uint64_t value, const std::array<Unit, n>& units) {
  for (const Unit& unit : units)
    if (value >= unit.factor && value % unit.factor == 0)
      return fmt::format("{}{}", value / unit.factor, unit.word);
  return fmt::format("{}{}", value, units.back().word);
}

}  // namespace

Result<uint64_t> parse_time(std::string_view text) {
  std::string_view unit = text;
  if (const auto number = take_number(unit)) {
    for (const Unit& one : kTimes) {
      if (unit != one.word) continue;
      const double ns = *number * static_cast<double>(one.factor);
      if (ns <= static_cast<double>(kTimeMaxNs)) return static_cast<uint64_t>(std::llround(ns));
    }
  }
  return make_error(Errc::kInvalid,
                    "want a number with ns, us, ms, s, m or h, at most an hour, for example 200us");
}

std::string time_text(uint64_t duration_ns) {
  return in_units(duration_ns, kTimes);
}

Result<uint64_t> parse_bytes(std::string_view text, uint64_t least) {
  std::string_view unit = text;
  if (const auto number = take_number(unit)) {
    double factor = unit.empty() ? 1 : 0;
    for (const Unit& one : kSizes) {
      if (one.word.empty() || unit.empty() || (unit.front() & ~0x20) != one.word.front()) continue;
      const std::string_view rest = unit.substr(1);
      if (rest.empty() || rest == "iB" || rest == "B" || rest == "b")
        factor = static_cast<double>(one.factor);
    }
    const double bytes = std::floor(*number * factor);
    const bool wanted = factor > 0 && bytes >= static_cast<double>(least);
    if (wanted && bytes <= static_cast<double>(kBytesMax)) return static_cast<uint64_t>(bytes);
  }
  return make_error(Errc::kInvalid,
                    "want a number of bytes from {} to 8192T, with K, M, G or T for powers of 1024",
                    bytes_text(least));
}

std::string bytes_text(uint64_t bytes) {
  return in_units(bytes, kSizes);
}

Result<uint64_t> parse_count(std::string_view text) {
  uint64_t count = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (status == std::errc() && end == text.data() + text.size() && count >= 1 && count <= kCountMax)
    return count;
  return make_error(Errc::kInvalid, "want a whole number from 1 to {}", kCountMax);
}

Result<double> parse_percent(std::string_view text) {
  std::string_view rest = text;
  const auto number = take_number(rest);
  // One in 10^9 is the least that is ever drawn of a device's requests.
  if (number && (rest.empty() || rest == "%") && *number >= 1e-7 && *number <= 100) return *number;
  return make_error(Errc::kInvalid, "want a number from 0.0000001 to 100, for example 0.5");
}

std::string percent_text(double percent) {
  std::array<char, 64> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), percent, std::chars_format::fixed);
  return {text.data(), end.ptr};
}

Result<DelayOptions::Bounds> parse_bounds(std::string_view text) {
  const size_t dash = text.find('-');
  DelayOptions::Bounds bounds;
  BRAID_TRY(bounds.min_ns, parse_time(text.substr(0, dash)));
  bounds.max_ns = bounds.min_ns;
  if (dash != std::string_view::npos) {
    BRAID_TRY(bounds.max_ns, parse_time(text.substr(dash + 1)));
  }
  if (bounds.max_ns == 0 || bounds.max_ns < bounds.min_ns)
    return make_error(Errc::kInvalid,
                      "want a time above 0, or two with '-' between them, the shorter first, for "
                      "example 200us-1ms");
  return bounds;
}

std::string bounds_text(const DelayOptions::Bounds& bounds) {
  if (bounds.min_ns == bounds.max_ns) return time_text(bounds.min_ns);
  return time_text(bounds.min_ns) + "-" + time_text(bounds.max_ns);
}

std::optional<BlockOp> find_op(std::string_view word) {
  for (const auto& [name, op] : kOps)
    if (name == word) return op;
  return {};
}

std::string_view op_word(BlockOp op) {
  for (const auto& [name, of] : kOps)
    if (of == op) return name;
  return "?";
}

Result<Errc> parse_errno(std::string_view word) {
  std::string words;
  for (const auto& [name, code] : kErrors) {
    if (name == word) return code;
    words += (words.empty() ? "" : ", ") + std::string(name);
  }
  return make_error(Errc::kInvalid, "want one of {}", words);
}

std::string_view errno_word(Errc code) {
  for (const auto& [name, of] : kErrors)
    if (of == code) return name;
  return "?";
}

}  // namespace braid::bnbd::filter
