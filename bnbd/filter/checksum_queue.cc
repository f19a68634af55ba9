#include "bnbd/filter/checksum_queue.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace braid::bnbd::filter {

using base::Errc;

ChecksumQueue::ChecksumQueue(base::Reactor& reactor, BlockDevice& below, const BlockInfo& info,
                             const ChecksumOptions& options, std::shared_ptr<ChecksumTable> table,
                             Tell tell)
    : FilterQueue(reactor, below),
      block_bytes_(options.block_bytes),
      learn_(options.learn),
      max_io_bytes_(info.max_io_bytes),
      table_(std::move(table)),
      tell_(std::move(tell)),
      info_(info),
      deferred_(reactor, own_),
      slots_(std::clamp<uint32_t>(info.queue_depth, 1, 1024)) {
  const std::vector<std::byte> zeroes(block_bytes_);
  zero_sum_ = sum(zeroes.data());
  const size_t blocks_max = max_io_bytes_ / block_bytes_ + 1;
  seen_.resize(slots_.size() * blocks_max);
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.queue = this;
    slot.seen = &seen_[i * blocks_max];
    slot.inner.done = &ChecksumQueue::ended;
    slot.inner.context = &slot;
    free_.push_back(slot);
  }
}

/// Its strings are those of the first moment: a device keeps its identity.
const BlockInfo& ChecksumQueue::info() const {
  const BlockInfo& now = below_.info();
  info_.incarnation = now.incarnation;
  info_.size_bytes = std::min(now.size_bytes, table_->shown_bytes_max());
  info_.max_io_bytes = std::min(now.max_io_bytes, max_io_bytes_);
  info_.max_discard_bytes = std::min(now.max_discard_bytes, kChecksumRangeMax);
  info_.max_write_zeroes_bytes = std::min(now.max_write_zeroes_bytes, kChecksumRangeMax);
  info_.max_secure_erase_bytes = std::min(now.max_secure_erase_bytes, kChecksumRangeMax);
  info_.read_only = now.read_only;
  info_.write_cache = now.write_cache;
  info_.fua = now.fua;
  return info_;
}

void ChecksumQueue::submit(BlockRequest& request) {
  base::add_shared(requests_, 1);
  request.lent = nullptr;
  Errc wrong = check(info(), request);
  // Memory of its own, or none, is no place to compare in.
  const bool moves = request.op == BlockOp::kRead || request.op == BlockOp::kWrite;
  if (wrong == Errc::kOk && moves && request.buffer.address == nullptr) wrong = Errc::kInvalid;
  if (wrong != Errc::kOk) {
    base::add_shared(refused_, 1);
    return deferred_.end(request, wrong);
  }
  base::add_shared(in_progress_, 1);
  if (request.flushes()) below_.note_flush(request.flush_note);  // it may wait
  if (!waiting_.empty() || free_.empty()) return waiting_.push_back(request);
  start(*free_.pop_front(), request);
}

void ChecksumQueue::start(Slot& slot, BlockRequest& request) {
  slot.outer = &request;
  slot.covered_blocks = table_->covered_blocks();
  BlockRequest& inner = slot.inner;
  inner.op = request.op;
  inner.force_unit_access = request.force_unit_access;
  inner.preflush = request.preflush;
  inner.no_unmap = request.no_unmap;
  inner.priority = request.priority;
  inner.offset_bytes = request.offset_bytes;
  inner.length_bytes = request.length_bytes;
  inner.buffer = request.buffer;
  inner.lent = nullptr;
  inner.flush_note = std::exchange(request.flush_note, {});
  inner.told_later = request.told_later;
  inner.untold = std::exchange(request.untold, {});
  if (request.op == BlockOp::kRead)
    begin_read(slot);
  else if (request.op != BlockOp::kFlush)
    begin_change(slot);
  below_.submit(inner);
}

ChecksumQueue::Blocks ChecksumQueue::blocks_of(const Slot& slot) const {
  const uint64_t begin = slot.inner.offset_bytes;
  const uint64_t end = begin + slot.inner.length_bytes;
  Blocks blocks;
  blocks.first = begin / block_bytes_;
  blocks.end = std::min((end + block_bytes_ - 1) / block_bytes_, slot.covered_blocks);
  blocks.first = std::min(blocks.first, blocks.end);
  blocks.first_whole =
      std::clamp((begin + block_bytes_ - 1) / block_bytes_, blocks.first, blocks.end);
  blocks.end_whole = std::clamp(end / block_bytes_, blocks.first_whole, blocks.end);
  return blocks;
}

uint64_t ChecksumQueue::sum(const std::byte* block) const {
  return XXH3_64bits(block, block_bytes_) >> 16;
}

