#include "bnbd/frontend/nbd_door.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace braid::bnbd {

namespace {

constexpr int kBacklog = 64;
constexpr int kEventsMax = 16;
constexpr int kAcceptsMax = 16;  // of one listener in one look
// Until one tries again to accept when there are no descriptors left.
constexpr uint64_t kPauseNs = 100 * base::kMillisecond;
constexpr uint32_t kInput = EPOLLIN | EPOLLRDHUP;
// What a unix socket holds on its way to the client: an answer of 1 MiB goes out by one system call
// instead of five. Of others than root the system takes a fifth. TCP finds its size by itself.
constexpr int kSendBufferBytes = 1 << 20;

void set_options(const UniqueFd& socket) {
  const auto set = [&](int level, int name, int value) {
    return ::setsockopt(socket.get(), level, name, &value, sizeof value) == 0;
  };
  int domain = 0;
  socklen_t length = sizeof domain;
  (void)::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length);
  if (domain == AF_UNIX) {
    if (!set(SOL_SOCKET, SO_SNDBUFFORCE, kSendBufferBytes)) {
      (void)set(SOL_SOCKET, SO_SNDBUF, kSendBufferBytes);
    }
    return;
  }
  (void)set(IPPROTO_TCP, TCP_NODELAY, 1);
  // A machine that is gone without a word is noticed within two minutes.
  (void)set(SOL_SOCKET, SO_KEEPALIVE, 1);
  (void)set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  (void)set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  (void)set(IPPROTO_TCP, TCP_KEEPCNT, 6);
  (void)set(IPPROTO_TCP, TCP_USER_TIMEOUT, 120'000);
}

}  // namespace

base::Result<std::unique_ptr<NbdDoor>> NbdDoor::open(base::Reactor& reactor,
                                                     NbdServiceOptions options,
                                                     NbdHandshake::Offers offers, Granted granted) {
  UniqueFd epoll_fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_fd.valid()) return base::sys_error(errno, "make an epoll descriptor");
  std::unique_ptr<NbdDoor> door(new NbdDoor(reactor, std::move(options), std::move(offers),
                                            std::move(granted), std::move(epoll_fd)));
  BRAID_CHECK(door->listen());
  return door;
}

NbdDoor::NbdDoor(base::Reactor& reactor, NbdServiceOptions options, NbdHandshake::Offers offers,
                 Granted granted, UniqueFd epoll_fd)
    : reactor_(reactor),
      options_(std::move(options)),
      offers_(std::move(offers)),
      granted_(std::move(granted)),
      log_(reactor, reactor.log(), {}),
      epoll_(std::move(epoll_fd)),
      accept_timer_(&NbdDoor::accept_again, this) {
  watch_.context = this;
  watch_.ready = [](base::Watch& watch) { static_cast<NbdDoor*>(watch.context)->look(); };
  reactor_.io().watch_readable(epoll_, watch_);
}

NbdDoor::~NbdDoor() {
  reactor_.io().unwatch(watch_);
  while (Candidate* const candidate = candidates_.pop_front()) delete candidate;
}

base::Status NbdDoor::watch_listener(int fd) {
  struct epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = static_cast<uint64_t>(fd) << 1 | 1;  // odd: no candidate's address
  if (::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return base::sys_error(errno, "watch a listening socket");
  }
  return {};
}

base::Status NbdDoor::listen() {
  if (!options_.unix_path.empty()) {
    BRAID_TRY(unix_, UnixListener::listen(options_.unix_path));
    BRAID_CHECK(watch_listener(unix_->fd()));
  }
  for (const base::SocketAddress& address : options_.listen) {
    BRAID_TRY(auto listener, reactor_.host().listen_stream(address, kBacklog));
    BRAID_CHECK(watch_listener(listener->handle().fd()));
    tcp_.push_back(std::move(listener));
  }
  return {};
}

std::vector<base::SocketAddress> NbdDoor::addresses() const {
  std::vector<base::SocketAddress> all;
  for (const auto& listener : tcp_) all.push_back(listener->address());
  return all;
}

void NbdDoor::look() {
  struct epoll_event events[kEventsMax];
  const int count = ::epoll_wait(epoll_.fd(), events, kEventsMax, 0);
  // Candidates first: who is accepted may take the place of one of them.
  for (int i = 0; i < count; ++i) {
    if ((events[i].data.u64 & 1) == 0) advance(*static_cast<Candidate*>(events[i].data.ptr));
  }
  for (int i = 0; i < count; ++i) {
    const uint64_t data = events[i].data.u64;
    if ((data & 1) != 0) accept_from(static_cast<int>(data >> 1));
  }
}

