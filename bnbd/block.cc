#include "bnbd/block.h"

namespace braid::bnbd {

using base::Errc;

namespace {

Errc check_range(const BlockInfo& info, const BlockRequest& request, uint64_t length_max) {
  const uint64_t block = info.logical_block_bytes;
  if (request.length_bytes == 0 || request.length_bytes > length_max) return Errc::kInvalid;
  if (request.length_bytes % block != 0 || request.offset_bytes % block != 0) return Errc::kInvalid;
  if (request.length_bytes > info.size_bytes) return Errc::kOutOfRange;
  if (request.offset_bytes > info.size_bytes - request.length_bytes) return Errc::kOutOfRange;
  return Errc::kOk;
}

Errc check_change(const BlockInfo& info, const BlockRequest& request, uint64_t length_max) {
  if (info.read_only) return Errc::kReadOnly;
  if (length_max == 0) return Errc::kNotSupported;
  return check_range(info, request, length_max);
}

/// The buffer is there and, if it names a region, inside it.
Errc check_buffer(const BlockRequest& request) {
  const BufferRef& buffer = request.buffer;
  if (buffer.address == nullptr) {
    return request.op == BlockOp::kRead && request.may_lend ? Errc::kOk : Errc::kInvalid;
  }
  if (buffer.region == nullptr) return Errc::kOk;
  const auto begin = reinterpret_cast<uintptr_t>(buffer.region->data());
  const auto address = reinterpret_cast<uintptr_t>(buffer.address);
  if (address < begin || address - begin > buffer.region->size()) return Errc::kInvalid;
  if (request.length_bytes > buffer.region->size() - (address - begin)) return Errc::kInvalid;
  return Errc::kOk;
}

Errc check_flush(const BlockRequest& request) {
  return request.offset_bytes == 0 && request.length_bytes == 0 ? Errc::kOk : Errc::kInvalid;
}

}  // namespace

std::string_view to_string(BlockOp op) {
  switch (op) {
    case BlockOp::kRead:
      return "read";
    case BlockOp::kWrite:
      return "write";
    case BlockOp::kFlush:
      return "flush";
    case BlockOp::kDiscard:
      return "discard";
    case BlockOp::kWriteZeroes:
      return "write-zeroes";
    case BlockOp::kSecureErase:
      return "secure erase";
  }
  return "?";
}

base::Task<base::Status> BlockDevice::resize(uint64_t size_bytes) {
  co_return base::make_error(Errc::kNotSupported,
                             "this kind of device has {} bytes for as long as it lives: {} cannot "
                             "be",
                             info().size_bytes, size_bytes);
}

base::Task<base::Result<bool>> BlockDevice::refresh_size() {
  co_return false;
}

Errc check(const BlockInfo& info, const BlockRequest& request) {
  switch (request.op) {
    case BlockOp::kRead: {
      const Errc range = check_range(info, request, info.max_io_bytes);
      return range != Errc::kOk ? range : check_buffer(request);
    }
    case BlockOp::kWrite: {
      const Errc range = check_change(info, request, info.max_io_bytes);
      return range != Errc::kOk ? range : check_buffer(request);
    }
    case BlockOp::kFlush:
      return check_flush(request);
    case BlockOp::kDiscard:
      return check_change(info, request, info.max_discard_bytes);
    case BlockOp::kWriteZeroes:
      return check_change(info, request, info.max_write_zeroes_bytes);
    case BlockOp::kSecureErase:
      return check_change(info, request, info.max_secure_erase_bytes);
  }
  return Errc::kInvalid;
}

void BlockStatistics::count(const BlockRequest& request, Errc status) {
  using base::add_shared;
  if (status != Errc::kOk) return add_shared(errors, 1);
  switch (request.op) {
    case BlockOp::kRead:
      add_shared(reads, 1);
      add_shared(read_bytes, request.length_bytes);
      return add_shared(lent, request.lent != nullptr ? 1 : 0);
    case BlockOp::kWrite:
      add_shared(writes, 1);
      return add_shared(write_bytes, request.length_bytes);
    case BlockOp::kFlush:
      return add_shared(flushes, 1);
    case BlockOp::kDiscard:
      return add_shared(discards, 1);
    case BlockOp::kWriteZeroes:
      return add_shared(write_zeroes, 1);
    case BlockOp::kSecureErase:
      return add_shared(secure_erases, 1);
  }
}

BlockStatistics BlockStatistics::read() const {
  BlockStatistics now;
  now.add(*this);
  return now;
}

void BlockStatistics::add(const BlockStatistics& other) {
  const auto add_to = [&](uint64_t BlockStatistics::*number) {
    this->*number += base::read_shared(other.*number);
  };
  for (auto number :
       {&BlockStatistics::reads, &BlockStatistics::read_bytes, &BlockStatistics::writes,
        &BlockStatistics::write_bytes, &BlockStatistics::flushes, &BlockStatistics::discards,
        &BlockStatistics::write_zeroes, &BlockStatistics::secure_erases, &BlockStatistics::errors,
        &BlockStatistics::copies, &BlockStatistics::lent, &BlockStatistics::zeroes_written}) {
    add_to(number);
  }
}

}  // namespace braid::bnbd
