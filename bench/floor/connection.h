// A connection of two processes by a socket, as the floors use them.
//
// In a child only (Process::call), but for the Listener, which is made before the fork: what fails
// is thrown.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "base/result.h"
#include "bench/floor/sockets.h"
#include "bench/spin.h"

namespace braid::bench {

[[noreturn]] inline void socket_failed(const char* call) {
  throw std::runtime_error(base::sys_error(errno, call).message());
}

class OwnedSocket {
 public:
  explicit OwnedSocket(int fd, const char* call) : fd_(fd) {
    if (fd < 0) socket_failed(call);
  }
  OwnedSocket(OwnedSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedSocket& operator=(OwnedSocket&&) = delete;
  ~OwnedSocket() {
    if (fd_ >= 0) close(fd_);
  }

  int fd() const { return fd_; }
  void send(uint64_t number) const {
    if (::send(fd_, &number, sizeof number, MSG_NOSIGNAL) != sizeof number) socket_failed("send");
  }
  /// False: the peer has closed it.
  bool receive(uint64_t& number, Waiting waiting) const {
    const size_t got = waiting == Waiting::kSpins ? receive_some(&number, sizeof number)
                                                  : receive_asleep(&number, sizeof number);
    return got == sizeof number;
  }
  /// At least a byte, without a sleep. 0: the peer has closed it.
  size_t receive_some(void* to, size_t bytes) const {
    for (Spinner spinner;; spinner.turn()) {
      const ssize_t got = ::recv(fd_, to, bytes, MSG_DONTWAIT);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EAGAIN && errno != EINTR) socket_failed("recv");
    }
  }

 private:
  size_t receive_asleep(void* to, size_t bytes) const {
    const ssize_t got = ::recv(fd_, to, bytes, MSG_WAITALL);
    if (got < 0) socket_failed("recv");
    return static_cast<size_t>(got);
  }
  int fd_;
};

/// Listens where the kernel chooses, and connects there; also from a process that was forked.
class Listener {
 public:
  explicit Listener(SocketKind kind)
      : family_(kind == SocketKind::kUnix ? AF_UNIX : AF_INET),
        socket_(::socket(family_, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket") {
    sockaddr_in ip{};
    ip.sin_family = AF_INET;
    ip.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // Of a unix socket only the family: the kernel gives it a name.
    const socklen_t length = family_ == AF_UNIX ? sizeof(sa_family_t) : sizeof ip;
    ip.sin_family = static_cast<sa_family_t>(family_);
    if (bind(socket_.fd(), reinterpret_cast<sockaddr*>(&ip), length) != 0) socket_failed("bind");
    if (listen(socket_.fd(), 16) != 0) socket_failed("listen");
    address_length_ = sizeof address_;
    if (getsockname(socket_.fd(), address(), &address_length_) != 0) socket_failed("getsockname");
  }

  OwnedSocket accept() const {
    return without_delay(
        OwnedSocket(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC), "accept"));
  }
  OwnedSocket connect() {
    OwnedSocket socket(::socket(family_, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    if (::connect(socket.fd(), address(), address_length_) != 0) socket_failed("connect");
    return without_delay(std::move(socket));
  }

 private:
  sockaddr* address() { return reinterpret_cast<sockaddr*>(&address_); }
  OwnedSocket without_delay(OwnedSocket socket) const {
    const int one = 1;
    if (family_ == AF_INET &&
        setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
      socket_failed("setsockopt");
    return socket;
  }

  int family_;
  OwnedSocket socket_;
  sockaddr_storage address_{};
  socklen_t address_length_ = 0;
};

}  // namespace braid::bench
