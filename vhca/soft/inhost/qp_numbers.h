// QpNumbers: QP numbers that are unique on this host, and random: one says nothing of the next.
//
// Each is claimed by binding the abstract socket name "braid.qpn.<number>": the bind decides
// between processes, and death gives the number back.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/host.h"

namespace braid::vhca::soft::inhost {

inline constexpr uint32_t kQpNumbers = 1u << 24;

class QpNumbers {
 public:
  explicit QpNumbers(base::Host& host) : host_(host) {}

  /// 24 bits, never 0 or 1 (management QPs); 0 if none could be claimed, as when the process has no
  /// descriptor left.
  uint32_t allocate();
  void release(uint32_t number);

 private:
  base::Host& host_;
  std::mutex mutex_;
  std::map<uint32_t, std::unique_ptr<base::LocalListener>> claims_;  // by number
};

}  // namespace braid::vhca::soft::inhost
