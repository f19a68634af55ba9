// QpNumbers: QP numbers that are unique on this host, and random: one says nothing of the next.
//
// Plain numbers come in blocks of 256. A block is claimed by binding the abstract socket name
// "braid.qpn.<block>": the bind decides between processes, and death gives the block back. What is
// given out is a permutation of the plain number that all processes of the machine share and that
// changes with each boot.
//
// Threads: any.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/host.h"

namespace braid::vhca::soft::inhost {

inline constexpr uint32_t kQpNumbers = 1u << 24;

/// A permutation of 24-bit numbers, by `key`, and the way back.
uint32_t scatter_number(uint64_t key, uint32_t plain);
uint32_t gather_number(uint64_t key, uint32_t scattered);

class QpNumbers {
 public:
  explicit QpNumbers(base::Host& host);

  /// 24 bits, never 0 or 1 (management QPs); 0 if no block could be claimed. A number comes again
  /// after a hundred others at the earliest.
  uint32_t allocate();
  void release(uint32_t number);

 private:
  static constexpr uint32_t kBlockSize = 256;
  struct Block {
    uint32_t index;
    std::unique_ptr<base::LocalListener> claim;
    std::bitset<kBlockSize> used;
    uint32_t next = 0;  // where the search for a free one begins
  };
  Block* claim_block();
  uint32_t take(Block& block);

  base::Host& host_;
  const uint64_t key_;
  std::mutex mutex_;
  std::vector<Block> blocks_;
};

}  // namespace braid::vhca::soft::inhost