void ChecksumQueue::begin_change(Slot& slot) {
  const Blocks blocks = blocks_of(slot);
  const BlockRequest& inner = slot.inner;
  const uint64_t skipped = blocks.first_whole * block_bytes_ - inner.offset_bytes;
  const std::byte* data = inner.buffer.address + (inner.op == BlockOp::kWrite ? skipped : 0);
  for (uint64_t block = blocks.first; block < blocks.end; ++block) {
    const bool whole = block >= blocks.first_whole && block < blocks.end_whole;
    if (!whole || inner.op != BlockOp::kWrite) {
      table_->begin(block, inner.op == BlockOp::kWriteZeroes ? zero_sum_ : 0);
      continue;
    }
    table_->begin(block, sum(data));
    data += block_bytes_;
  }
}

/// What a discard leaves behind nobody promises; a failed write may have left anything.
void ChecksumQueue::end_change(const Slot& slot, bool done) {
  const Blocks blocks = blocks_of(slot);
  const bool known =
      done && (slot.inner.op == BlockOp::kWrite || slot.inner.op == BlockOp::kWriteZeroes);
  for (uint64_t block = blocks.first; block < blocks.end; ++block) {
    const bool whole = block >= blocks.first_whole && block < blocks.end_whole;
    if (!whole) base::add_shared(counters_.partial, 1);
    table_->end(block, known && whole);
  }
}

void ChecksumQueue::begin_read(Slot& slot) {
  const Blocks blocks = blocks_of(slot);
  for (uint64_t block = blocks.first_whole; block < blocks.end_whole; ++block)
    slot.seen[block - blocks.first_whole] = table_->look(block);
}

/// All blocks are looked at, so that each counts; the first that is wrong is told.
Errc ChecksumQueue::verify(Slot& slot) {
  const Blocks blocks = blocks_of(slot);
  base::add_shared(counters_.partial,
                   (blocks.end - blocks.first) - (blocks.end_whole - blocks.first_whole));
  const std::byte* data = slot.inner.buffer.address;
  if (blocks.first_whole < blocks.end_whole)
    data += blocks.first_whole * block_bytes_ - slot.inner.offset_bytes;
  Errc status = Errc::kOk;
  for (uint64_t block = blocks.first_whole; block < blocks.end_whole; ++block) {
    const ChecksumTable::Word seen = slot.seen[block - blocks.first_whole];
    const ChecksumTable::Word now = table_->look(block);
    if (now != seen || (!ChecksumTable::is_known(seen) && !ChecksumTable::is_unknown(seen))) {
      base::add_shared(counters_.changing, 1);
    } else if (ChecksumTable::is_known(seen)) {
      const uint64_t got = sum(data);
      if (got == ChecksumTable::sum_of(seen)) {
        base::add_shared(counters_.verified, 1);
      } else {
        base::add_shared(counters_.mismatches, 1);
        if (status == Errc::kOk)
          tell_({block, block * block_bytes_, ChecksumTable::sum_of(seen), got});
        status = Errc::kIo;
      }
    } else {
      base::add_shared(counters_.unknown, 1);
      if (learn_ && table_->learn(block, seen, sum(data))) base::add_shared(counters_.learned, 1);
    }
    data += block_bytes_;
  }
  return status;
}

void ChecksumQueue::ended(BlockRequest& inner, Errc status) {
  auto& slot = *static_cast<Slot*>(inner.context);
  ChecksumQueue& self = *slot.queue;
  if (inner.op == BlockOp::kRead) {
    const Errc verdict = status == Errc::kOk ? self.verify(slot) : Errc::kOk;
    if (verdict != Errc::kOk) {
      status = verdict;
      base::add_shared(self.own_.errors, 1);
      base::add_shared(self.counters_.failed, 1);
    }
  } else if (inner.op != BlockOp::kFlush) {
    self.end_change(slot, status == Errc::kOk);
  }
  self.finish(slot, status);
}

/// The slot goes to who waits. Requests may end inside submit(): the loop stands in for a
/// recursion.
void ChecksumQueue::finish(Slot& slot, Errc status) {
  BlockRequest& outer = *slot.outer;
  outer.untold = std::exchange(slot.inner.untold, {});
  free_.push_front(slot);
  base::subtract_shared(in_progress_, 1);
  outer.done(outer, status);
  if (starting_) return;
  starting_ = true;
  while (!waiting_.empty() && !free_.empty()) start(*free_.pop_front(), *waiting_.pop_front());
  starting_ = false;
}

bool ChecksumQueue::busy() const {
  const uint64_t ended = base::read_shared(own_.errors) - base::read_shared(counters_.failed);
  return base::read_shared(in_progress_) > 0 || base::read_shared(refused_) != ended;
}

void ChecksumQueue::add_to(FilterCounters& counters) const {
  FilterQueue::add_to(counters);
  for (auto number :
       {&FilterCounters::failed, &FilterCounters::verified, &FilterCounters::mismatches,
        &FilterCounters::unknown, &FilterCounters::changing, &FilterCounters::partial,
        &FilterCounters::learned})
    counters.*number += base::read_shared(counters_.*number);
}

}  // namespace braid::bnbd::filter
