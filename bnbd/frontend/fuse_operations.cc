#include "bnbd/frontend/fuse_operations.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>
#include <string>

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>

#include "bnbd/frontend/fuse_server.h"

namespace braid::bnbd {

namespace {

constexpr fuse_ino_t kFileInode = FUSE_ROOT_ID + 1;
// The name stays; the size may change, and the loop device asks for it when it is told to.
constexpr double kForEverSeconds = 1e9;
constexpr double kNotAtAllSeconds = 0;

FuseServer& server_of(fuse_req_t request) {
  return *static_cast<FuseServer*>(fuse_req_userdata(request));
}

struct stat attributes(const BlockInfo& info, fuse_ino_t inode) {
  struct stat stat = {};
  stat.st_ino = inode;
  stat.st_nlink = 1;
  stat.st_blksize = static_cast<blksize_t>(info.physical_block_bytes);
  if (inode == FUSE_ROOT_ID) {
    stat.st_mode = S_IFDIR | 0500;
  } else {
    stat.st_mode = static_cast<mode_t>(S_IFREG | (info.read_only ? 0400 : 0600));
    stat.st_size = static_cast<off_t>(info.size_bytes);
    stat.st_blocks = static_cast<blkcnt_t>(info.size_bytes / 512);
  }
  return stat;
}

}  // namespace

/// libfuse's callbacks. Those without one are answered ENOSYS by libfuse.
struct FuseCallbacks {
  static void init(void* context, struct fuse_conn_info* connection) {
    auto& self = *static_cast<FuseServer*>(context);
    connection->max_write = connection->max_read = self.pool_->payload_bytes();
    connection->max_readahead = 0;
    // The asynchronous direct I/O that a loop device sends counts as background.
    const auto slots = self.pool_->most();
    connection->max_background = connection->congestion_threshold = slots;
    connection->want &= ~static_cast<unsigned>(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
                                               FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE);
    connection->want |= connection->capable & (FUSE_CAP_ASYNC_DIO | FUSE_CAP_ASYNC_READ);
  }

  static void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
    FuseServer& self = server_of(request);
    if (parent != FUSE_ROOT_ID || self.file_name_ != name) return self.refuse(request, ENOENT);
    struct fuse_entry_param entry = {};
    entry.ino = kFileInode;
    entry.attr = attributes(self.device_.info(), kFileInode);
    entry.entry_timeout = kForEverSeconds;
    entry.attr_timeout = kNotAtAllSeconds;
    fuse_reply_entry(request, &entry);
  }

  static void getattr(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info*) {
    FuseServer& self = server_of(request);
    if (inode != FUSE_ROOT_ID && inode != kFileInode) return self.refuse(request, ENOENT);
    const struct stat stat = attributes(self.device_.info(), inode);
    fuse_reply_attr(request, &stat, kNotAtAllSeconds);
  }

  static void statfs(fuse_req_t request, fuse_ino_t) {
    // The loop device takes its granularity of discards from here.
    const BlockInfo& info = server_of(request).device_.info();
    struct statvfs statvfs = {};
    statvfs.f_bsize = std::max({info.discard_granularity_bytes, info.logical_block_bytes, 512U});
    statvfs.f_frsize = statvfs.f_bsize;
    statvfs.f_blocks = info.size_bytes / statvfs.f_bsize;
    statvfs.f_namemax = 255;
    fuse_reply_statfs(request, &statvfs);
  }

  static void open(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info* file) {
    FuseServer& self = server_of(request);
    if (inode != kFileInode) return self.refuse(request, EISDIR);
    const bool writes = (file->flags & O_ACCMODE) != O_RDONLY;
    if (writes && self.device_.info().read_only) return self.refuse(request, EROFS);
    file->direct_io = 1;  // the kernel keeps no second cache of the disk
    fuse_reply_open(request, file);
  }

  static void read(fuse_req_t request, fuse_ino_t inode, size_t size_bytes, off_t offset,
                   struct fuse_file_info*) {
    FuseServer& self = server_of(request);
    if (inode != kFileInode || offset < 0 || size_bytes > self.pool_->payload_bytes()) {
      return self.refuse(request, EINVAL);
    }
    self.run(self.keep_slot(request), BlockOp::kRead, static_cast<uint64_t>(offset), size_bytes);
  }

