#include "cli/control.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

namespace braid::cli {

using base::Errc;
using base::Error;
using base::make_error;
using base::Result;
using base::Status;
using base::sys_error;
using nlohmann::json;

namespace {

constexpr std::string_view kPrefix = "braid.control.";
constexpr size_t kConnectionsMax = 16;

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&&) = delete;
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Result<socklen_t> fill_address(const std::string& name, sockaddr_un& address) {
  const std::string path = std::string(kPrefix) + name;
  address = {};
  address.sun_family = AF_UNIX;
  if (name.empty() || path.size() + 1 > sizeof address.sun_path)
    return make_error(Errc::kInvalid, "node name \"{}\": want 1 to {} characters", name,
                      sizeof address.sun_path - 1 - kPrefix.size());
  std::memcpy(address.sun_path + 1, path.data(), path.size());  // a leading NUL: abstract
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
}

Result<Fd> open_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return sys_error(errno, "socket");
  return fd;
}

bool may_use(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == 0 || peer.uid == geteuid();
}

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

/// Reads up to a newline, which is cut off; what follows stays in `rest`. False at the end of the
/// stream, on errors, and on lines over the bound. `stop_fd` becoming readable ends the wait; -1
/// for none.
bool receive_line(int fd, int stop_fd, std::string& rest, std::string& line) {
  for (;;) {
    if (const size_t end = rest.find('\n'); end != std::string::npos) {
      line = rest.substr(0, end);
      rest.erase(0, end + 1);
      return true;
    }
    if (rest.size() > kRpcLineMax) return false;
    pollfd wait[2] = {{fd, POLLIN, 0}, {stop_fd, POLLIN, 0}};
    if (::poll(wait, 2, -1) < 0 && errno != EINTR) return false;
    if (wait[1].revents != 0) return false;
    if (wait[0].revents == 0) continue;
    char buffer[16384];
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    rest.append(buffer, static_cast<size_t>(n));
  }
}

class Server final : public ControlServer {
 public:
  Server(Fd listener, Fd stop, Handler handler)
      : listener_(std::move(listener)), stop_(std::move(stop)), handler_(std::move(handler)) {
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~Server() override {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n =
        ::write(stop_.get(), &one, sizeof one);  // never consumed: ends every wait
    acceptor_.join();
    for (Connection& connection : connections_) connection.thread.join();
  }

 private:
  struct Connection {
    explicit Connection(Fd socket) : fd(std::move(socket)) {}
    Fd fd;
    std::thread thread;
    std::atomic<bool> ended{false};
  };

  void accept_all() {
    for (;;) {
      pollfd wait[2] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
      if (::poll(wait, 2, -1) < 0 && errno != EINTR) return;
      if (wait[1].revents != 0) return;
      if (wait[0].revents == 0) continue;
      Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (fd.get() < 0) continue;
      forget_ended();
      if (!may_use(fd.get())) {
        send_line(fd.get(),
                  encode_error(0, Error(Errc::kPermission, "this node belongs to another user")));
        continue;
      }
      if (connections_.size() >= kConnectionsMax) {
        send_line(fd.get(),
                  encode_error(0, make_error(Errc::kBusy, "{} control connections are open already",
                                             kConnectionsMax)));
        continue;
      }
      Connection& connection = connections_.emplace_back(std::move(fd));
      connection.thread = std::thread([this, &connection] { serve(connection); });
    }
  }

  void forget_ended() {
    connections_.remove_if([](Connection& connection) {
      if (!connection.ended) return false;
      connection.thread.join();
      return true;
    });
  }

  void serve(Connection& connection) {
    std::string rest;
    std::string line;
    while (receive_line(connection.fd.get(), stop_.get(), rest, line)) {
      auto call = parse_call(line);
      std::string answer;
      if (!call.ok()) {
        answer = encode_error(0, call.error());
      } else if (auto result = handler_(*call); result.ok()) {
        answer = encode_result(call->id, *result);
      } else {
        answer = encode_error(call->id, result.error());
      }
      if (!send_line(connection.fd.get(), std::move(answer))) break;
    }
    ::shutdown(connection.fd.get(), SHUT_RDWR);
    connection.ended = true;
  }

  Fd listener_;
  Fd stop_;
  Handler handler_;
  std::list<Connection> connections_;  // acceptor's thread (and the destructor, after joining it)
  std::thread acceptor_;
};

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::start(const std::string& name,
                                                            Handler handler) {
  sockaddr_un address;
  BRAID_TRY(const socklen_t length, fill_address(name, address));
  BRAID_TRY(Fd listener, open_socket());
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE)
      return make_error(Errc::kExists, "a Braid node named \"{}\" is running already", name);
    return sys_error(errno, "bind of the control socket");
  }
  if (::listen(listener.get(), 16) != 0) return sys_error(errno, "listen on the control socket");
  Fd stop(::eventfd(0, EFD_CLOEXEC));
  if (stop.get() < 0) return sys_error(errno, "eventfd");
  return std::unique_ptr<ControlServer>(
      std::make_unique<Server>(std::move(listener), std::move(stop), std::move(handler)));
}

Result<json> call_node(const std::string& name, std::string_view method, const json& params) {
  sockaddr_un address;
  BRAID_TRY(const socklen_t length, fill_address(name, address));
  BRAID_TRY(Fd fd, open_socket());
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == ECONNREFUSED)
      return make_error(Errc::kNotFound, "no Braid node named \"{}\" is running", name);
    return sys_error(errno, "connect to the control socket");
  }
  constexpr int64_t id = 1;
  std::string rest;
  std::string line;
  // A node that refuses us may hang up before it has read the call: its words count more than the
  // failed send.
  send_line(fd.get(), encode_call(id, method, params));
  if (!receive_line(fd.get(), -1, rest, line))
    return make_error(Errc::kDisconnected, "the node \"{}\" went away before it answered {}", name,
                      method);
  // What is said before a call is read (wrong user, too many connections) has id 0.
  if (auto early = parse_answer(line, 0);
      early.code() == Errc::kPermission || early.code() == Errc::kBusy)
    return early.error();
  return parse_answer(line, id);
}

Result<std::vector<std::string>> running_nodes() {
  std::ifstream sockets("/proc/net/unix");
  if (!sockets) return Error(Errc::kIo, "cannot read /proc/net/unix");
  std::set<std::string> names;
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.find("@" + std::string(kPrefix));
    if (at == std::string::npos) continue;
    // Flags 00010000 (__SO_ACCEPTCON) mark the listener; its connections carry the same name.
    std::istringstream fields(line);
    std::string address, references, protocol, flags;
    fields >> address >> references >> protocol >> flags;
    if (flags == "00010000") names.insert(line.substr(at + 1 + kPrefix.size()));
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace braid::cli
