// TCP sockets of LinuxHost, IPv4 and IPv6.
#pragma once

#include <memory>
#include <string>

#include "base/stream_socket.h"

namespace braid::base {

Result<std::unique_ptr<StreamListener>> listen_linux_stream(const SocketAddress& address,
                                                            int backlog);
Result<std::unique_ptr<StreamSocket>> connect_linux_stream(const std::string& local_ip,
                                                           const SocketAddress& peer);

}  // namespace braid::base
