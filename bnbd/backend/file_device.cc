#include "bnbd/backend/file_device.h"

#include <algorithm>
#include <cstring>

#include "bnbd/backend/local_region.h"

namespace braid::bnbd {

using base::Errc;
using base::IoOpcode;

namespace {

constexpr size_t kBounceBuffers = 4;
constexpr size_t kZeroBytes = 1 << 20;
// Longer ranges go in pieces, so that one of them does not hold a kernel worker for long.
constexpr uint64_t kRangePieceBytes = uint64_t{128} << 20;

size_t round_up(size_t value, size_t block) {
  return (value + block - 1) / block * block;
}

/// From one bounce buffer to the next: whole blocks, as direct I/O wants each to begin at one.
size_t bounce_bytes(const BlockInfo& info) {
  return round_up(info.max_io_bytes, info.logical_block_bytes);
}

bool changes_range(BlockOp op) {
  return op == BlockOp::kDiscard || op == BlockOp::kWriteZeroes;
}

}  // namespace

size_t FileDevice::scratch_bytes(const BlockInfo& info) {
  // A segment begins at a page, and a block may be longer.
  return kBounceBuffers * bounce_bytes(info) + kZeroBytes + info.logical_block_bytes;
}

FileDevice::FileDevice(base::Reactor& reactor, std::unique_ptr<base::File> file,
                       std::unique_ptr<base::Segment> scratch, Options options)
    : reactor_(reactor),
      log_(reactor.log().child("file")),
      file_(std::move(file)),
      scratch_(std::move(scratch)),
      name_(std::move(options.name)),
      info_(std::move(options.info)),
      slots_(info_.queue_depth),
      rejected_(reactor, statistics_),
      can_punch_(file_->info().can_discard),
      can_zero_range_(file_->info().can_write_zeroes) {
  heeds_fua_ = !reactor_.host().mutant("fua-dropped");
  for (Slot& slot : slots_) {
    slot.device = this;
    slot.op.file = file_.get();
    slot.op.done = &FileDevice::op_done;
    slot.op.context = &slot;
    free_.push_back(slot);
  }
  for (size_t i = 0; i < kBounceBuffers; ++i) {
    bounce_free_.push_back(scratch_at(i * bounce_bytes(info_)));
  }
}

FileDevice::~FileDevice() = default;

/// A place in the scratch memory, counted from its first whole block.
std::byte* FileDevice::scratch_at(size_t offset) const {
  const auto begin = reinterpret_cast<uintptr_t>(scratch_->data());
  return scratch_->data() + (round_up(begin, info_.logical_block_bytes) - begin) + offset;
}

base::Result<std::unique_ptr<Region>> FileDevice::create_region(size_t size_bytes) {
  return LocalRegion::create(reactor_.host(), size_bytes);
}

void FileDevice::submit(BlockRequest& request) {
  request.lent = nullptr;
  const Errc status = check(info_, request);
  if (status != Errc::kOk) {
    rejected_.end(request, status);
  } else if (hold_beyond(request)) {
    return;
  } else if (Slot* slot = free_.pop_front()) {
    start(*slot, request);
  } else {
    waiting_.push_back(request);
  }
}

void FileDevice::start(Slot& slot, BlockRequest& request) {
  slot.request = &request;
  slot.done_bytes = 0;
  slot.stage = Stage::kBody;
  if (changes_range(request.op)) slot.method = first_method(request);
  if (request.preflush && request.op != BlockOp::kFlush) {
    flush(slot, Stage::kPreflush);
  } else {
    step(slot);
  }
}

/// A discard is never carried out as zeroes: they would take the space that is to be given back.
FileDevice::Method FileDevice::first_method(const BlockRequest& request) const {
  if (request.op == BlockOp::kDiscard) return Method::kPunch;
  if (can_punch_ && !request.no_unmap) return Method::kPunch;
  return can_zero_range_ ? Method::kZeroRange : Method::kWrite;
}

/// Puts the next operation of the body on its way.
void FileDevice::step(Slot& slot) {
  switch (slot.request->op) {
    case BlockOp::kFlush:
      flush(slot, Stage::kBody);
      return;
    case BlockOp::kRead:
    case BlockOp::kWrite:
      step_transfer(slot);
      return;
    case BlockOp::kDiscard:
    case BlockOp::kWriteZeroes:
      step_range(slot);
      return;
    case BlockOp::kSecureErase:
      if (erasing_) return erase_waiters_.push_back(slot);
      erasing_ = true;
      reactor_.spawn(erase(slot));
      return;
  }
}

/// The kernel has no asynchronous call for it. Rare and slow: a worker and an allocation do, one at
/// a time: workers are everybody's, and a client may ask for as many as its queue has.
base::Task<void> FileDevice::erase(Slot& slot) {
  const auto outcome = std::make_shared<Errc>(Errc::kOk);
  std::function<void()> work = [outcome, file = file_, offset = slot.request->offset_bytes,
                                length = slot.request->length_bytes] {
    *outcome = file->secure_erase(offset, length).code();
  };
  co_await reactor_.offload(std::move(work));
  Slot* const next = erase_waiters_.pop_front();
  erasing_ = next != nullptr;
  if (next != nullptr) reactor_.spawn(erase(*next));
  advance(slot, *outcome);
}

void FileDevice::flush(Slot& slot, Stage stage) {
  slot.stage = stage;
  // The planted bug reads nothing instead, which also completes.
  slot.op.opcode = reactor_.host().mutant("lost-flush") ? IoOpcode::kRead : IoOpcode::kFlush;
  slot.op.force_unit_access = false;
  slot.op.buffer = nullptr;
  slot.op.offset_bytes = slot.op.length_bytes = 0;
  reactor_.io().submit(slot.op);
}

void FileDevice::step_transfer(Slot& slot) {
  const BlockRequest& request = *slot.request;
  const bool direct = aligned(request);
  if (!direct && !take_bounce(slot)) return;  // goes on when a buffer is free
  slot.op.opcode = request.op == BlockOp::kRead ? IoOpcode::kRead : IoOpcode::kWrite;
  slot.op.force_unit_access =
      heeds_fua_ && request.op == BlockOp::kWrite && request.force_unit_access;
  slot.op.priority = request.priority;
  slot.op.buffer = direct ? request.buffer.address : slot.bounce;
  slot.op.offset_bytes = request.offset_bytes;
  slot.op.length_bytes = request.length_bytes;
  if (!direct && request.op == BlockOp::kWrite) {
    std::memcpy(slot.bounce, request.buffer.address, request.length_bytes);
  }
  reactor_.io().submit(slot.op);
}

bool FileDevice::aligned(const BlockRequest& request) const {
  if (!file_->info().direct) return true;
  return reinterpret_cast<uintptr_t>(request.buffer.address) % info_.logical_block_bytes == 0;
}

bool FileDevice::take_bounce(Slot& slot) {
  if (bounce_free_.empty()) {
    bounce_waiters_.push_back(slot);
    return false;
  }
  slot.bounce = bounce_free_.back();
  bounce_free_.pop_back();
  ++statistics_.copies;
  return true;
}

void FileDevice::give_bounce_back(Slot& slot) {
  if (slot.bounce == nullptr) return;
  bounce_free_.push_back(std::exchange(slot.bounce, nullptr));
  if (Slot* waiter = bounce_waiters_.pop_front()) step_transfer(*waiter);
}

void FileDevice::step_range(Slot& slot) {
  const BlockRequest& request = *slot.request;
  const uint64_t left = request.length_bytes - slot.done_bytes;
  const bool by_hand = slot.method == Method::kWrite;
  slot.piece_bytes = std::min<uint64_t>(left, by_hand ? kZeroBytes : kRangePieceBytes);
  slot.op.opcode = by_hand                         ? IoOpcode::kWrite
                   : slot.method == Method::kPunch ? IoOpcode::kDiscard
                                                   : IoOpcode::kWriteZeroes;
  slot.op.priority = request.priority;  // of zeroes written by hand
  slot.op.force_unit_access = false;    // one flush at the end is cheaper
  slot.op.buffer = by_hand ? scratch_at(kBounceBuffers * bounce_bytes(info_)) : nullptr;
  slot.op.offset_bytes = request.offset_bytes + slot.done_bytes;
  slot.op.length_bytes = slot.piece_bytes;
  reactor_.io().submit(slot.op);
}

void FileDevice::op_done(base::IoOp& op, Errc status) {
  Slot& slot = *static_cast<Slot*>(op.context);
  slot.device->advance(slot, status);
}

/// An operation has ended: the next one, or the end of the request.
void FileDevice::advance(Slot& slot, Errc status) {
  const BlockRequest& request = *slot.request;
  if (slot.stage == Stage::kPreflush && status == Errc::kOk) {
    slot.stage = Stage::kBody;
    return step(slot);
  }
  const bool in_pieces = changes_range(request.op);
  const bool flushed_behind = in_pieces || request.op == BlockOp::kSecureErase;
  if (slot.stage != Stage::kBody || !flushed_behind) return finish(slot, status);
  if (in_pieces && status == Errc::kNotSupported && try_next_method(slot)) return step_range(slot);
  if (status != Errc::kOk) return finish(slot, status);
  if (in_pieces) slot.done_bytes += slot.piece_bytes;
  if (in_pieces && slot.done_bytes < request.length_bytes) return step_range(slot);
  const bool flushes =
      request.force_unit_access && !reactor_.host().mutant("acknowledged-before-flush");
  if (flushes) return flush(slot, Stage::kPostflush);
  finish(slot, Errc::kOk);
}

/// The medium refused a way to make zeroes. True if there is another; it is remembered.
bool FileDevice::try_next_method(Slot& slot) {
  if (slot.method == Method::kPunch) {
    if (std::exchange(can_punch_, false)) {
      log_.warning("{}: cannot punch holes; space is not given back", name_);
    }
    if (slot.request->op == BlockOp::kDiscard) return false;
    slot.method = can_zero_range_ ? Method::kZeroRange : Method::kWrite;
    return true;
  }
  if (slot.method == Method::kWrite) return false;
  if (std::exchange(can_zero_range_, false)) {
    log_.warning("{}: cannot zero ranges; zeroes are written instead", name_);
  }
  slot.method = Method::kWrite;
  return true;
}

void FileDevice::finish(Slot& slot, Errc status) {
  BlockRequest& request = *slot.request;
  if (slot.bounce != nullptr && request.op == BlockOp::kRead && status == Errc::kOk) {
    std::memcpy(request.buffer.address, slot.bounce, request.length_bytes);
  }
  if (changes_range(request.op) && slot.method == Method::kWrite && status == Errc::kOk) {
    ++statistics_.zeroes_written;
  }
  give_bounce_back(slot);
  slot.request = nullptr;
  BlockRequest* next = waiting_.pop_front();
  while (next != nullptr) {
    const bool fits = check(info_, *next) == Errc::kOk;
    if (!fits) rejected_.end(*next, Errc::kOutOfRange);  // the device shrank meanwhile
    if (fits && !hold_beyond(*next)) break;
    next = waiting_.pop_front();
  }
  if (next != nullptr) {
    start(slot, *next);
  } else {
    free_.push_back(slot);
  }
  statistics_.count(request, status);
  request.done(request, status);
}

}  // namespace braid::bnbd