void NbdDoor::accept_from(int listener) {
  for (int i = 0; i < kAcceptsMax; ++i) {
    UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) {
      take(std::move(socket));
      continue;
    }
    if (errno == EAGAIN) return;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    log_.warning("cannot accept NBD clients: {}; trying again",
                 base::sys_error(errno, "accept").message());
    return pause_accepting();
  }
}

/// The listeners stay readable: watched, they would wake the reactor without end.
void NbdDoor::pause_accepting() {
  if (accept_timer_.pending()) return;
  if (unix_) (void)::epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, unix_->fd(), nullptr);
  for (const auto& listener : tcp_) {
    (void)::epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, listener->handle().fd(), nullptr);
  }
  reactor_.schedule_after(accept_timer_, kPauseNs);
}

void NbdDoor::accept_again(base::Timer& timer) {
  auto& self = *static_cast<NbdDoor*>(timer.context);
  const auto watch = [&](int fd) {
    const base::Status watched = self.watch_listener(fd);
    if (!watched.ok()) self.log_.warning("{}", watched.error().message());
  };
  if (self.unix_) watch(self.unix_->fd());
  for (const auto& listener : self.tcp_) watch(listener->handle().fd());
}

void NbdDoor::take(UniqueFd socket) {
  ++status_.accepted;
  if (status_.half_open >= options_.half_open_max) {
    dismiss(*candidates_.front(), "too many clients are in the handshake, and it was the first");
  }
  set_options(socket);
  auto candidate =
      std::make_unique<Candidate>(std::move(socket), offers_, &NbdDoor::too_slow, *this);
  struct epoll_event event = {};
  event.events = kInput;
  event.data.ptr = candidate.get();
  if (::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, candidate->socket.get(), &event) != 0) return;
  reactor_.schedule_after(candidate->patience, options_.handshake_timeout_ns);
  ++status_.half_open;
  candidates_.push_back(*candidate);
  advance(*candidate.release());
}

/// As far as its socket lets it; it may be gone afterwards.
void NbdDoor::advance(Candidate& candidate) {
  for (;;) {
    if (!candidate.handshake.output().empty()) {
      if (!send(candidate)) return;
      continue;
    }
    switch (candidate.handshake.state()) {
      case NbdHandshake::State::kTalking:
        if (!receive(candidate)) return;
        break;
      case NbdHandshake::State::kEnded:
        return dismiss(candidate, candidate.handshake.reason());
      case NbdHandshake::State::kGranted: {
        ++status_.granted;
        --status_.half_open;
        const std::unique_ptr<Candidate> owner(&candidate);
        candidate.unlink();
        (void)::epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, candidate.socket.get(), nullptr);
        const NbdHandshake& done = candidate.handshake;
        return granted_(done.export_name(), std::move(candidate.socket), done.structured(),
                        done.rest());
      }
    }
  }
}

/// False: not now, or it is gone.
bool NbdDoor::send(Candidate& candidate) {
  const std::span<const std::byte> output = candidate.handshake.output();
  const ssize_t sent =
      ::send(candidate.socket.get(), output.data(), output.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) {
    candidate.handshake.sent(static_cast<size_t>(sent));
    return true;
  }
  if (errno == EINTR) return true;
  if (errno == EAGAIN) {
    wait_for(candidate, EPOLLOUT);
  } else {
    dismiss(candidate, {});  // it went; some ask for a list, and do
  }
  return false;
}

bool NbdDoor::receive(Candidate& candidate) {
  std::byte bytes[NbdHandshake::kInputMax];
  const ssize_t got = ::recv(candidate.socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (got > 0) {
    candidate.handshake.received({bytes, static_cast<size_t>(got)});
    return true;
  }
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && errno == EAGAIN) {
    wait_for(candidate, kInput);
  } else {
    dismiss(candidate, {});  // it went; some ask for a list, and do
  }
  return false;
}

void NbdDoor::wait_for(Candidate& candidate, uint32_t events) {
  struct epoll_event event = {};
  event.events = events;
  event.data.ptr = &candidate;
  (void)::epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, candidate.socket.get(), &event);
}

void NbdDoor::dismiss(Candidate& candidate, const std::string& why) {
  const std::unique_ptr<Candidate> owner(&candidate);
  candidate.unlink();
  --status_.half_open;
  if (why.empty()) return;  // it took its leave, or just went
  ++status_.refused;
  log_.info("NBD client refused: {}", why);
}

void NbdDoor::too_slow(base::Timer& timer) {
  auto& candidate = *static_cast<Candidate*>(timer.context);
  NbdDoor& self = candidate.door;
  ++self.status_.timed_out;
  self.dismiss(candidate, fmt::format("the handshake took longer than {} s",
                                      self.options_.handshake_timeout_ns / base::kSecond));
}

}  // namespace braid::bnbd
