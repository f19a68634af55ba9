// Where a node tells its metrics (docs/metrics.md).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "vhca/device.h"

namespace braid::cli {

struct MetricsOptions {
  vhca::Address listen;  // an IP address; port 0: a free one
  /// So long may the node take for an answer; then the caller is told that it hangs.
  uint64_t patience_ns = 3'000'000'000;
};
inline constexpr uint16_t kMetricsPort = 9943;

/// "IP[:PORT]" as a person types it after `option`; kInvalid says what is wrong.
base::Result<MetricsOptions> parse_metrics(const std::string& text, const std::string& option);

}  // namespace braid::cli
