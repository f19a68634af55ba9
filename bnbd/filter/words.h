// The words of filter specifications: pure parsers and printers of one value each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/result.h"
#include "bnbd/block.h"
#include "bnbd/filters.h"

namespace braid::bnbd::filter {

inline constexpr uint64_t kTimeMaxNs = 3'600'000'000'000;  // an hour
inline constexpr uint64_t kBytesMax = uint64_t{1} << 53;   // what a double holds exactly
inline constexpr uint64_t kCountMax = uint64_t{1'000'000'000'000};

/// "200us", "1.5ms", "0s": at most an hour. Errors of these say what would be right, and no more.
base::Result<uint64_t> parse_time(std::string_view text);
std::string time_text(uint64_t duration_ns);

/// "4096", "64k", "1.5M", "2GiB": powers of 1024, at least 1, at most 8 PiB; `least`: 0 allows it.
base::Result<uint64_t> parse_bytes(std::string_view text, uint64_t least = 1);
std::string bytes_text(uint64_t bytes);

/// A whole number from 1 to kCountMax.
base::Result<uint64_t> parse_count(std::string_view text);

/// Above 0, at most 100.
base::Result<double> parse_percent(std::string_view text);
std::string percent_text(double percent);

/// "200us" or "200us-1ms".
base::Result<DelayOptions::Bounds> parse_bounds(std::string_view text);
std::string bounds_text(const DelayOptions::Bounds& bounds);

/// "read", "write", "flush", "discard" or "trim", "write-zeroes" or "zero", "secure-erase".
std::optional<BlockOp> find_op(std::string_view word);
std::string_view op_word(BlockOp op);
inline constexpr const char* kOpWords = "read, write, flush, discard, write-zeroes or secure-erase";

/// "EIO" and its like.
base::Result<base::Errc> parse_errno(std::string_view word);
std::string_view errno_word(base::Errc code);

}  // namespace braid::bnbd::filter
