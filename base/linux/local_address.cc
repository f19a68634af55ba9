#include "base/linux/local_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/linux/fd.h"

namespace braid::base {
namespace {

const in_addr& ip_v4(const sockaddr& address) {
  return reinterpret_cast<const sockaddr_in&>(address).sin_addr;
}
const in6_addr& ip_v6(const sockaddr& address) {
  return reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
}

/// Of either family, without a port.
class IpAddress {
 public:
  /// No value: it is none.
  static std::optional<IpAddress> parse(const std::string& text) {
    IpAddress ip;
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&ip.storage_);
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&ip.storage_);
    if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
      ip.storage_.ss_family = AF_INET;
    } else if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
      ip.storage_.ss_family = AF_INET6;
    } else {
      return {};
    }
    return ip;
  }

  bool operator==(const sockaddr& other) const {
    if (raw().sa_family != other.sa_family) return false;
    if (!is_v6()) return std::memcmp(&ip_v4(raw()), &ip_v4(other), sizeof(in_addr)) == 0;
    return std::memcmp(&ip_v6(raw()), &ip_v6(other), sizeof(in6_addr)) == 0;
  }

  /// Asks the kernel, which knows all of 127.0.0.0/8 and addresses without an interface, too. 0, or
  /// errno.
  int try_to_bind() const {
    const Fd socket(::socket(raw().sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const socklen_t length = is_v6() ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    return socket.valid() && ::bind(socket.fd(), &raw(), length) == 0 ? 0 : errno;
  }

 private:
  const sockaddr& raw() const { return reinterpret_cast<const sockaddr&>(storage_); }
  bool is_v6() const { return storage_.ss_family == AF_INET6; }

  sockaddr_storage storage_{};
};

}  // namespace

bool is_linux_local_address(const std::string& ip) {
  const std::optional<IpAddress> address = IpAddress::parse(ip);
  return address.has_value() && address->try_to_bind() == 0;
}

std::optional<bool> has_linux_link(const std::string& ip) {
  const std::optional<IpAddress> address = IpAddress::parse(ip);
  if (!address.has_value()) return false;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  constexpr unsigned kLink = IFF_UP | IFF_RUNNING;
  bool found = false;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || !(*address == *each->ifa_addr)) continue;
    if ((each->ifa_flags & kLink) == kLink) return true;
    found = true;
  }
  if (found) return false;
  const int failed = address->try_to_bind();
  if (failed == 0 || failed == EADDRNOTAVAIL) return failed == 0;
  return {};
}

}  // namespace braid::base
