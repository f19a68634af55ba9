#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <vector>

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

// How long accepting pauses when there is no descriptor or memory for another connection.
constexpr int kPauseMs = 500;

/// Closed by the last of the server and the call that it carries.
struct Connection {
  explicit Connection(int socket) : fd(socket) {}
  const Fd fd;
  // --- the server's thread only
  std::string in;   // read, not yet a whole line
  std::string out;  // to be sent, and how much of it has been
  size_t sent_bytes = 0;
  bool in_call = false;  // nothing more is read until it is answered
};
using ConnectionPtr = std::shared_ptr<Connection>;

/// Where answers wait for the server's thread, which may be gone already.
class Mailbox {
 public:
  explicit Mailbox(Fd wake) : wake_(std::move(wake)) {}
  struct Answer {
    ConnectionPtr connection;
    int64_t id = 0;
    Result<json> result;
  };
  void put(Answer answer) {
    const std::lock_guard lock(mutex_);
    answers_.push_back(std::move(answer));
    ring();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    ring();
  }
  /// False: the server stops.
  bool take(std::vector<Answer>& answers) {
    const std::lock_guard lock(mutex_);
    uint64_t rings = 0;
    [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &rings, sizeof rings);
    answers.swap(answers_);
    return !stopped_;
  }
  int wake_fd() const { return wake_.get(); }

 private:
  void ring() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
  }
  const Fd wake_;
  std::mutex mutex_;
  std::vector<Answer> answers_;
  bool stopped_ = false;
};

class Call final : public ControlCall {
 public:
  Call(RpcCall rpc, ConnectionPtr connection, std::shared_ptr<Mailbox> mailbox)
      : rpc_(std::move(rpc)), connection_(std::move(connection)), mailbox_(std::move(mailbox)) {}
  ~Call() override {
    if (connection_) answer(Error(Errc::kCanceled, "the node ended before it answered"));
  }
  const RpcCall& rpc() const override { return rpc_; }
  bool caller_gone() const override {
    // Not POLLRDHUP: a caller may have closed its sending half and still wait.
    pollfd look{connection_->fd.get(), 0, 0};
    return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLHUP | POLLERR)) != 0;
  }
  void answer(Result<json> result) override {
    mailbox_->put({std::move(connection_), rpc_.id, std::move(result)});
  }

 private:
  const RpcCall rpc_;
  ConnectionPtr connection_;  // null once answered
  const std::shared_ptr<Mailbox> mailbox_;
};

/// On the server's thread: the state of a thousand disks is some MiB, and reactors have I/O to do.
std::string line_of(Mailbox::Answer& answer, size_t bytes_max) {
  if (!answer.result.ok()) return encode_error(answer.id, answer.result.error());
  std::string line = encode_result(answer.id, std::move(*answer.result));
  if (line.size() <= bytes_max) return line;
  return encode_error(answer.id,
                      make_error(Errc::kOutOfRange, "the answer has {} bytes: at most {} are sent",
                                 line.size(), bytes_max));
}

/// What the caller is told before anything is read, if it may not call.
Status may_call(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return sys_error(errno, "asking who calls");
  if (peer.uid == 0 || peer.uid == geteuid()) return {};
  return make_error(Errc::kPermission,
                    "this node belongs to user {}, the caller is user {}: call it as that user or "
                    "as root (sudo)",
                    geteuid(), peer.uid);
}

class Server final : public ControlServer {
 public:
  Server(std::string name, Fd listener, Fd wake, size_t answer_bytes_max)
      : name_(std::move(name)),
        answer_bytes_max_(answer_bytes_max),
        listener_(std::move(listener)),
        mailbox_(std::make_shared<Mailbox>(std::move(wake))) {}
  ~Server() override {
    mailbox_->stop();
    if (thread_.joinable()) thread_.join();
  }

