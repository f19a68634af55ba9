// One look at the nodes after the other, and what has happened between them. Pure; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/metrics/sample.h"
#include "cli/top/screen.h"

namespace braid::cli {

class Looks {
 public:
  /// So many looks tell of a node that was there and has ended.
  static constexpr unsigned kMourned = 10;

  /// `silent`: a sentence for each node that runs and does not answer. A node that was silent is
  /// compared with its last answer. Rows are in order; `time` and `interval_s` are the caller's.
  TopView take(std::vector<NodeSample> nodes, std::vector<std::string> silent, TopOrder order);

 private:
  std::map<std::string, NodeSample> last_;   // by node: its last answer
  std::map<std::string, unsigned> missing_;  // looks that its end will still be told in
};

}  // namespace braid::cli
