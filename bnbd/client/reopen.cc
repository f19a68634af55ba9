#include "bnbd/client/reopen.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid::bnbd::client {

ReopenVerdict judge_reopen(const BlockInfo& before, uint64_t tenure, const wire::OpenedDevice& now,
                           bool smaller_too) {
  ReopenVerdict verdict;
  if (before.identity != now.identity) {
    verdict.why = fmt::format("the server has another device under this name: it was {}, it is {}",
                              before.identity.empty() ? "unnamed" : before.identity,
                              now.identity.empty() ? "unnamed" : now.identity);
  } else if (before.logical_block_bytes != now.logical_block_bytes) {
    verdict.why = fmt::format("the device's blocks had {} bytes and have {}",
                              before.logical_block_bytes, now.logical_block_bytes);
  } else if (now.size_bytes < before.size_bytes && !smaller_too) {
    verdict.shrank = true;
    verdict.why =
        fmt::format("the device shrank from {} to {} bytes", before.size_bytes, now.size_bytes);
  }
  verdict.replaced = !verdict.why.empty();
  verdict.superseded = !verdict.replaced && tenure != now.tenure;
  verdict.restarted = !verdict.replaced && before.incarnation != now.incarnation;
  return verdict;
}

BlockInfo describe(const wire::OpenedDevice& opened, bool read_only, uint32_t queue_depth,
                   uint32_t max_io_bytes) {
  BlockInfo info;
  info.identity = opened.identity;
  info.incarnation = opened.incarnation;
  info.size_bytes = opened.size_bytes;
  info.logical_block_bytes = opened.logical_block_bytes;
  info.physical_block_bytes = opened.physical_block_bytes;
  info.max_io_bytes = max_io_bytes / opened.logical_block_bytes * opened.logical_block_bytes;
  info.queue_depth = queue_depth;
  info.read_only = read_only;
  info.write_cache = opened.write_cache;
  info.fua = true;  // by a flush behind the write where the server has none
  if (read_only) return info;
  // An operation's length has 32 bits on the wire.
  const uint64_t range_max =
      uint64_t{UINT32_MAX} / opened.physical_block_bytes * opened.physical_block_bytes;
  info.max_discard_bytes = std::min(opened.max_discard_bytes, range_max);
  info.max_secure_erase_bytes = std::min(opened.max_secure_erase_bytes, range_max);
  info.discard_granularity_bytes = opened.discard_granularity_bytes;
  info.discard_alignment_bytes = opened.discard_alignment_bytes;
  // Others than Braid may mean "write same" by it.
  if (!opened.identity.empty()) {
    info.max_write_zeroes_bytes = std::min(opened.max_write_zeroes_bytes, range_max);
  }
  return info;
}

}  // namespace braid::bnbd::client
