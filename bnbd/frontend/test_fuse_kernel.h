// For tests of FuseServer without a kernel device.
#pragma once

#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "bnbd/frontend/fd_handle.h"

namespace braid::bnbd::test {

/// The kernel's end of a FUSE session, on a socket in place of /dev/fuse.
class FuseKernelEnd {
 public:
  explicit FuseKernelEnd(UniqueFd socket) : socket_(std::move(socket)) {
    const int bytes = 1 << 20;  // at most what the system allows: some 16 requests of 16 KiB
    (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  }
  template <typename Argument>
  void send(uint32_t opcode, const Argument& argument, size_t payload_bytes) {
    fuse_in_header header{};
    header.len = static_cast<uint32_t>(sizeof header + sizeof argument + payload_bytes);
    header.opcode = opcode;
    header.nodeid = opcode == FUSE_INIT ? FUSE_ROOT_ID : 2;  // the root, and the one file
    header.unique = ++unique_;
    std::memcpy(message_.data(), &header, sizeof header);
    std::memcpy(message_.data() + sizeof header, &argument, sizeof argument);
    ASSERT_EQ(::send(socket_.get(), message_.data(), header.len, MSG_NOSIGNAL),
              static_cast<ssize_t>(header.len));
  }
  /// Starts the session.
  void send_init() {
    fuse_init_in init{};
    init.major = FUSE_KERNEL_VERSION;
    init.minor = 31;
    send(FUSE_INIT, init, 0);
  }
  void send_write(uint64_t offset_bytes, uint32_t size_bytes) {
    fuse_write_in write{};
    write.offset = offset_bytes;
    write.size = size_bytes;
    send(FUSE_WRITE, write, size_bytes);
  }
  /// True if an answer was there; it must say success.
  bool answered() { return answer_is(0); }
  /// True if an answer was there; it must say this: 0 or a negative errno.
  bool answer_is(int32_t error) {
    const ssize_t got = ::recv(socket_.get(), message_.data(), message_.size(), MSG_DONTWAIT);
    if (got < 0) return false;
    fuse_out_header header{};
    std::memcpy(&header, message_.data(), sizeof header);
    EXPECT_EQ(header.error, error);
    return true;
  }

 private:
  const UniqueFd socket_;
  uint64_t unique_ = 0;
  std::array<char, 20480> message_{};
};

}  // namespace braid::bnbd::test
