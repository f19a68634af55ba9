#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
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
using base::Status;
using base::sys_error;
using nlohmann::json;

namespace {

using Clock = std::chrono::steady_clock;

/// One call's connection, and its deadline.
class Caller {
 public:
  Caller(const std::string& name, const CallOptions& options)
      : name_(name),
        options_(options),
        deadline_(Clock::now() + std::chrono::milliseconds(options.timeout_ms)) {}

  Status connect();
  Status check_peer() const;
  /// False if the node hung up; kTimedOut.
  Result<bool> send_line(std::string line);
  Result<std::string> receive_line();

 private:
  int left_ms() const {
    if (options_.timeout_ms < 0) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    return static_cast<int>(std::max<int64_t>(left.count(), 0));
  }
  Status wait_for(short events) const;
  Error silent() const {
    return make_error(Errc::kTimedOut,
                      "the node \"{}\" did not answer within {:.3g} s; is it stopped (Ctrl-Z) or "
                      "hung?",
                      name_, options_.timeout_ms / 1000.0);
  }

  const std::string& name_;
  const CallOptions& options_;
  const Clock::time_point deadline_;
  const Fd fd_{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
};

Status Caller::wait_for(short events) const {
  pollfd wait{fd_.get(), events, 0};
  const int ready = ::poll(&wait, 1, left_ms());
  if (ready < 0 && errno != EINTR) return sys_error(errno, "poll");
  if (ready == 0) return silent();
  return {};
}

Status Caller::connect() {
  BRAID_TRY(const ControlAddress to, control_address(name_));
  if (fd_.get() < 0) return sys_error(errno, "socket");
  while (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to.address), to.length_bytes) !=
         0) {
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED)
      return make_error(Errc::kNotFound, "no Braid node named \"{}\" is running", name_);
    // The node's queue of callers is full, and nothing tells when that changes.
    if (errno != EAGAIN) return sys_error(errno, "connect to the control socket");
    if (left_ms() == 0) return silent();
    ::poll(nullptr, 0, 50);
  }
  return check_peer();
}

Status Caller::check_peer() const {
  ucred node{};
  socklen_t length = sizeof node;
  if (getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &node, &length) != 0)
    return sys_error(errno, "asking who runs the node");
  if (node.uid == 0 || node.uid == geteuid() || options_.any_user) return {};
  return make_error(Errc::kPermission,
                    "the node \"{}\" (process {}) is run by user {}, neither root nor you: its "
                    "answers are not trusted{}",
                    name_, node.pid, node.uid,
                    geteuid() == 0 ? "; name it with --control to ask it" : "");
}

Result<bool> Caller::send_line(std::string line) {
  line += '\n';
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::send(fd_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      BRAID_CHECK(wait_for(POLLOUT));
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

/// Up to a newline, which is cut off.
Result<std::string> Caller::receive_line() {
  std::string line;
  while (line.size() <= kRpcAnswerMax) {
    char buffer[16384];
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n > 0) {
      const std::string_view got(buffer, static_cast<size_t>(n));
      const size_t end = got.find('\n');
      line += got.substr(0, end);
      if (end != std::string_view::npos) return line;
    } else if (n < 0 && errno == EAGAIN) {
      BRAID_CHECK(wait_for(POLLIN));
    } else if (n == 0 || errno != EINTR) {
      return make_error(Errc::kDisconnected, "the node \"{}\" went away before it answered", name_);
    }
  }
  return make_error(Errc::kProtocol, "the node \"{}\" answered with more than {} bytes", name_,
                    kRpcAnswerMax);
}

}  // namespace

Result<ControlAddress> control_address(const std::string& name) {
  const std::string path = std::string(kControlPrefix) + name;
  ControlAddress found;
  found.address.sun_family = AF_UNIX;
  if (name.empty() || path.size() + 1 > sizeof found.address.sun_path)
    return make_error(Errc::kInvalid, "node name \"{}\": want 1 to {} bytes", name,
                      sizeof found.address.sun_path - 1 - kControlPrefix.size());
  // A leading NUL: abstract.
  std::memcpy(found.address.sun_path + 1, path.data(), path.size());
  found.length_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  return found;
}

Status check_node_name(const std::string& name) {
  BRAID_TRY([[maybe_unused]] const ControlAddress found, control_address(name));
  return {};
}

Result<json> call_node(const std::string& name, std::string_view method, const json& params,
                       const CallOptions& options) {
  constexpr int64_t kId = 1;
  BRAID_TRY(const std::string call, encode_call(kId, method, params));
  Caller caller(name, options);
  BRAID_CHECK(caller.connect());
  // A node that refuses us may hang up before it has read the call: its words count more than the
  // failed send.
  BRAID_TRY([[maybe_unused]] const bool sent, caller.send_line(call));
  BRAID_TRY(const std::string line, caller.receive_line());
  auto answer = parse_answer(line, kId);
  if (!answer.ok() || method != "status") return answer;
  if (const Status shape = check_status(*answer); !shape.ok())
    return shape.error().with(
        "the node \"{}\" answered what this program (version {}) does not understand", name,
        BRAID_VERSION);
  return answer;
}

std::vector<std::string> nodes_among(std::istream& sockets) {
  std::set<std::string> names;
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.find("@" + std::string(kControlPrefix));
    if (at == std::string::npos) continue;
    // Flags 00010000 (__SO_ACCEPTCON) mark the listener; its connections carry the same name.
    std::istringstream fields(line);
    std::string address, references, protocol, flags;
    fields >> address >> references >> protocol >> flags;
    const std::string name = line.substr(at + 1 + kControlPrefix.size());
    if (flags == "00010000" && control_address(name).ok()) names.insert(name);
  }
  return {names.begin(), names.end()};
}

Result<std::vector<std::string>> running_nodes() {
  std::ifstream sockets("/proc/net/unix");
  if (!sockets) return Error(Errc::kIo, "cannot read /proc/net/unix");
  return nodes_among(sockets);
}

}  // namespace braid::cli
