// GET /metrics of a node. Its threads ask the node as the control socket does, by a message to its
// reactor, and make text of the answer themselves. docs/metrics.md.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "cli/metrics/options.h"
#include "cli/metrics/sample.h"

namespace braid::cli {

class MetricsServer {
 public:
  /// Asks the node for a sample. Does not block; `done` runs on a thread of the node's, or never.
  using Ask = std::function<void(std::function<void(NodeSample)> done)>;

  /// Errors: those of HttpServer::start.
  static base::Result<std::unique_ptr<MetricsServer>> start(const MetricsOptions& options, Ask ask);
  /// `ask` is not called any more; `done` may still be.
  virtual ~MetricsServer() = default;
  virtual std::string url() const = 0;  // "http://127.0.0.1:9943/metrics"
};

}  // namespace braid::cli
