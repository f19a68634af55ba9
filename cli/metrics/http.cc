#include "cli/metrics/http.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

#include "cli/control_socket.h"
#include "cli/metrics/http_router.h"
#include "cli/target.h"

namespace braid::cli {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;
using base::sys_error;
using Clock = std::chrono::steady_clock;

namespace {

class ThreadedHttpServer final : public HttpServer {
 public:
  ThreadedHttpServer(const HttpOptions& options, Get get, Fd listener, Fd ends,
                     vhca::Address address)
      : options_(options),
        router_(std::move(get)),
        listener_(std::move(listener)),
        ends_(std::move(ends)),
        address_(std::move(address)) {}
  ~ThreadedHttpServer() override {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(ends_.get(), &one, sizeof one);
    for (std::thread& thread : threads_) thread.join();
  }
  vhca::Address address() const override { return address_; }

  Status run() {
    try {
      while (threads_.size() < options_.threads) threads_.emplace_back([this] { accept_all(); });
    } catch (const std::system_error& failed) {
      return make_error(Errc::kBusy, "starting a thread for {}: {}", address_text(address_),
                        failed.what());
    }
    return {};
  }

 private:
  void accept_all() {
    bool pause = false;
    for (;;) {
      // Paused: there was no descriptor for another connection, and poll would tell of it for ever.
      pollfd look[2] = {{pause ? -1 : listener_.get(), POLLIN, 0}, {ends_.get(), POLLIN, 0}};
      if (::poll(look, 2, pause ? kPauseMs : -1) < 0 && errno != EINTR) return;
      if (look[1].revents != 0) return;
      pause = false;
      // Another thread may have been faster.
      const Fd caller(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (caller.get() < 0) {
        pause = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
        continue;
      }
      router_.serve(caller.get(), ends_.get(),
                    Clock::now() + std::chrono::nanoseconds(options_.patience_ns));
    }
  }

  static constexpr int kPauseMs = 500;
  const HttpOptions options_;
  const HttpRouter router_;
  const Fd listener_;
  const Fd ends_;
  const vhca::Address address_;
  std::vector<std::thread> threads_;
};

Result<Fd> listen_at(const vhca::Address& where, int backlog) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(where.ip.c_str(), std::to_string(where.port).c_str(), &hints, &found);
  if (failed != 0)
    return make_error(Errc::kInvalid, "\"{}\" is no IP address: {}", where.ip,
                      ::gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return sys_error(errno, "a socket");
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(fd.get(), backlog) != 0) {
    if (errno == EADDRINUSE)
      return make_error(Errc::kExists, "another program listens at {} already",
                        address_text(where));
    if (errno == EADDRNOTAVAIL)
      return make_error(Errc::kInvalid, "{} is no address of this machine", where.ip);
    return sys_error(errno, "listening at " + address_text(where));
  }
  return fd;
}

uint16_t port_of(int fd) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return 0;
  const bool v6 = bound.ss_family == AF_INET6;
  return ntohs(v6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                  : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpOptions& options, Get get) {
  BRAID_TRY(Fd listener, listen_at(options.listen, options.backlog));
  Fd ends(::eventfd(0, EFD_CLOEXEC));
  if (ends.get() < 0) return sys_error(errno, "eventfd");
  vhca::Address address = options.listen;
  address.port = port_of(listener.get());
  auto server = std::make_unique<ThreadedHttpServer>(options, std::move(get), std::move(listener),
                                                     std::move(ends), std::move(address));
  BRAID_CHECK(server->run());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace braid::cli
