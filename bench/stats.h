// Medians, percentiles and what they say: pure functions, no clock and no files.
//
// Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace braid::bench {

/// What several rounds of one measurement gave, in the unit of the measurement.
struct Summary {
  double median = 0;
  double min = 0;
  double max = 0;
  unsigned count = 0;
};

/// Nothing for an empty list. The median of an even number of values is the mean of the middle two.
std::optional<Summary> summarise(std::span<const double> values);

/// The smallest of the values that at least `fraction` (0..1) of them do not exceed; `sorted` is
/// ascending and not empty.
uint64_t percentile(std::span<const uint64_t> sorted, double fraction);

/// Which way is good.
enum class Better : uint8_t { kHigher, kLower };

/// ours / peer; nothing unless both are there and the peer is above zero.
std::optional<double> ratio(std::optional<double> ours, std::optional<double> peer);

/// Whether a ratio reaches its target; nothing if either is missing.
std::optional<bool> reaches(std::optional<double> ratio, std::optional<double> target,
                            Better better);

/// Percentiles of single operations, ns; 0: not known.
struct Latencies {
  uint64_t p50_ns = 0;
  uint64_t p99_ns = 0;
  uint64_t p999_ns = 0;
};

/// Sorts `values`. All zero for an empty list.
Latencies latencies(std::vector<uint64_t>& values);

}  // namespace braid::bench
