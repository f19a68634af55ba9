#include "bench/stats.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"

namespace braid::bench {

std::optional<Summary> summarise(std::span<const double> values) {
  if (values.empty()) return std::nullopt;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  const double median =
      sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  return Summary{.median = median,
                 .min = sorted.front(),
                 .max = sorted.back(),
                 .count = static_cast<unsigned>(sorted.size())};
}

uint64_t percentile(std::span<const uint64_t> sorted, double fraction) {
  BRAID_ASSERT(!sorted.empty() && fraction >= 0 && fraction <= 1);
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(sorted.size())));
  return sorted[rank == 0 ? 0 : rank - 1];
}

std::optional<double> ratio(std::optional<double> ours, std::optional<double> peer) {
  if (!ours || !peer || *peer <= 0) return std::nullopt;
  return *ours / *peer;
}

std::optional<bool> reaches(std::optional<double> ratio, std::optional<double> target,
                            Better better) {
  if (!ratio || !target) return std::nullopt;
  return better == Better::kHigher ? *ratio >= *target : *ratio <= *target;
}

Latencies latencies(std::vector<uint64_t>& values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {.p50_ns = percentile(values, 0.5),
          .p99_ns = percentile(values, 0.99),
          .p999_ns = percentile(values, 0.999)};
}

}  // namespace braid::bench
