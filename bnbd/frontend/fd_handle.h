// Descriptors of the front ends: owned ones, and views for IoQueue::watch_readable.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "base/host.h"

namespace braid::bnbd {

/// A file descriptor, closed on destruction.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (const int old = std::exchange(fd_, fd); old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

/// A Handle that owns its descriptor.
class FdHandle : public base::Handle {
 public:
  explicit FdHandle(UniqueFd fd) : fd_(std::move(fd)) {}
  int fd() const override { return fd_.get(); }
  base::Result<std::unique_ptr<base::Handle>> duplicate() const override {
    UniqueFd copy(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 3));
    if (!copy.valid()) return base::sys_error(errno, "duplicate a descriptor");
    return std::unique_ptr<base::Handle>(std::make_unique<FdHandle>(std::move(copy)));
  }

 private:
  UniqueFd fd_;
};

}  // namespace braid::bnbd
