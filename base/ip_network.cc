#include "base/ip_network.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace braid::base {

std::string network_of(const std::string& ip) {
  in6_addr v6{};
  if (inet_pton(AF_INET6, ip.c_str(), &v6) != 1) return ip;
  std::fill(std::begin(v6.s6_addr) + 8, std::end(v6.s6_addr), uint8_t{0});
  std::array<char, INET6_ADDRSTRLEN> text{};
  return std::string(inet_ntop(AF_INET6, &v6, text.data(), text.size())) + "/64";
}

}  // namespace braid::base
