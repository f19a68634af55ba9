// Host names to IP addresses.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace braid::reach {

/// From a host name to its IP addresses, the one to try first in front; never an empty list.
using LookUp = std::function<base::Result<std::vector<std::string>>(const std::string& host)>;

/// Asks the system (hosts file, name servers). May block for as long as a name server does not
/// answer. kNotFound: no such host, or none with an address. Any thread.
base::Result<std::vector<std::string>> look_up_host(const std::string& host);

/// The address of this machine from which the kernel's routes lead to an IP address. Errors: no
/// route, no IP address. Sends nothing. Any thread.
base::Result<std::string> source_to(const std::string& ip);

/// "10.0.0.1", "::1": nothing to look up.
bool is_ip(const std::string& host);

}  // namespace braid::reach
