#include "base/linux/link_news.h"

#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/linux/fd.h"

namespace braid::base {
namespace {

constexpr int kMessagesAtATime = 256;  // behind them the socket stays readable

/// What the messages say is not looked at: each is a reason to ask again.
class RouteSocket final : public LinkNews {
 public:
  explicit RouteSocket(Fd socket) : socket_(std::move(socket)) {}
  const Handle& handle() const override { return socket_; }
  bool take() override {
    std::array<char, 256> head;  // the rest of a message is dropped with it
    for (int taken = 0; taken < kMessagesAtATime; ++taken) {
      const ssize_t received = retry_interrupted(
          [&] { return ::recv(socket_.fd(), head.data(), head.size(), MSG_DONTWAIT); });
      // ENOBUFS: more came than there was room for, which is news too.
      if (received < 0 && errno != ENOBUFS) return taken > 0;
    }
    return true;
  }

 private:
  const Fd socket_;
};

}  // namespace

Result<std::unique_ptr<LinkNews>> watch_linux_links() {
  Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  if (!socket.valid()) return sys_error(errno, "a socket for news of network interfaces");
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return sys_error(errno, "asking for news of network interfaces");
  }
  return std::unique_ptr<LinkNews>(std::make_unique<RouteSocket>(std::move(socket)));
}

}  // namespace braid::base