  static void write(fuse_req_t request, fuse_ino_t inode, const char* data, size_t size_bytes,
                    off_t offset, struct fuse_file_info*) {
    FuseServer& self = server_of(request);
    // The payload must lie where a slot has it, and all of it must have come.
    const FuseServer::Slot& slot = *self.current_;
    const bool whole = reinterpret_cast<const std::byte*>(data) == slot.payload &&
                       size_bytes <= self.pool_->payload_bytes() &&
                       slot.received_bytes == FuseServer::kWriteHeadBytes + size_bytes;
    if (inode != kFileInode || offset < 0 || !whole) return self.refuse(request, EINVAL);
    self.run(self.keep_slot(request), BlockOp::kWrite, static_cast<uint64_t>(offset), size_bytes);
  }

  static void fsync(fuse_req_t request, fuse_ino_t inode, int, struct fuse_file_info*) {
    FuseServer& self = server_of(request);
    if (inode != kFileInode) return self.refuse(request, EINVAL);
    self.run(self.keep_slot(request), BlockOp::kFlush, 0, 0);
  }

  static void fallocate(fuse_req_t request, fuse_ino_t inode, int mode, off_t offset, off_t length,
                        struct fuse_file_info*) {
    FuseServer& self = server_of(request);
    if (inode != kFileInode || offset < 0 || length <= 0) return self.refuse(request, EINVAL);
    constexpr int kKnown = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
    const bool punch = (mode & FALLOC_FL_PUNCH_HOLE) != 0;
    const bool zero = (mode & FALLOC_FL_ZERO_RANGE) != 0;
    if (punch == zero || (mode & ~kKnown) != 0) return self.refuse(request, EOPNOTSUPP);
    // A loop device punches a hole both to discard and to write zeroes, and a hole reads as zeroes:
    // only write-zeroes promises that, with leave to give the space back.
    FuseServer::Slot& slot = self.keep_slot(request);
    slot.operation.no_unmap = zero;
    self.run(slot, BlockOp::kWriteZeroes, static_cast<uint64_t>(offset),
             static_cast<uint64_t>(length));
  }

  static struct fuse_lowlevel_ops table() {
    struct fuse_lowlevel_ops operations = {};
    operations.init = &init;
    operations.lookup = &lookup;
    operations.getattr = &getattr;
    operations.statfs = &statfs;
    operations.open = &open;
    operations.read = &read;
    operations.write = &write;
    operations.fsync = &fsync;
    operations.fallocate = &fallocate;
    return operations;
  }
};

fuse_session* FuseOperations::create_session(FuseServer& server, uint32_t payload_bytes,
                                             int fuse_fd) {
  std::string program = "braid";
  std::string max_read = fmt::format("-omax_read={}", payload_bytes);
  char* arguments[] = {program.data(), max_read.data(), nullptr};
  struct fuse_args args = FUSE_ARGS_INIT(2, arguments);
  const struct fuse_lowlevel_ops operations = FuseCallbacks::table();
  fuse_session* const session = fuse_session_new(&args, &operations, sizeof(operations), &server);
  fuse_opt_free_args(&args);
  if (session == nullptr) return nullptr;
  if (fuse_session_mount(session, fmt::format("/dev/fd/{}", fuse_fd).c_str()) != 0) {
    fuse_session_destroy(session);
    return nullptr;
  }
  return session;
}

void FuseOperations::destroy_session(fuse_session* session) {
  fuse_session_destroy(session);
}

void FuseOperations::process(fuse_session* session, std::byte* request, size_t size_bytes) {
  struct fuse_buf buffer = {};
  buffer.mem = request;
  buffer.size = size_bytes;
  fuse_session_process_buf(session, &buffer);
}

void FuseOperations::reply_error(fuse_req* request, int sys_errno) {
  fuse_reply_err(request, sys_errno);
}

void FuseOperations::reply_data(fuse_req* request, const std::byte* data, uint64_t size_bytes) {
  fuse_reply_buf(request, reinterpret_cast<const char*>(data), size_bytes);
}

void FuseOperations::reply_written(fuse_req* request, uint64_t size_bytes) {
  fuse_reply_write(request, size_bytes);
}

}  // namespace braid::bnbd
