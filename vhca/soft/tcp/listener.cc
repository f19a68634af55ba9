#include <algorithm>

#include "base/ip_network.h"
#include "base/log.h"
#include "vhca/soft/tcp/connection.h"

namespace braid::vhca::soft::tcp {

using base::Errc;
using base::Result;
using base::Task;

namespace {
// Peers that have connected and said nothing yet: beyond the backlog, and of one address.
constexpr size_t kSilentCandidates = 256;
constexpr size_t kSilentOfOneAddress = 128;
constexpr uint64_t kCandidateBoundNs = 5 * base::kSecond;
constexpr uint64_t kAcceptPauseNs = 20 * base::kMillisecond;
// Whoever reaches the port can cause these lines. Apart: the one kind must not hide the other.
constexpr base::LimitedLog::Limits kListenerLines{.burst = 10, .per_second = 10};
}  // namespace

TcpListener::Candidate::Candidate(TcpListener& owner, std::unique_ptr<base::StreamSocket> s)
    : listener(owner),
      socket(std::move(s)),
      origin(base::network_of(socket->peer().ip)),
      timer(&TcpListener::candidate_is_late, this) {
  watch.ready = &TcpListener::candidate_speaks;
  watch.context = this;
  listener.reactor_.io().watch_readable(socket->handle(), watch);
  listener.reactor_.schedule_after(timer, kCandidateBoundNs);
}

TcpListener::Candidate::~Candidate() {
  listener.reactor_.io().unwatch(watch);
}

TcpListener::TcpListener(TcpWire& wire, SoftDevice& device, base::Reactor& reactor,
                         std::unique_ptr<base::StreamListener> listener, int backlog,
                         std::shared_ptr<RequestQueue> requests)
    : wire_(wire),
      device_(device),
      reactor_(reactor),
      listener_(std::move(listener)),
      backlog_(static_cast<size_t>(std::clamp(backlog, 1, 4096))),
      pause_(&TcpListener::pause_over, this),
      candidates_({.all = backlog_ + kSilentCandidates, .of_one_origin = kSilentOfOneAddress}),
      refusals_(reactor, wire.host().log(), kListenerLines),
      failures_(reactor, wire.host().log(), kListenerLines),
      requests_(std::move(requests)) {
  watch_.ready = &TcpListener::somebody_connects;
  watch_.context = this;
  watch_socket(true);
}

TcpListener::~TcpListener() {
  watch_socket(false);
  requests_->close();
}

Task<Result<std::unique_ptr<ConnectRequest>>> TcpListener::next() {
  return RequestQueue::take(requests_);
}

Address TcpListener::address() const {
  const base::SocketAddress at = listener_->address();
  return {.ip = at.ip, .port = at.port};
}

void TcpListener::watch_socket(bool watched) {
  if (watched == watched_) return;
  watched_ = watched;
  if (watched) {
    reactor_.io().watch_readable(listener_->handle(), watch_);
  } else {
    reactor_.io().unwatch(watch_);
  }
}

void TcpListener::pause_over(base::Timer& timer) {
  static_cast<TcpListener*>(timer.context)->watch_socket(true);
}

void TcpListener::somebody_connects(base::Watch& watch) {
  static_cast<TcpListener*>(watch.context)->accept_sockets();
}

void TcpListener::accept_sockets() {
  for (int accepted = 0;; ++accepted) {
    if (accepted == kAcceptsPerTurn) {
      watch_socket(false);
      return reactor_.schedule_after(pause_, 0);
    }
    auto socket = listener_->accept();
    if (socket.ok()) {
      candidates_.make_room(base::network_of((*socket)->peer().ip));
      candidates_.add(std::make_unique<Candidate>(*this, std::move(socket).value()));
      continue;
    }
    if (socket.code() == Errc::kWouldBlock) return;
    failures_.warning("listener at {} port {}: {}", address().ip, address().port,
                      socket.error().message());
    // Out of descriptors, most likely: whoever waits stays in the kernel's backlog meanwhile.
    watch_socket(false);
    return reactor_.schedule_after(pause_, kAcceptPauseNs);
  }
}

void TcpListener::candidate_speaks(base::Watch& watch) {
  auto& candidate = *static_cast<Candidate*>(watch.context);
  candidate.listener.take_request(candidate);
}

void TcpListener::candidate_is_late(base::Timer& timer) {
  auto& candidate = *static_cast<Candidate*>(timer.context);
  (void)candidate.listener.candidates_.take(candidate);
}

void TcpListener::take_request(Candidate& candidate) {
  auto cm = candidate.reader.read(*candidate.socket);
  if (cm.code() == Errc::kWouldBlock) return;
  const std::unique_ptr<Candidate> gone = candidates_.take(candidate);
  reactor_.io().unwatch(gone->watch);
  if (cm.ok() && cm->kind == FrameKind::kConnect) {
    if (requests_->size() >= backlog_) return reject(*gone->socket, RejectReason::kBacklog);
    return requests_->push(std::make_unique<TcpRequest>(wire_, device_, std::move(gone->socket),
                                                        std::move(cm).value()));
  }
  if (cm.code() != Errc::kProtocol && !cm.ok()) return;  // gone
  const base::SocketAddress peer = gone->socket->peer();
  refusals_.of(peer.ip).warning("refused a connection from {}:{}: {}", peer.ip, peer.port,
                                cm.ok() ? "not a request" : cm.error().message());
  reject(*gone->socket, RejectReason::kInvalid);
}

void TcpListener::reject(base::StreamSocket& socket, RejectReason reason) {
  (void)send_cm(socket, encode_cm(FrameKind::kReject, 0, 0, {}, reason));
}

}  // namespace braid::vhca::soft::tcp
