#include "base/linux/uring_ops.h"

#include <linux/falloc.h>
#include <linux/fs.h>

#include <algorithm>
#include <cerrno>

#include "base/linux/file.h"

namespace braid::base {
namespace {

// A file system that always says EAGAIN must not keep the reactor busy with asking.
constexpr unsigned kRefusalsMax = 100;
constexpr uint64_t kTransferBytesMax = uint64_t{1} << 30;

// kWriteZeroes where the file system has no such call (tmpfs): give the range back, then allocate
// it again. `progressed_bytes` holds the step, as such operations are never short.
enum WriteZeroesStep : uint64_t { kZeroRange, kPunch, kAllocate };

bool transfers(const IoOp& op) {
  return op.opcode == IoOpcode::kRead || op.opcode == IoOpcode::kWrite;
}

int fallocate_mode(const IoOp& op) {
  if (op.opcode == IoOpcode::kDiscard || op.progressed_bytes == kPunch) {
    return FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  }
  return op.progressed_bytes == kAllocate ? FALLOC_FL_KEEP_SIZE
                                          : FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
}

}  // namespace

Errc check_io(const IoOp& op) {
  if (op.file == nullptr) return Errc::kInvalid;
  const File::Info& info = op.file->info();
  if (op.opcode == IoOpcode::kFlush) return Errc::kOk;
  if (op.opcode != IoOpcode::kRead && info.read_only) return Errc::kReadOnly;
  if (op.offset_bytes > info.size_bytes || op.length_bytes > info.size_bytes - op.offset_bytes) {
    return Errc::kOutOfRange;
  }
  if (transfers(op)) {
    if (op.length_bytes > kTransferBytesMax) return Errc::kInvalid;
    if (op.buffer == nullptr && op.length_bytes > 0) return Errc::kInvalid;
    if (info.direct) {
      const uint64_t all =
          op.offset_bytes | op.length_bytes | reinterpret_cast<uintptr_t>(op.buffer);
      if (all % info.logical_block_bytes != 0) return Errc::kInvalid;
    }
  } else if (info.block_device) {
    if ((op.offset_bytes | op.length_bytes) % info.logical_block_bytes != 0) return Errc::kInvalid;
  }
  return Errc::kOk;
}

bool op_is_empty(const IoOp& op) {
  return op.opcode != IoOpcode::kFlush && op.length_bytes == 0;
}

void prepare_io(const IoOp& op, io_uring_sqe& sqe) {
  const int fd = static_cast<const LinuxFile*>(op.file)->fd();
  const uint64_t left = op.length_bytes - (transfers(op) ? op.progressed_bytes : 0);
  switch (op.opcode) {
    case IoOpcode::kRead:
      io_uring_prep_read(&sqe, fd, op.buffer + op.progressed_bytes, static_cast<unsigned>(left),
                         op.offset_bytes + op.progressed_bytes);
      sqe.ioprio = op.priority;
      return;
    case IoOpcode::kWrite:
      io_uring_prep_write(&sqe, fd, op.buffer + op.progressed_bytes, static_cast<unsigned>(left),
                          op.offset_bytes + op.progressed_bytes);
      if (op.force_unit_access) sqe.rw_flags = RWF_DSYNC;
      sqe.ioprio = op.priority;
      return;
    case IoOpcode::kFlush:
      io_uring_prep_fsync(&sqe, fd, IORING_FSYNC_DATASYNC);
      return;
    case IoOpcode::kDiscard:
    case IoOpcode::kWriteZeroes:
      io_uring_prep_fallocate(&sqe, fd, fallocate_mode(op), static_cast<off_t>(op.offset_bytes),
                              static_cast<off_t>(left));
      return;
  }
}

IoProgress advance_io(IoOp& op, int result) {
  if (result == -EINTR || result == -EAGAIN) {
    return ++op.refusals < kRefusalsMax ? IoProgress::kAgain : IoProgress::kRefused;
  }
  op.refusals = 0;
  if (op.opcode == IoOpcode::kWriteZeroes) {
    if (op.progressed_bytes == kZeroRange && result == -EOPNOTSUPP) {
      op.progressed_bytes = kPunch;
      return IoProgress::kAgain;
    }
    if (op.progressed_bytes == kPunch && result == 0) {
      op.progressed_bytes = kAllocate;
      return IoProgress::kAgain;
    }
  }
  if (result < 0) return IoProgress::kFailed;
  if (!transfers(op)) return IoProgress::kDone;
  if (result == 0) return IoProgress::kPastEnd;
  op.progressed_bytes += static_cast<uint64_t>(result);
  return op.progressed_bytes >= op.length_bytes ? IoProgress::kDone : IoProgress::kAgain;
}

}  // namespace braid::base
