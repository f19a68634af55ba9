// Names under which listeners of this host are found: abstract sockets, one per address and port.
#pragma once

#include <string>
#include <vector>

#include "base/host.h"
#include "vhca/device.h"

namespace braid::vhca::soft::inhost {

/// The one spelling of an IPv4 or IPv6 address; kInvalid for anything else.
base::Result<std::string> canonical_ip(const std::string& ip);

/// "braid.cm.<ip>.<port>"; `ip` is canonical.
std::string listener_name(const std::string& ip, uint16_t port);

/// Where a listener for this address may be, the most exact first; kInvalid, or kNotSupported for
/// an address of another host.
base::Result<std::vector<std::string>> listener_names(base::Host& host, const Address& address);

/// Claims the address; port 0 chooses one. kExists: somebody listens there. kInvalid: not an
/// address of this host.
struct BoundListener {
  Address address;
  std::unique_ptr<base::LocalListener> socket;
};
base::Result<BoundListener> bind_listener(base::Host& host, const Address& address);

}  // namespace braid::vhca::soft::inhost
