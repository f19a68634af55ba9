#include <nlohmann/json.hpp>
#include <set>

#include "cli/control.h"
#include "cli/metrics/sample.h"

namespace braid::cli {

using base::Result;
using nlohmann::json;

namespace {

Result<NodeSample> ask_part(const std::string& node, uint64_t from, const CallOptions& options) {
  BRAID_TRY(const json answer, call_node(node, "sample", {{"from", from}}, options));
  return sample_of(answer);
}

}  // namespace

Result<NodeSample> ask_sample(const std::string& node, int timeout_ms, bool any_user) {
  const CallOptions options{.timeout_ms = timeout_ms, .any_user = any_user};
  BRAID_TRY(NodeSample all, ask_part(node, 0, options));
  // Devices that go meanwhile move others to the front of their place.
  std::set<std::string> seen;
  for (const DeviceSample& device : all.devices) seen.insert(device.name);
  for (uint64_t from = all.more_from; from != 0;) {
    BRAID_TRY(NodeSample part, ask_part(node, from, options));
    for (DeviceSample& device : part.devices)
      if (seen.insert(device.name).second) all.devices.push_back(std::move(device));
    from = part.more_from > from ? part.more_from : 0;
  }
  all.more_from = 0;
  return all;
}

}  // namespace braid::cli
