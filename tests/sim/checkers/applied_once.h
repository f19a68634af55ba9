// Checker: what a write stores reaches the disk once, however often the request was sent.
//
// The disk tells what it stores, and by its stamps whose it is. A write goes in parts, so sectors
// are counted: more than it has, and something was done twice. What nobody promises to do once the
// owner excuses. Zeroes bear no stamp, and memory devices have no disk: of these it sees nothing.
#pragma once

#include <cstdint>
#include <map>

#include "tests/sim/checkers/violations.h"

namespace braid::sim {

class AppliedOnceChecker {
 public:
  explicit AppliedOnceChecker(Violations& violations) : violations_(violations) {}

  void begin(uint64_t id, uint64_t sectors) { writes_[id] = {sectors, false}; }
  /// From now on it may be done several times.
  void excuse(uint64_t id) {
    const auto found = writes_.find(id);
    if (found != writes_.end()) found->second.excused = true;
  }
  void stored(uint64_t device, uint64_t id, uint64_t sectors) {
    const auto found = writes_.find(id);
    if (found == writes_.end() || found->second.excused) return;
    Write& write = found->second;
    if (sectors > write.sectors_left) {
      violations_.add("device {}: write {} was done more than once", device, id);
      write.excused = true;  // one mistake is one report
      return;
    }
    write.sectors_left -= sectors;
  }

 private:
  struct Write {
    uint64_t sectors_left = 0;
    bool excused = false;
  };
  Violations& violations_;
  std::map<uint64_t, Write> writes_;
};

}  // namespace braid::sim
