#include "cli/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <memory>

namespace braid::cli {

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

}  // namespace braid::cli
