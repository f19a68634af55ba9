#include "base/linux/local_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/linux/fd.h"

namespace braid::base {
namespace {

/// Asks the kernel, which knows all of 127.0.0.0/8 and addresses without an interface, too.
bool can_bind(int family, const sockaddr* address, socklen_t length) {
  const Fd socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return socket.valid() && ::bind(socket.fd(), address, length) == 0;
}

}  // namespace

bool is_linux_local_address(const std::string& ip) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  if (::inet_pton(AF_INET, ip.c_str(), &v4.sin_addr) == 1) {
    return can_bind(AF_INET, reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  if (::inet_pton(AF_INET6, ip.c_str(), &v6.sin6_addr) == 1) {
    return can_bind(AF_INET6, reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
  }
  return false;
}

}  // namespace braid::base
