// Checker: two clients never have one device open for writing at once.
//
// What a client believes proves nothing: its path may be down, and the server may have given the
// device to another. But a request that succeeded was executed while its client had the device, and
// between two of them on one path the client had it all the time. So no request of another client
// that wants to write may begin and succeed between those two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "tests/sim/checkers/violations.h"

namespace braid::sim {

class ExclusiveChecker {
 public:
  ExclusiveChecker(Violations& violations, uint64_t device)
      : violations_(violations), device_(device) {}

  /// A request on a handle opened for writing succeeded. `epoch`: of the client's handle and its
  /// path; another one after each reconnect.
  void succeeded(size_t client, uint64_t epoch, uint64_t begin_ns, uint64_t end_ns) {
    for (auto& [other, its] : holders_) {
      if (other == client || begin_ns <= its.last_end_ns) continue;
      if (its.intruder_end_ns == 0 || end_ns < its.intruder_end_ns) {
        its.intruder_end_ns = end_ns;
        its.intruder = client;
      }
    }
    Holder& mine = holders_[client];
    if (mine.epoch == epoch && mine.intruder_end_ns != 0 && mine.intruder_end_ns < begin_ns)
      violations_.add("device {}: client {} was served while client {} had it open for writing",
                      device_, mine.intruder, client);
    mine = {epoch, end_ns, 0, 0};
  }

 private:
  struct Holder {
    uint64_t epoch = 0;
    uint64_t last_end_ns = 0;
    uint64_t intruder_end_ns = 0;  // of the first request of another since; 0: none
    size_t intruder = 0;
  };
  Violations& violations_;
  const uint64_t device_;
  std::map<size_t, Holder> holders_;  // by client
};

}  // namespace braid::sim