  Status serve(Handler handler) override {
    handler_ = std::move(handler);
    if (::listen(listener_.get(), kControlConnectionsMax) != 0)
      return sys_error(errno, "listen on the control socket");
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& failed) {
      return make_error(Errc::kBusy, "starting the thread of the control socket: {}",
                        failed.what());
    }
    return {};
  }

 private:
  void run() {
    std::vector<Mailbox::Answer> answers;
    std::vector<pollfd> wait;
    while (mailbox_->take(answers)) {
      for (Mailbox::Answer& answer : answers) deliver(answer);
      answers.clear();
      wait.clear();
      wait.push_back({mailbox_->wake_fd(), POLLIN, 0});
      wait.push_back({paused_ ? -1 : listener_.get(), POLLIN, 0});
      for (const ConnectionPtr& connection : connections_)
        wait.push_back({connection->fd.get(), events_of(*connection), 0});
      const int ready = ::poll(wait.data(), wait.size(), paused_ ? kPauseMs : -1);
      paused_ = false;
      if (ready <= 0) continue;
      serve_ready(wait);
      if (wait[1].revents != 0) accept_one();
    }
  }

  static short events_of(const Connection& connection) {
    if (!connection.out.empty()) return POLLOUT;
    return connection.in_call ? 0 : POLLIN;  // a hang-up is always told
  }

  /// wait[2 + i] belongs to the i-th connection.
  void serve_ready(const std::vector<pollfd>& wait) {
    auto at = connections_.begin();
    for (size_t i = 2; i < wait.size(); ++i) {
      const auto here = at++;
      if (wait[i].revents == 0) continue;
      const ConnectionPtr connection = *here;
      // The list is kept by last activity: its front was idle for longest.
      connections_.splice(connections_.end(), connections_, here);
      if (!progress(connection, wait[i].revents)) connections_.remove(connection);
    }
  }

  /// False: the connection is over.
  bool progress(const ConnectionPtr& connection, short events) {
    if (!connection->out.empty()) return send_some(*connection) && read_calls(connection);
    if ((events & (POLLHUP | POLLERR)) != 0 && (events & POLLIN) == 0) return false;
    char buffer[16384];
    const ssize_t n = ::recv(connection->fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return false;
    connection->in.append(buffer, static_cast<size_t>(n));
    return read_calls(connection);
  }

  /// Hands over what was read in whole lines, one call at a time.
  bool read_calls(const ConnectionPtr& connection) {
    while (!connection->in_call && connection->out.empty()) {
      const size_t end = connection->in.find('\n');
      if (end == std::string::npos) {
        if (connection->in.size() <= kRpcLineMax) return true;
        refuse(*connection, make_error(Errc::kProtocol,
                                       "a call of more than {} bytes without "
                                       "its end",
                                       kRpcLineMax));
        return false;
      }
      const std::string line = connection->in.substr(0, end);
      connection->in.erase(0, end + 1);
      auto rpc = parse_call(line);
      if (!rpc.ok()) {
        refuse(*connection, rpc.error());
        continue;
      }
      connection->in_call = true;
      handler_(std::make_shared<Call>(std::move(*rpc), connection, mailbox_));
    }
    return true;
  }

  void deliver(Mailbox::Answer& answer) {
    const auto found = std::find(connections_.begin(), connections_.end(), answer.connection);
    if (found == connections_.end()) return;  // the caller has gone
    Connection& connection = **found;
    connection.in_call = false;
    connection.out = line_of(answer, answer_bytes_max_) + "\n";
    if (!send_some(connection) || !read_calls(*found)) connections_.erase(found);
  }

  /// False: the caller has gone.
  static bool send_some(Connection& connection) {
    while (connection.sent_bytes < connection.out.size()) {
      const ssize_t n =
          ::send(connection.fd.get(), connection.out.data() + connection.sent_bytes,
                 connection.out.size() - connection.sent_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno == EAGAIN;
      connection.sent_bytes += static_cast<size_t>(n);
    }
    connection.out = {};  // with its memory
    connection.sent_bytes = 0;
    return true;
  }

  /// An answer to no call in particular: id 0.
  static void refuse(Connection& connection, const Error& why) {
    connection.out = encode_error(0, why) + "\n";
    send_some(connection);
  }

  void accept_one() {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // Out of descriptors or memory: the caller stays in the queue, and poll would tell of it
      // without end.
      paused_ = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
      return;
    }
    const auto connection = std::make_shared<Connection>(fd);
    if (const Status allowed = may_call(fd); !allowed.ok())
      return refuse(*connection, allowed.error());
    if (connections_.size() >= kControlConnectionsMax && !close_idle())
      return refuse(*connection,
                    make_error(Errc::kBusy, "{} calls are in progress at node \"{}\" already",
                               kControlConnectionsMax, name_));
    connections_.push_back(connection);
  }

  bool close_idle() {
    const auto idle = std::find_if(connections_.begin(), connections_.end(),
                                   [](const ConnectionPtr& one) { return !one->in_call; });
    if (idle == connections_.end()) return false;
    connections_.erase(idle);
    return true;
  }

  const std::string name_;
  const size_t answer_bytes_max_;
  const Fd listener_;
  const std::shared_ptr<Mailbox> mailbox_;
  Handler handler_;
  // --- the thread's own
  std::list<ConnectionPtr> connections_;
  bool paused_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::claim(const std::string& name,
                                                            size_t answer_bytes_max) {
  BRAID_TRY(const ControlAddress at, control_address(name));
  Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.get() < 0) return sys_error(errno, "socket");
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at.address), at.length_bytes) !=
      0) {
    if (errno == EADDRINUSE)
      return make_error(Errc::kExists, "a Braid node named \"{}\" is running already", name);
    return sys_error(errno, "bind of the control socket");
  }
  Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) return sys_error(errno, "eventfd");
  return std::unique_ptr<ControlServer>(
      std::make_unique<Server>(name, std::move(listener), std::move(wake), answer_bytes_max));
}

}  // namespace braid::cli
