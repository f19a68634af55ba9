// Checker: every post completes exactly once, unless its process died first.
#pragma once

#include <cstdint>
#include <set>

#include "tests/sim/checkers/violations.h"

namespace braid::sim {

class CompletionChecker {
 public:
  explicit CompletionChecker(Violations& violations) : violations_(violations) {}

  void posted(uint64_t id) {
    if (!outstanding_.insert(id).second) violations_.add("post {} was made twice", id);
  }
  void completed(uint64_t id) {
    if (outstanding_.erase(id) == 0)
      violations_.add("post {} completed, but was not outstanding (a second completion?)", id);
    ++completed_;
  }
  /// Its process was killed; nothing more is owed.
  void died(uint64_t id) { outstanding_.erase(id); }
  /// All is quiet: nothing may be left.
  void at_rest() {
    for (const uint64_t id : outstanding_) violations_.add("post {} never completed", id);
  }

  uint64_t outstanding() const { return outstanding_.size(); }
  uint64_t completed_count() const { return completed_; }

 private:
  Violations& violations_;
  std::set<uint64_t> outstanding_;
  uint64_t completed_ = 0;
};

}  // namespace braid::sim
