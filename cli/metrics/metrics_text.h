// Samples of nodes as Prometheus' text. Pure; any thread.
#pragma once

#include <span>
#include <string>

#include "cli/metrics/sample.h"

namespace braid::cli {

/// All families, also those without a sample, each once; every sample has the label "node".
/// docs/metrics.md is the list of them.
std::string metrics_text(std::span<const NodeSample> nodes);

}  // namespace braid::cli
