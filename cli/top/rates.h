// What nodes have done between two samples: the rows of `braid top`. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/metrics/sample.h"

namespace braid::cli {

enum class RowKind : uint8_t { kDevice, kPath, kExport };
std::string_view to_string(RowKind kind);

struct Rates {
  double reads = 0, writes = 0;              // a second
  double read_bytes = 0, written_bytes = 0;  // a second
  double errors = 0;                         // a second
  /// Of devices and paths, where anything has ended. The mean of requests under way over the
  /// interval: the sum of their latencies by its length.
  std::optional<double> queue, p50_us, p99_us;
};

struct TopRow {
  RowKind kind = RowKind::kDevice;
  std::string node;
  std::string name;  // of a path with its session's server: "10.0.0.1:1234 by 10.1.0.1:1234"
  std::string state;
  /// None: there is no earlier sample, or its counters are another one's (a node that has
  /// restarted, a device that was mapped anew).
  std::optional<Rates> rates;
};

/// The latencies of the interval; nothing if a bucket has gone back.
std::optional<HistogramSample> difference(const HistogramSample& before,
                                          const HistogramSample& after);

/// Rows of all that `after` has, in its order: devices, paths, exports of each node.
std::vector<TopRow> rows_between(std::span<const NodeSample> before,
                                 std::span<const NodeSample> after);

enum class TopOrder : uint8_t { kBytes, kOperations, kLatency, kName };
std::string_view to_string(TopOrder order);
TopOrder next_order(TopOrder order);
/// The busiest first; what has no rates, or is as busy, by name. Devices before paths before
/// exports.
void sort_rows(std::vector<TopRow>& rows, TopOrder order);

}  // namespace braid::cli
