#include "base/linux/stream_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/linux/fd.h"

namespace braid::base {
namespace {

/// Of either family.
struct RawAddress {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

Result<RawAddress> raw_address(const SocketAddress& address) {
  RawAddress raw;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&raw.storage);
  if (::inet_pton(AF_INET, address.ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address.port);
    raw.length = sizeof(sockaddr_in);
    return raw;
  }
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&raw.storage);
  if (::inet_pton(AF_INET6, address.ip.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(address.port);
    raw.length = sizeof(sockaddr_in6);
    return raw;
  }
  return make_error(Errc::kInvalid, "'{}' is no IP address", address.ip);
}

SocketAddress text_address(const RawAddress& raw) {
  char text[INET6_ADDRSTRLEN] = {};
  if (raw.family() == AF_INET6) {
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&raw.storage);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    return {.ip = text, .port = ntohs(v6->sin6_port)};
  }
  const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&raw.storage);
  ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  return {.ip = text, .port = ntohs(v4->sin_port)};
}

Result<Fd> create_socket(int family) {
  Fd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket.valid()) return sys_error(errno, "cannot create a TCP socket");
  return socket;
}

void set_option(const Fd& socket, int level, int name, int value) {
  (void)::setsockopt(socket.fd(), level, name, &value, sizeof value);
}

Errc transfer_errc(int sys_errno) {
  switch (sys_errno) {
    case EAGAIN:
      return Errc::kWouldBlock;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
      return Errc::kDisconnected;
    case ECONNREFUSED:
      return Errc::kRefused;
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
      return Errc::kTimedOut;
    default:
      return errc_from_errno(sys_errno);
  }
}

msghdr message_of(std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = std::min<size_t>(pieces.size(), IOV_MAX);
  return message;
}

class LinuxStreamSocket final : public StreamSocket {
 public:
  LinuxStreamSocket(Fd socket, SocketAddress peer)
      : socket_(std::move(socket)), peer_(std::move(peer)) {
    // Who sends has put together what belongs together.
    set_option(socket_, IPPROTO_TCP, TCP_NODELAY, 1);
  }

