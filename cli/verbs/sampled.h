// What the nodes of this host count, asked from a verb.
#pragma once

#include <optional>
#include <thread>
#include <vector>

#include "base/result.h"
#include "cli/control_socket.h"
#include "cli/metrics/sample.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

struct SampledNodes {
  std::vector<NodeSample> nodes;
  std::vector<base::Error> silent;  // hung, another user's, not understood
};
/// As ask_nodes(), each within `patience_ms`.
base::Result<SampledNodes> sample_nodes(const Context& context, int patience_ms);

/// The same on a thread of its own: who waits at a terminal is not to wait for a node that hangs.
class LaterSample {
 public:
  /// `context` outlives it.
  LaterSample(const Context& context, int patience_ms);
  ~LaterSample();  // waits for what is under way
  LaterSample(const LaterSample&) = delete;
  LaterSample& operator=(const LaterSample&) = delete;
  /// Unless it is under way.
  void begin();
  bool under_way() const { return under_way_; }
  int fd() const { return done_.get(); }  // readable when it has ended
  /// What came of it, once; nothing while it is under way.
  std::optional<base::Result<SampledNodes>> take();

 private:
  void ask();
  const Context& context_;
  const int patience_ms_;
  const Fd done_;  // between its signal and take() the thread leaves result_ alone
  bool under_way_ = false;
  std::optional<base::Result<SampledNodes>> result_;
  std::thread thread_;
};

}  // namespace braid::cli
