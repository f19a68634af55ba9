// Whose an IP address is, for bounds that no one may escape by having many addresses.
//
// Pure function, any thread.
#pragma once

#include <string>

namespace braid::base {

/// An IPv4 address itself; of IPv6 its network of 64 bits, "2001:db8:1:2::/64", of which any host
/// may have all addresses. What is no address: as it is.
std::string network_of(const std::string& ip);

}  // namespace braid::base
