#include "bench/floor/sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <optional>
#include <stdexcept>
#include <utility>

#include "bench/workload.h"

namespace braid::bench {
namespace {

[[noreturn]] void failed(const char* call) {
  throw std::runtime_error(base::sys_error(errno, call).message());
}

class OwnedSocket {
 public:
  explicit OwnedSocket(int fd, const char* call) : fd_(fd) {
    if (fd < 0) failed(call);
  }
  OwnedSocket(OwnedSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedSocket& operator=(OwnedSocket&&) = delete;
  ~OwnedSocket() {
    if (fd_ >= 0) close(fd_);
  }

  int fd() const { return fd_; }
  void send(uint64_t number) const {
    if (::send(fd_, &number, sizeof number, MSG_NOSIGNAL) != sizeof number) failed("send");
  }
  /// False: the peer has closed it.
  bool receive(uint64_t& number) const {
    const ssize_t got = ::recv(fd_, &number, sizeof number, MSG_WAITALL);
    if (got < 0) failed("recv");
    return got == sizeof number;
  }

 private:
  int fd_;
};

/// Listens where the kernel chooses, and connects there; also from a process that was forked.
class Listener {
 public:
  explicit Listener(SocketKind kind)
      : family_(kind == SocketKind::kUnix ? AF_UNIX : AF_INET),
        socket_(::socket(family_, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket") {
    sockaddr_in ip{};
    ip.sin_family = AF_INET;
    ip.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // Of a unix socket only the family: the kernel gives it a name.
    const socklen_t length = family_ == AF_UNIX ? sizeof(sa_family_t) : sizeof ip;
    ip.sin_family = static_cast<sa_family_t>(family_);
    if (bind(socket_.fd(), reinterpret_cast<sockaddr*>(&ip), length) != 0) failed("bind");
    if (listen(socket_.fd(), 16) != 0) failed("listen");
    address_length_ = sizeof address_;
    if (getsockname(socket_.fd(), address(), &address_length_) != 0) failed("getsockname");
  }

  OwnedSocket accept() const {
    return without_delay(
        OwnedSocket(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC), "accept"));
  }
  OwnedSocket connect() {
    OwnedSocket socket(::socket(family_, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    if (::connect(socket.fd(), address(), address_length_) != 0) failed("connect");
    return without_delay(std::move(socket));
  }

 private:
  sockaddr* address() { return reinterpret_cast<sockaddr*>(&address_); }
  OwnedSocket without_delay(OwnedSocket socket) const {
    const int one = 1;
    if (family_ == AF_INET &&
        setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
      failed("setsockopt");
    return socket;
  }

  int family_;
  OwnedSocket socket_;
  sockaddr_storage address_{};
  socklen_t address_length_ = 0;
};

class SocketExchange : public Candidate {
 public:
  SocketExchange(SocketKind kind, bool connects) : kind_(kind), connects_(connects) {}
  std::string name() const override {
    return fmt::format("{}, 8 bytes each way{}",
                       kind_ == SocketKind::kUnix ? "a unix socket" : "a TCP connection",
                       connects_ ? "" : ", connected before");
  }
  std::string threads() const override { return "one a side; both sleep"; }
  base::Status prepare(Bench&) override { return base::ok_status(); }

  base::Result<Sample> run(Bench& bench) override {
    Listener listener(kind_);
    BRAID_TRY(Process server, Process::call(bench.interrupts, bench.cpus.server,
                                            [&](Channel&) { answer_each(listener); }));
    const unsigned count = bench.options.quick ? 10 : 2000;
    BRAID_TRY(Process client,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                channel.send(to_json(exchange_each(listener, count)));
              }));
    BRAID_TRY(const auto message, client.receive(60'000));
    return sample_from_json(message);
  }

 private:
  static void answer_each(const Listener& listener) {
    for (;;) {
      const OwnedSocket socket = listener.accept();
      for (uint64_t number = 0; socket.receive(number);) socket.send(number);
    }
  }
  static void exchange(const OwnedSocket& socket, uint64_t number) {
    socket.send(number);
    uint64_t back = 0;
    if (!socket.receive(back) || back != number) throw std::runtime_error("a wrong answer");
  }
  Sample exchange_each(Listener& listener, unsigned count) const {
    std::vector<uint64_t> durations_ns;
    std::optional<OwnedSocket> lasting;  // the server serves one at a time
    if (!connects_) lasting.emplace(listener.connect());
    for (uint64_t i = 1; i <= count; ++i) {
      const uint64_t begin_ns = clock_ns();
      if (lasting) {
        exchange(*lasting, i);
      } else {
        exchange(listener.connect(), i);
      }
      durations_ns.push_back(clock_ns() - begin_ns);
    }
    Sample sample{.latencies = latencies(durations_ns)};
    sample.value = static_cast<double>(sample.latencies->p50_ns) / 1000;
    return sample;
  }

  const SocketKind kind_;
  const bool connects_;
};

}  // namespace

void tcp_there_and_back(benchmark::State& state) {
  Listener listener(SocketKind::kTcp);
  const OwnedSocket here = listener.connect();
  const OwnedSocket there = listener.accept();
  uint64_t number = 0;
  for (auto _ : state) {
    here.send(++number);
    uint64_t got = 0;
    there.receive(got);
    there.send(got);
    here.receive(got);
    if (got != number) {
      state.SkipWithError("a wrong answer");
      break;
    }
  }
}

std::unique_ptr<Candidate> socket_set_up(SocketKind kind) {
  return std::make_unique<SocketExchange>(kind, /*connects=*/true);
}

std::unique_ptr<Candidate> socket_exchange(SocketKind kind) {
  return std::make_unique<SocketExchange>(kind, /*connects=*/false);
}

}  // namespace braid::bench
