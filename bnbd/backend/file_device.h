// A file or disk as a block device: each request becomes one file operation or a short row of them.
//
//   preflush -> body (pieces of a long range; zeroes written by hand if need be) -> postflush
//
// One reactor. Slots are preallocated; what exceeds them waits in order. Nothing here allocates
// after the constructor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "bnbd/block.h"
#include "bnbd/deferred_end.h"

namespace braid::bnbd {

class FileDevice : public BlockDevice {
 public:
  struct Options {
    std::string name;  // for the log
    BlockInfo info;
  };
  /// `scratch`: scratch_bytes() of memory for bounce buffers and zeroes.
  FileDevice(base::Reactor& reactor, std::unique_ptr<base::File> file,
             std::unique_ptr<base::Segment> scratch, Options options);
  ~FileDevice() override;
  static size_t scratch_bytes(const BlockInfo& info);

  const BlockInfo& info() const override { return info_; }
  void submit(BlockRequest& request) override;
  base::Result<std::unique_ptr<Region>> create_region(size_t size_bytes) override;
  BlockStatistics statistics() const override { return statistics_; }
  std::shared_ptr<base::File> file() const override { return file_; }
  base::Task<base::Status> resize(uint64_t size_bytes) override;
  base::Task<base::Result<bool>> refresh_size() override;

 private:
  enum class Stage : uint8_t { kPreflush, kBody, kPostflush };
  /// How a range is made zero, from the cheapest to the one that always works.
  enum class Method : uint8_t { kPunch, kZeroRange, kWrite };
  struct Slot : base::ListNode {
    base::IoOp op;
    FileDevice* device = nullptr;
    BlockRequest* request = nullptr;
    Stage stage = Stage::kBody;
    Method method = Method::kWrite;
    std::byte* bounce = nullptr;
    uint64_t piece_bytes = 0;  // of a long range, in flight
    uint64_t done_bytes = 0;
  };

  static void op_done(base::IoOp& op, base::Errc status);
  void start(Slot& slot, BlockRequest& request);
  void step(Slot& slot);
  void step_transfer(Slot& slot);
  void step_range(Slot& slot);
  base::Task<void> erase(Slot& slot);
  void flush(Slot& slot, Stage stage);
  void advance(Slot& slot, base::Errc status);
  bool try_next_method(Slot& slot);
  Method first_method(const BlockRequest& request) const;
  void finish(Slot& slot, base::Errc status);
  bool take_bounce(Slot& slot);
  void give_bounce_back(Slot& slot);
  bool aligned(const BlockRequest& request) const;
  std::byte* scratch_at(size_t offset) const;
  base::Status check_size(uint64_t size_bytes) const;
  base::Task<base::Status> end_beyond(uint64_t size_bytes);
  bool works_beyond(uint64_t size_bytes) const;
  bool hold_beyond(BlockRequest& request);
  void judge_beyond();

  base::Reactor& reactor_;
  base::Logger log_;
  const std::shared_ptr<base::File> file_;        // a worker may still set its note
  const std::unique_ptr<base::Segment> scratch_;  // bounce buffers, then zeroes
  const std::string name_;
  BlockInfo info_;
  bool resizing_ = false;
  uint64_t resizes_ = 0;             // that have ended
  uint64_t cut_bytes_ = UINT64_MAX;  // while resizing_: what goes beyond waits in beyond_
  BlockStatistics statistics_;

  std::vector<Slot> slots_;
  base::IntrusiveList<Slot> free_;
  base::IntrusiveList<Slot> bounce_waiters_;
  bool erasing_ = false;
  base::IntrusiveList<Slot> erase_waiters_;
  base::IntrusiveList<BlockRequest> waiting_;  // for a slot
  base::IntrusiveList<BlockRequest> beyond_;   // until it is decided where the end is
  DeferredEnd rejected_;
  std::vector<std::byte*> bounce_free_;
  // What the medium turned out not to do, at run time.
  bool can_punch_ = false;
  bool can_zero_range_ = false;
  bool heeds_fua_ = true;  // false: a planted bug
};

}  // namespace braid::bnbd
