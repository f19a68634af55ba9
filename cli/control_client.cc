#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/control.h"
#include "cli/control_socket.h"

namespace braid::cli {

using base::Errc;
using base::Error;
using base::make_error;
using base::Result;
using base::sys_error;
using nlohmann::json;

namespace {

/// False if the node hung up.
bool send_line(int fd, std::string line) {
  line += '\n';
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::send(fd, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

/// Up to a newline, which is cut off. False at the end of the stream, on errors, and on lines over
/// the bound.
bool receive_line(int fd, std::string& line) {
  for (;;) {
    if (const size_t end = line.find('\n'); end != std::string::npos) {
      line.resize(end);
      return true;
    }
    if (line.size() > kRpcLineMax) return false;
    char buffer[16384];
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    line.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

Result<ControlAddress> control_address(const std::string& name) {
  const std::string path = std::string(kControlPrefix) + name;
  ControlAddress found;
  found.address.sun_family = AF_UNIX;
  if (name.empty() || path.size() + 1 > sizeof found.address.sun_path)
    return make_error(Errc::kInvalid, "node name \"{}\": want 1 to {} characters", name,
                      sizeof found.address.sun_path - 1 - kControlPrefix.size());
  // A leading NUL: abstract.
  std::memcpy(found.address.sun_path + 1, path.data(), path.size());
  found.length_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  return found;
}

Result<json> call_node(const std::string& name, std::string_view method, const json& params) {
  constexpr int64_t id = 1;
  BRAID_TRY(const std::string call, encode_call(id, method, params));
  BRAID_TRY(const ControlAddress to, control_address(name));
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return sys_error(errno, "socket");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.address), to.length_bytes) != 0) {
    if (errno == ECONNREFUSED)
      return make_error(Errc::kNotFound, "no Braid node named \"{}\" is running", name);
    return sys_error(errno, "connect to the control socket");
  }
  // A node that refuses us may hang up before it has read the call: its words count more than the
  // failed send.
  send_line(fd.get(), call);
  std::string line;
  if (!receive_line(fd.get(), line))
    return make_error(Errc::kDisconnected, "the node \"{}\" went away before it answered {}", name,
                      method);
  return parse_answer(line, id);
}

Result<std::vector<std::string>> running_nodes() {
  std::ifstream sockets("/proc/net/unix");
  if (!sockets) return Error(Errc::kIo, "cannot read /proc/net/unix");
  std::set<std::string> names;
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.find("@" + std::string(kControlPrefix));
    if (at == std::string::npos) continue;
    // Flags 00010000 (__SO_ACCEPTCON) mark the listener; its connections carry the same name.
    std::istringstream fields(line);
    std::string address, references, protocol, flags;
    fields >> address >> references >> protocol >> flags;
    if (flags == "00010000") names.insert(line.substr(at + 1 + kControlPrefix.size()));
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace braid::cli
