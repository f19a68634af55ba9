// Which IP addresses are this machine's.
#pragma once

#include <string>

namespace braid::base {

/// True for an IPv4 or IPv6 address, as text, that a socket can be bound to here.
bool is_linux_local_address(const std::string& ip);

}  // namespace braid::base
