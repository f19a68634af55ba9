// What both ends of a control socket need (private to cli/control*.cc).
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace braid::cli {

inline constexpr std::string_view kControlPrefix = "braid.control.";

/// Owns a descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&&) = delete;
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct ControlAddress {
  sockaddr_un address{};
  socklen_t length_bytes = 0;
};
/// kInvalid: a name that is empty or too long for an address.
base::Result<ControlAddress> control_address(const std::string& name);

}  // namespace braid::cli
