// Files of a disk that never answers, beside files of one that does: a FUSE file system of this
// process. Files whose name begins with "hung" leave each read, write and flush without an answer
// until the end; those that begin with "lost" go through the kernel's cache, and fail each write.
// Needs root; valid() says whether it could be made.
#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/linux/fd.h"
#include "base/linux/test_support.h"

namespace braid::base {

class HungFiles {
 public:
  static constexpr uint64_t kFileBytes = 16 << 20;

  HungFiles() : device_(::open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK)) {
    if (!device_.valid()) return;
    const std::string options =
        "fd=" + std::to_string(device_.fd()) + ",rootmode=40000,user_id=0,group_id=0";
    mounted_ = ::mount("hung", folder_.path().c_str(), "fuse", 0, options.c_str()) == 0;
    if (mounted_) server_ = std::thread([this] { serve(); });
  }
  ~HungFiles() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
    ending_ = true;
    if (server_.joinable()) server_.join();
  }
  HungFiles(const HungFiles&) = delete;
  HungFiles& operator=(const HungFiles&) = delete;

  bool valid() const { return mounted_; }
  const std::string& path() const { return folder_.path(); }
  /// Ends all that hangs, in errors. Files stay useless.
  void end() {
    ending_ = true;
    if (server_.joinable()) server_.join();
    device_ = Fd();
  }

 private:
  enum Node : uint64_t { kRoot = FUSE_ROOT_ID, kHung = 16, kWell = 4112, kLost = 8208 };
  static uint64_t node_of(const char* name) {
    const auto begins = [name](const char* with) { return std::strncmp(name, with, 4) == 0; };
    const uint64_t kind = begins("hung") ? kHung : begins("lost") ? kLost : kWell;
    return kind + static_cast<uint64_t>(name[std::strlen(name) - 1]);
  }

  void serve() {
    std::vector<char> message(size_t{2} << 20);
    while (!ending_) {
      pollfd ready{device_.fd(), POLLIN, 0};
      if (::poll(&ready, 1, 20) <= 0) continue;
      const ssize_t got = ::read(device_.fd(), message.data(), message.size());
      if (got < 0 && errno == ENODEV) return;
      if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) continue;
      fuse_in_header header{};
      std::memcpy(&header, message.data(), sizeof header);
      answer(header, message.data() + sizeof header);
    }
  }
  void answer(const fuse_in_header& asked, const char* argument) {
    const bool hangs = asked.nodeid >= kHung && asked.nodeid < kWell;
    switch (asked.opcode) {
      case FUSE_INIT: {
        fuse_init_out out{.major = FUSE_KERNEL_VERSION, .minor = 31};
        out.flags = FUSE_ASYNC_DIO | FUSE_WRITEBACK_CACHE;
        out.max_background = out.congestion_threshold = 4096;  // the kernel must not wait for us
        out.max_write = 1 << 17;
        return reply(asked, &out, sizeof out);
      }
      case FUSE_LOOKUP: {
        fuse_entry_out out{.nodeid = node_of(argument)};
        out.entry_valid = out.attr_valid = 3600;
        out.attr = attributes(out.nodeid);
        return reply(asked, &out, sizeof out);
      }
      case FUSE_SETATTR:
      case FUSE_GETATTR: {
        fuse_attr_out out{.attr_valid = 3600};
        out.attr = attributes(asked.nodeid);
        return reply(asked, &out, sizeof out);
      }
      case FUSE_OPEN:
      case FUSE_OPENDIR: {
        const bool cached = asked.nodeid >= kLost;
        const fuse_open_out out{.open_flags = cached ? 0U : FOPEN_DIRECT_IO};
        return reply(asked, &out, sizeof out);
      }
      case FUSE_READ: {
        fuse_read_in in{};
        std::memcpy(&in, argument, sizeof in);
        const std::vector<char> zeroes(in.size);
        if (!hangs) reply(asked, zeroes.data(), zeroes.size());
        return;
      }
      case FUSE_WRITE: {
        fuse_write_in in{};
        std::memcpy(&in, argument, sizeof in);
        if (asked.nodeid >= kLost) return reply(asked, nullptr, 0, EIO);
        const fuse_write_out out{.size = in.size};
        if (!hangs) reply(asked, &out, sizeof out);
        return;
      }
      case FUSE_FSYNC:
        if (!hangs) reply(asked, nullptr, 0);
        return;
      case FUSE_STATFS: {
        const fuse_statfs_out out{};
        return reply(asked, &out, sizeof out);
      }
      case FUSE_SETXATTR:
      case FUSE_FLUSH:
      case FUSE_RELEASE:
        return reply(asked, nullptr, 0);
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT:
        return;
      default:
        return reply(asked, nullptr, 0, ENOSYS);
    }
  }
  static fuse_attr attributes(uint64_t node) {
    fuse_attr out{};
    out.ino = node;
    out.size = kFileBytes;
    out.mode = node == kRoot ? S_IFDIR | 0755 : S_IFREG | 0600;
    out.nlink = 1;
    out.blksize = 4096;
    return out;
  }
  void reply(const fuse_in_header& asked, const void* data, size_t length, int error = 0) {
    std::vector<char> message(sizeof(fuse_out_header) + length);
    fuse_out_header header{.len = static_cast<uint32_t>(message.size()), .error = -error};
    header.unique = asked.unique;
    std::memcpy(message.data(), &header, sizeof header);
    if (length > 0) std::memcpy(message.data() + sizeof header, data, length);
    (void)!::write(device_.fd(), message.data(), message.size());
  }

  ScratchFolder folder_;  // the mount point; goes when it is mounted no more
  Fd device_;
  bool mounted_ = false;
  std::atomic<bool> ending_{false};
  std::thread server_;
};

}  // namespace braid::base