  Errc connected() override {
    int failed = 0;
    socklen_t length = sizeof failed;
    if (::getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &failed, &length) != 0) failed = errno;
    if (failed != 0) return transfer_errc(failed);
    RawAddress raw;
    if (::getpeername(socket_.fd(), raw.get(), &raw.length) == 0) return Errc::kOk;
    return errno == ENOTCONN ? Errc::kWouldBlock : transfer_errc(errno);
  }

  Errc send(std::span<const iovec> pieces, size_t& sent) override {
    const msghdr message = message_of(pieces);
    const ssize_t count =
        retry_interrupted([&] { return ::sendmsg(socket_.fd(), &message, MSG_NOSIGNAL); });
    if (count < 0) return transfer_errc(errno);
    sent = static_cast<size_t>(count);
    return Errc::kOk;
  }

  Errc receive(std::span<const iovec> pieces, size_t& received) override {
    msghdr message = message_of(pieces);
    const ssize_t count = retry_interrupted([&] { return ::recvmsg(socket_.fd(), &message, 0); });
    if (count < 0) return transfer_errc(errno);
    if (count == 0) return Errc::kDisconnected;
    received = static_cast<size_t>(count);
    return Errc::kOk;
  }

  void shut_down_send() override { (void)::shutdown(socket_.fd(), SHUT_WR); }
  void shut_down() override { (void)::shutdown(socket_.fd(), SHUT_RDWR); }

  void set_user_timeout(uint64_t timeout_ns) override {
    if (timeout_ns == 0) {
      // Longer than anything else would try; 0 would mean the kernel's own bound.
      set_option(socket_, IPPROTO_TCP, TCP_USER_TIMEOUT, INT_MAX);
      return set_option(socket_, SOL_SOCKET, SO_KEEPALIVE, 0);
    }
    const uint64_t wanted_ns = std::max(timeout_ns, kUserTimeoutMinNs);
    const auto ms = static_cast<int>(std::min<uint64_t>(wanted_ns / kMillisecond, INT_MAX));
    set_option(socket_, IPPROTO_TCP, TCP_USER_TIMEOUT, ms);
    // A silent connection is probed, so that a peer whose machine is gone is noticed. The user
    // time-out replaces the count of probes: it ends the connection at the first probe's turn
    // behind it, so three go unanswered at the least (at 1, 2, 3 s of 3.5 s). The kernel's unit is
    // the second.
    const int seconds = std::clamp(ms / 4000, 1, 60);
    set_option(socket_, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
    set_option(socket_, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
    set_option(socket_, SOL_SOCKET, SO_KEEPALIVE, 1);
  }

  SocketAddress local() const override {
    RawAddress raw;
    if (::getsockname(socket_.fd(), raw.get(), &raw.length) != 0) return {};
    return text_address(raw);
  }
  SocketAddress peer() const override { return peer_; }
  const Handle& handle() const override { return socket_; }

 private:
  const Fd socket_;
  const SocketAddress peer_;
};

class LinuxStreamListener final : public StreamListener {
 public:
  LinuxStreamListener(Fd socket, SocketAddress address)
      : socket_(std::move(socket)), address_(std::move(address)) {}

  Result<std::unique_ptr<StreamSocket>> accept() override {
    RawAddress raw;
    Fd socket(retry_interrupted([&] {
      return ::accept4(socket_.fd(), raw.get(), &raw.length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }));
    if (!socket.valid()) return sys_error(errno, "cannot accept a TCP connection");
    return std::unique_ptr<StreamSocket>(
        std::make_unique<LinuxStreamSocket>(std::move(socket), text_address(raw)));
  }
  SocketAddress address() const override { return address_; }
  const Handle& handle() const override { return socket_; }

 private:
  const Fd socket_;
  const SocketAddress address_;
};

}  // namespace

Result<std::unique_ptr<StreamListener>> listen_linux_stream(const SocketAddress& address,
                                                            int backlog) {
  BRAID_TRY(RawAddress raw, raw_address(address));
  BRAID_TRY(Fd socket, create_socket(raw.family()));
  // Connections of a listener before this one do not keep the port.
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (raw.family() == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (::bind(socket.fd(), raw.get(), raw.length) != 0 ||
      ::listen(socket.fd(), std::max(backlog, 1)) != 0) {
    if (errno == EADDRNOTAVAIL) {
      return make_error(Errc::kNotFound, "cannot listen at {}: it is no address of this machine",
                        address.ip);
    }
    return sys_error(errno, fmt::format("cannot listen at {} port {}", address.ip, address.port));
  }
  raw.length = sizeof raw.storage;
  if (::getsockname(socket.fd(), raw.get(), &raw.length) != 0) {
    return sys_error(errno, "cannot tell where a TCP socket listens");
  }
  SocketAddress bound = text_address(raw);
  return std::unique_ptr<StreamListener>(
      std::make_unique<LinuxStreamListener>(std::move(socket), std::move(bound)));
}

Result<std::unique_ptr<StreamSocket>> connect_linux_stream(const std::string& local_ip,
                                                           const SocketAddress& peer) {
  BRAID_TRY(const RawAddress raw, raw_address(peer));
  BRAID_TRY(Fd socket, create_socket(raw.family()));
  if (!local_ip.empty()) {
    BRAID_TRY(const RawAddress from, raw_address({.ip = local_ip, .port = 0}));
    // The port is chosen when the peer is known, so that the whole range serves each peer.
    set_option(socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (::bind(socket.fd(), from.get(), from.length) != 0) {
      return sys_error(errno, fmt::format("cannot connect from {}", local_ip));
    }
  }
  if (::connect(socket.fd(), raw.get(), raw.length) != 0 && errno != EINPROGRESS) {
    const int failed = errno;
    return make_error(transfer_errc(failed), "cannot connect to {} port {}: {}", peer.ip, peer.port,
                      std::strerror(failed));
  }
  return std::unique_ptr<StreamSocket>(
      std::make_unique<LinuxStreamSocket>(std::move(socket), peer));
}

}  // namespace braid::base
