#include "cli/metrics/http_router.h"

#include <fmt/format.h>
#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace braid::cli {

using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kRestBytesMax = 256 << 10;  // that a caller says behind the head
constexpr const char* kHttpWords = "text/plain; charset=utf-8";

/// One caller's connection, which ends at its deadline, or when the server does. What can be read
/// from it is the first line of the request that read_head() has found, and no headers.
class CallersStream final : public httplib::Stream {
 public:
  enum class Head : uint8_t {
    kWhole,
    kTooLong,
    kNone,  // the caller has gone or is too slow, or the server ends
  };

  CallersStream(int fd, int ends_fd, Clock::time_point deadline)
      : fd_(fd), ends_fd_(ends_fd), deadline_(deadline) {}

  Head read_head() {
    std::array<char, kHttpHeadBytesMax> head;
    size_t filled = 0;
    while (filled < head.size()) {
      if (!is_readable()) return Head::kNone;
      const ssize_t n = ::recv(fd_, head.data() + filled, head.size() - filled, MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (n <= 0) return Head::kNone;
      // The end may have begun in what came before; what is older has been looked at.
      const size_t from = filled - std::min<size_t>(filled, 2);
      filled += static_cast<size_t>(n);
      const std::string_view all(head.data(), filled);
      if (all.find("\n\r\n", from) == all.npos && all.find("\n\n", from) == all.npos) continue;
      line_.assign(all.substr(0, all.find('\n') + 1)).append("\r\n");
      return Head::kWhole;
    }
    return Head::kTooLong;
  }

  bool is_readable() const override { return wait_for(POLLIN); }
  bool is_writable() const override { return wait_for(POLLOUT); }
  ssize_t read(char* to, size_t size) override {
    const size_t n = std::min(size, line_.size() - at_);
    std::copy_n(line_.data() + at_, n, to);
    at_ += n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* from, size_t size) override {
    if (!is_writable()) return -1;
    return ::send(fd_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}  // nobody asks
  void get_local_ip_and_port(std::string&, int&) const override {}
  // The library would refuse a descriptor that it takes for too high.
  socket_t socket() const override { return INVALID_SOCKET; }

  /// Says that no more comes, and takes what the caller still says: a connection that is closed
  /// with something unread is reset, and with it goes what of the answer is on its way.
  void finish() {
    ::shutdown(fd_, SHUT_WR);
    std::array<char, 4096> rest;
    for (size_t taken = 0; taken < kRestBytesMax && is_readable();) {
      const ssize_t n = ::recv(fd_, rest.data(), rest.size(), MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
      taken += n > 0 ? static_cast<size_t>(n) : 0;
    }
  }

 private:
  bool wait_for(short events) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
      if (left.count() <= 0) return false;
      pollfd look[2] = {{fd_, events, 0}, {ends_fd_, POLLIN, 0}};
      const int ready = ::poll(look, 2, static_cast<int>(left.count()));
      if (ready < 0 && errno == EINTR) continue;
      return ready > 0 && look[1].revents == 0;
    }
  }
  const int fd_, ends_fd_;
  const Clock::time_point deadline_;
  std::string line_;  // of the request, and an empty one, as if it had no headers
  size_t at_ = 0;     // so much of it has been read
};

void refuse_head(CallersStream& stream) {
  const std::string words =
      fmt::format("a request line and headers of more than {} bytes: want fewer or shorter ones\n",
                  kHttpHeadBytesMax);
  const std::string answer = fmt::format(
      "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n"
      "Content-Type: {}\r\nContent-Length: {}\r\n\r\n{}",
      kHttpWords, words.size(), words);
  // A caller who takes no more than a part of so little goes without the rest.
  [[maybe_unused]] const ssize_t n = stream.write(answer.data(), answer.size());
}

}  // namespace

/// The library's parser and writer, for connections that are not the library's.
class HttpRouter::Library final : public httplib::Server {
 public:
  explicit Library(HttpServer::Get get) {
    // Ahead of the library's own handlers, which would read a body, and which match paths by
    // std::regex, whose stack grows with each byte of them.
    set_pre_routing_handler(
        [get = std::move(get)](const httplib::Request& request, httplib::Response& response) {
          answer(get, request, response);
          return HandlerResponse::Handled;
        });
  }
  void serve(httplib::Stream& stream) {
    bool closed = false;
    process_request(stream, /*close_connection=*/true, closed, nullptr);
  }

 private:
  static void answer(const HttpServer::Get& get, const httplib::Request& request,
                     httplib::Response& response) {
    if (request.method != "GET" && request.method != "HEAD") {
      response.status = 405;
      response.set_header("Allow", "GET, HEAD");
      response.set_content(request.method + ": want GET or HEAD\n", kHttpWords);
      return;
    }
    const HttpAnswer got = get(request.path);
    response.status = got.status;
    response.set_header("Accept-Ranges", "none");
    response.set_content(got.body, got.content_type);
  }
};

HttpRouter::HttpRouter(HttpServer::Get get) : library_(std::make_unique<Library>(std::move(get))) {}
HttpRouter::~HttpRouter() = default;

void HttpRouter::serve(int fd, int ends_fd, Clock::time_point deadline) const {
  CallersStream stream(fd, ends_fd, deadline);
  switch (stream.read_head()) {
    case CallersStream::Head::kWhole:
      library_->serve(stream);
      break;
    case CallersStream::Head::kTooLong:
      refuse_head(stream);
      break;
    case CallersStream::Head::kNone:
      return;
  }
  stream.finish();
}

}  // namespace braid::cli
