// QpNumbers: QP numbers that are unique on this host, and random.
//
// Numbers come in blocks of 256. A block is claimed by binding the abstract socket name
// "braid.qpn.<block>": the bind decides between processes, and death gives the block back.
//
// Threads: any.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/host.h"

namespace braid::vhca::soft::inhost {

class QpNumbers {
 public:
  explicit QpNumbers(base::Host& host) : host_(host) {}

  /// 24 bits, never 0 or 1 (management QPs); 0 if no block could be claimed.
  uint32_t allocate();
  void release(uint32_t number);

 private:
  static constexpr uint32_t kBlockSize = 256;
  struct Block {
    uint32_t index;
    std::unique_ptr<base::LocalListener> claim;
    std::bitset<kBlockSize> used;
  };
  Block* claim_block();
  uint32_t take(Block& block);
  uint32_t random();

  base::Host& host_;
  std::mutex mutex_;
  std::vector<Block> blocks_;
};

}  // namespace braid::vhca::soft::inhost
