#include "base/linux/local_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/linux/fd.h"

namespace braid::base {
namespace {

constexpr size_t kMessageBytesMax = 64 * 1024;
constexpr size_t kHandlesMax = 16;
constexpr int kBacklog = 128;
// A device tells its peer of each of its segments, up to thousands: the default has room for 278,
// this for all. Who has no privilege gets what net.core.wmem_max allows, and sends the rest later.
constexpr int kSendBytes = 4 << 20;

/// Room for the descriptors of one message, aligned as the kernel wants it.
union ControlBuffer {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int) * kHandlesMax)];
};

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

Result<Address> abstract_address(std::string_view name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  // The leading zero byte makes it abstract.
  if (name.empty() || name.size() > sizeof(address.name.sun_path) - 1) {
    return make_error(Errc::kInvalid, "a local socket name of {} bytes; it must have 1 to {}",
                      name.size(), sizeof(address.name.sun_path) - 1);
  }
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Result<Fd> create_socket() {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return sys_error(errno, "cannot create a local socket");
  return socket;
}

Error transfer_error(int sys_errno, std::string_view what) {
  if (sys_errno == EPIPE || sys_errno == ECONNRESET) {
    return make_error(Errc::kDisconnected, "{}: the peer is gone", what);
  }
  return sys_error(sys_errno, what);
}

/// Takes ownership of all descriptors that came with a message.
void take_handles(msghdr& header, std::vector<std::unique_ptr<Handle>>& handles) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      handles.push_back(std::make_unique<Fd>(fd));
    }
  }
}

class LinuxLocalSocket : public LocalSocket {
 public:
  LinuxLocalSocket(Fd socket, PeerIdentity peer) : socket_(std::move(socket)), peer_(peer) {}

  Status send(std::span<const std::byte> message, std::span<const Handle* const> handles) override {
    // An empty message could not be told from the end of the connection.
    if (message.empty() || message.size() > kMessageBytesMax || handles.size() > kHandlesMax) {
      return make_error(Errc::kInvalid,
                        "a message of {} bytes and {} handles; 1 to {} bytes and up to {} "
                        "handles fit",
                        message.size(), handles.size(), kMessageBytesMax, kHandlesMax);
    }
    iovec data{const_cast<std::byte*>(message.data()), message.size()};
    ControlBuffer control{};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    if (!handles.empty()) put_handles(header, control, handles);
    const ssize_t sent =
        retry_interrupted([&] { return ::sendmsg(socket_.fd(), &header, MSG_NOSIGNAL); });
    if (sent < 0) return transfer_error(errno, "cannot send on a local socket");
    return {};
  }

  Result<size_t> receive(std::span<std::byte> buffer,
                         std::vector<std::unique_ptr<Handle>>& handles) override {
    iovec data{buffer.data(), buffer.size()};
    ControlBuffer control;
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = &control;
    header.msg_controllen = sizeof control;
    const ssize_t got =
        retry_interrupted([&] { return ::recvmsg(socket_.fd(), &header, MSG_CMSG_CLOEXEC); });
    if (got < 0) return transfer_error(errno, "cannot receive on a local socket");
    std::vector<std::unique_ptr<Handle>> came;  // closed again if the message is refused
    take_handles(header, came);
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
      return make_error(Errc::kProtocol,
                        "a local message does not fit: over {} bytes or over {} handles",
                        buffer.size(), kHandlesMax);
    }
    if (got == 0) return make_error(Errc::kDisconnected, "the peer closed the local socket");
    for (auto& handle : came) handles.push_back(std::move(handle));
    return static_cast<size_t>(got);
  }

  PeerIdentity peer() const override { return peer_; }
  const Handle& handle() const override { return socket_; }

 private:
  static void put_handles(msghdr& header, ControlBuffer& control,
                          std::span<const Handle* const> handles) {
    header.msg_control = &control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * handles.size());
    cmsghdr* const part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int) * handles.size());
    for (size_t i = 0; i < handles.size(); ++i) {
      const int fd = handles[i]->fd();
      std::memcpy(CMSG_DATA(part) + i * sizeof fd, &fd, sizeof fd);
    }
  }

  const Fd socket_;
  const PeerIdentity peer_;
};

Result<std::unique_ptr<LocalSocket>> wrap_connected(Fd socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return sys_error(errno, "cannot identify the peer of a local socket");
  }
  // What the system allows to others than root is a smaller one: twice the default.
  if (::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUFFORCE, &kSendBytes, sizeof kSendBytes) != 0) {
    (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &kSendBytes, sizeof kSendBytes);
  }
  const PeerIdentity peer{.pid = credentials.pid, .uid = credentials.uid};
  return std::unique_ptr<LocalSocket>(std::make_unique<LinuxLocalSocket>(std::move(socket), peer));
}

class LinuxLocalListener : public LocalListener {
 public:
  explicit LinuxLocalListener(Fd socket) : socket_(std::move(socket)) {}

  Result<std::unique_ptr<LocalSocket>> accept() override {
    Fd socket(retry_interrupted(
        [&] { return ::accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); }));
    if (!socket.valid()) return sys_error(errno, "cannot accept on a local socket");
    return wrap_connected(std::move(socket));
  }

  const Handle& handle() const override { return socket_; }

 private:
  const Fd socket_;
};

}  // namespace

Result<std::unique_ptr<LocalListener>> listen_linux_local(std::string_view abstract_name) {
  BRAID_TRY(const Address address, abstract_address(abstract_name));
  BRAID_TRY(Fd socket, create_socket());
  if (::bind(socket.fd(), address.get(), address.length) != 0 ||
      ::listen(socket.fd(), kBacklog) != 0) {
    return sys_error(errno, fmt::format("cannot listen at local name \"{}\"", abstract_name));
  }
  return std::unique_ptr<LocalListener>(std::make_unique<LinuxLocalListener>(std::move(socket)));
}

Result<std::unique_ptr<LocalSocket>> connect_linux_local(std::string_view abstract_name) {
  BRAID_TRY(const Address address, abstract_address(abstract_name));
  BRAID_TRY(Fd socket, create_socket());
  // Never blocks: a full backlog is EAGAIN on a non-blocking local socket.
  if (::connect(socket.fd(), address.get(), address.length) != 0) {
    return sys_error(errno, fmt::format("cannot connect to local name \"{}\"", abstract_name));
  }
  return wrap_connected(std::move(socket));
}

}  // namespace braid::base
