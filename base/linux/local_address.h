// Which IP addresses are this machine's, and whether their interfaces have a link.
#pragma once

#include <optional>
#include <string>

namespace braid::base {

/// True for an IPv4 or IPv6 address, as text, that a socket can be bound to here.
bool is_linux_local_address(const std::string& ip);

/// As Host::has_link(). An address of no interface has a link if a socket can be bound to it
/// (127.0.0.2); else it is gone, and its link with it.
std::optional<bool> has_linux_link(const std::string& ip);

}  // namespace braid::base
