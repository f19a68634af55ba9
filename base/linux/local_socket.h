// Local sockets: unix SOCK_SEQPACKET with abstract names.
#pragma once

#include <memory>
#include <string_view>

#include "base/host.h"

namespace braid::base {

Result<std::unique_ptr<LocalListener>> listen_linux_local(std::string_view abstract_name);
Result<std::unique_ptr<LocalSocket>> connect_linux_local(std::string_view abstract_name);

}  // namespace braid::base
