// What the nodes of this host count, asked from a verb.
#pragma once

#include <vector>

#include "base/result.h"
#include "cli/metrics/sample.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

struct SampledNodes {
  std::vector<NodeSample> nodes;
  std::vector<base::Error> silent;  // hung, another user's, not understood
};
/// As ask_nodes().
base::Result<SampledNodes> sample_nodes(const Context& context);

}  // namespace braid::cli
