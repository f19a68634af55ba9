// A caller of the control socket for fuzz targets, by raw bytes: what it has said, and that each
// call is answered once, in order.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "cli/control_socket.h"
#include "tests/fuzz/control_node.h"
#include "tests/fuzz/two_party.h"

namespace braid::fuzz {

class ControlCaller {
 public:
  /// `serial`: what the params of its calls of "hold" say.
  ControlCaller(const std::string& node, uint64_t serial)
      : serial_(serial), fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    auto to = cli::control_address(node);
    require(to.ok(), "the node has an address");
    const auto* const address = reinterpret_cast<const sockaddr*>(&to->address);
    while (::connect(fd_.get(), address, to->length_bytes) != 0) {
      // The queue of callers is full: the node's thread empties it.
      require(errno == EAGAIN || errno == EINTR, "the node can be called");
    }
  }

  uint64_t serial() const { return serial_; }
  /// What it waits for is the answer to a call that the node keeps, or will.
  bool waits_for_kept() const {
    return unsent_.empty() && !asked_.empty() && asked_.front().has_value() &&
           asked_.front()->at("method") == "hold";
  }
  /// Nothing can be said any more.
  bool ending() const { return stops_ || cut_off_; }
  /// Every answer has come; of one that ends, also the end.
  bool settled() const { return over_ || (!ending() && unsent_.empty() && asked_.empty()); }
  bool over() const { return over_; }
  /// The node has read a line's beginning, or will.
  bool in_line() const { return in_line_; }

  /// To be sent later; true if it is a call. A line that is too long ends the connection.
  bool say(const std::string& line) {
    cut_off_ = line.size() > cli::kRpcLineMax;
    auto call = call_in(line);
    const bool is_call = call.has_value();
    asked_.push_back(std::move(call));
    unsent_ += line + '\n';
    return is_call;
  }
  /// Says no more; `rest` is behind the last newline.
  void stop(const std::string& rest) {
    unsent_ += rest;
    stops_ = true;
  }
  /// The node may have closed it: others came.
  void may_be_closed() { may_be_closed_ = true; }

  /// At most so many bytes; what the socket does not take stays.
  void send(size_t most) {
    while (!unsent_.empty() && most > 0) {
      const size_t size = std::min(most, unsent_.size());
      const ssize_t n = ::send(fd_.get(), unsent_.data(), size, MSG_NOSIGNAL);
      if (n < 0 && errno == EAGAIN) return;
      if (n < 0) return unsent_.clear();  // it will be read that the node has closed it
      in_line_ = unsent_[static_cast<size_t>(n) - 1] != '\n';
      unsent_.erase(0, static_cast<size_t>(n));
      most -= static_cast<size_t>(n);
    }
    if (unsent_.empty() && stops_) ::shutdown(fd_.get(), SHUT_WR);
  }
  /// What is there, up to so many bytes.
  void receive(size_t most) {
    std::string some(std::min<size_t>(most, 65536), '\0');
    while (!over_ && most > 0) {
      const ssize_t n = ::recv(fd_.get(), some.data(), std::min(most, some.size()), 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (n <= 0) return end();
      most -= static_cast<size_t>(n);
      read_.append(some, 0, static_cast<size_t>(n));
      judge();
    }
  }
  pollfd wait_for() const {
    if (over_) return {-1, 0, 0};
    return {fd_.get(), static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
  }

 private:
  void judge() {
    for (size_t end = 0; (end = read_.find('\n')) != std::string::npos; read_.erase(0, end + 1)) {
      require(!asked_.empty(), "there is an answer for each call, not more");
      judge_answer(asked_.front(), read_.substr(0, end));
      asked_.pop_front();
    }
  }
  void end() {
    over_ = true;
    if (may_be_closed_) return;
    require(ending(), "the node hangs up on nobody");
    require(asked_.empty() && read_.empty(), "each call is answered before the end");
  }

  const uint64_t serial_;
  const cli::Fd fd_;
  std::string unsent_, read_;
  std::deque<std::optional<nlohmann::json>> asked_;  // what the node owes an answer
  bool stops_ = false, cut_off_ = false, may_be_closed_ = false, over_ = false, in_line_ = false;
};

}  // namespace braid::fuzz
