// An owned file descriptor, and the small calls that all of LinuxHost uses.
#pragma once

#include <memory>
#include <utility>

#include "base/host.h"

namespace braid::base {

class Fd : public Handle {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() override;

  int fd() const override { return fd_; }
  bool valid() const { return fd_ >= 0; }
  Result<std::unique_ptr<Handle>> duplicate() const override;

 private:
  int fd_ = -1;
};

/// Runs a system call again while a signal interrupts it.
template <typename Call>
auto retry_interrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

/// What is open there, as an open file of its own; not valid (errno) if it cannot be had.
Fd open_anew(const Handle& of, int flags);

/// Makes the process's table of descriptors as long as it may get, but for what is above 16384 (128
/// KiB of the kernel). It doubles when it is full, and of a process with several threads whoever
/// opens something then waits for all processors, 8 to 20 ms. Once made it stays, but in a forked
/// process.
void make_room_for_descriptors();

/// The content of a small file of /proc or /sys without the final newline; empty if it cannot be
/// read.
std::string read_small_file(const std::string& path);

/// The same until the machine restarts, never the same after.
const std::string& boot_id();

}  // namespace braid::base
