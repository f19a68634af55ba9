#include "reach/resolve.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace braid::reach {

using base::Errc;
using base::make_error;
using base::Result;

bool is_ip(const std::string& host) {
  in6_addr ignored{};
  return inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

Result<std::vector<std::string>> look_up_host(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (const int status = getaddrinfo(host.c_str(), nullptr, &hints, &first); status != 0)
    return make_error(Errc::kNotFound, "host \"{}\": {}", host, gai_strerror(status));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(first, &freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* at = first; at != nullptr; at = at->ai_next) {
    const bool ipv4 = at->ai_family == AF_INET;
    if (!ipv4 && at->ai_family != AF_INET6) continue;
    const void* const bytes =
        ipv4 ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(at->ai_addr)->sin_addr)
             : &reinterpret_cast<sockaddr_in6*>(at->ai_addr)->sin6_addr;
    char text[INET6_ADDRSTRLEN] = {};
    if (inet_ntop(at->ai_family, bytes, text, sizeof text) == nullptr) continue;
    if (std::find(addresses.begin(), addresses.end(), text) == addresses.end())
      addresses.emplace_back(text);
  }
  if (addresses.empty()) return make_error(Errc::kNotFound, "host \"{}\" has no IP address", host);
  return addresses;
}

namespace {

Result<sockaddr_storage> socket_address(const std::string& ip) {
  sockaddr_storage address{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  constexpr uint16_t kAnyPort = 9;  // connecting a datagram socket needs one, and sends nothing
  if (inet_pton(AF_INET, ip.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(kAnyPort);
  } else if (inet_pton(AF_INET6, ip.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(kAnyPort);
  } else {
    return make_error(Errc::kInvalid, "\"{}\": want an IP address", ip);
  }
  return address;
}

std::string ip_text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  if (address.ss_family == AF_INET6)
    bytes = &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  inet_ntop(address.ss_family, bytes, text, sizeof text);
  return text;
}

}  // namespace

Result<std::string> source_to(const std::string& ip) {
  BRAID_TRY(sockaddr_storage address, socket_address(ip));
  const int fd = ::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return base::sys_error(errno, fmt::format("looking for the route to {}", ip));
  socklen_t length = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  const socklen_t given = address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const bool found = ::connect(fd, raw, given) == 0 && ::getsockname(fd, raw, &length) == 0;
  const int err = errno;
  ::close(fd);
  if (!found) return base::sys_error(err, fmt::format("looking for the route to {}", ip));
  return ip_text(address);
}

}  // namespace braid::reach
