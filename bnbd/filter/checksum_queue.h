// The checksum filter on one reactor: requests of its own go below in place of the user's, and
// their ends are looked at.
//
// Threads: the reactor's, but for what says otherwise.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "bnbd/filter/checksum_table.h"
#include "bnbd/filter/filter_device.h"

namespace braid::bnbd::filter {

struct Mismatch {
  uint64_t block = 0;
  uint64_t offset_bytes = 0;
  uint64_t want = 0;  // checksums
  uint64_t got = 0;
};

/// What discards and write-zeroes are limited to: each of their blocks is looked at.
inline constexpr uint64_t kChecksumRangeMax = 32 << 20;

class ChecksumQueue final : public FilterQueue {
 public:
  /// `tell`: called for each request that fails, on this reactor.
  using Tell = std::function<void(const Mismatch& first)>;
  ChecksumQueue(base::Reactor& reactor, BlockDevice& below, const BlockInfo& info,
                const ChecksumOptions& options, std::shared_ptr<ChecksumTable> table, Tell tell);

  // --- BlockDevice
  const BlockInfo& info() const override;
  void submit(BlockRequest& request) override;
  /// What it reads is compared where nobody writes to it.
  std::span<std::byte> lendable_memory() override { return {}; }

  // --- FilterQueue, any thread
  bool busy() const override;
  void add_to(FilterCounters& counters) const override;

 private:
  struct Slot : base::ListNode {
    ChecksumQueue* queue = nullptr;
    BlockRequest* outer = nullptr;
    uint64_t covered_blocks = 0;          // when it began
    ChecksumTable::Word* seen = nullptr;  // of a read: by block, when it began
    BlockRequest inner;
  };
  /// The blocks of a request that are covered, and which of them it has whole.
  struct Blocks {
    uint64_t first = 0, end = 0;              // that it touches
    uint64_t first_whole = 0, end_whole = 0;  // no more than those; may be none
  };
  Blocks blocks_of(const Slot& slot) const;
  uint64_t sum(const std::byte* block) const;
  void start(Slot& slot, BlockRequest& request);
  void begin_change(Slot& slot);
  void end_change(const Slot& slot, bool done);
  void begin_read(Slot& slot);
  base::Errc verify(Slot& slot);
  base::Errc verify_block(Slot& slot, uint64_t block, ChecksumTable::Word seen,
                          const std::byte* data);
  static void ended(BlockRequest& inner, base::Errc status);
  void finish(Slot& slot, base::Errc status);

  const uint32_t block_bytes_;
  const bool learn_;
  const uint32_t max_io_bytes_;  // `seen` has room for it
  const std::shared_ptr<ChecksumTable> table_;
  const Tell tell_;
  uint64_t zero_sum_ = 0;
  mutable BlockInfo info_;  // below's, with our limits
  DeferredEnd deferred_;
  std::vector<ChecksumTable::Word> seen_;
  std::vector<Slot> slots_;
  base::IntrusiveList<Slot> free_;
  base::IntrusiveList<BlockRequest> waiting_;  // for a slot
  uint64_t in_progress_ = 0;                   // slots, and those who wait
  bool starting_ = false;                      // inside finish()'s loop
  uint64_t refused_ = 0;                       // ended by `deferred_`, or will be

  FilterCounters counters_;  // reads that failed, and all that counts blocks
};

}  // namespace braid::bnbd::filter
