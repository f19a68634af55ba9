#include "bench/peers/free_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace braid::bench {

base::Result<uint16_t> free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return base::sys_error(errno, "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool ok = bind(fd, generic, length) == 0 && getsockname(fd, generic, &length) == 0;
  close(fd);
  if (!ok) return base::sys_error(errno, "bind");
  return ntohs(address.sin_port);
}

}  // namespace braid::bench
