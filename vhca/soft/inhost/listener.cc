#include "vhca/soft/inhost/listener.h"

#include <algorithm>

#include "base/log.h"
#include "vhca/connect_bounds.h"
#include "vhca/soft/inhost/connection.h"

namespace braid::vhca::soft::inhost {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;
using base::Task;

namespace {
// Peers that have connected a socket and said nothing yet: beyond the backlog, and of one process.
constexpr size_t kSilentCandidates = 128;
constexpr size_t kSilentOfOneProcess = 64;
constexpr uint64_t kAcceptPauseNs = 20 * base::kMillisecond;
constexpr base::LimitedLog::Limits kLines{.burst = 10, .per_second = 10};
}  // namespace

void reject_peer(base::LocalSocket& socket, CmRejectReason reason,
                 std::span<const std::byte> private_data) {
  CmMessage message;
  message.kind = CmKind::kReject;
  message.reason = reason;
  message.private_data.assign(private_data.begin(),
                              private_data.begin() + static_cast<ptrdiff_t>(std::min(
                                                         private_data.size(), kRejectPrivateMax)));
  (void)socket.send(encode_cm_message(message));
}

// --- InHostRequest

InHostRequest::InHostRequest(InHostWire& wire, SoftDevice& device,
                             std::unique_ptr<base::LocalSocket> socket, Received received)
    : wire_(wire), device_(device), socket_(std::move(socket)), received_(std::move(received)) {}

InHostRequest::~InHostRequest() {
  reject({});
}

std::string InHostRequest::peer_text() const {
  return socket_ ? peer_text_of(socket_->peer()) : "a process on this host";
}

void InHostRequest::reject(std::span<const std::byte> private_data) {
  if (!socket_) return;
  reject_peer(*socket_, CmRejectReason::kUser, private_data);
  socket_.reset();
}

Task<Result<std::unique_ptr<Connection>>> InHostRequest::accept(base::Reactor& reactor, Qp& qp,
                                                                ConnectParameters parameters) {
  if (!socket_) co_return make_error(Errc::kInvalid, "the connect request was decided already");
  BRAID_CO_CHECK(check_parameters(parameters, kReplyPrivateMax));
  BRAID_CO_TRY(LinkEnd* const end, link_end_of(device_, qp));
  Task<bool> passing = pass_port(reactor, &wire_.own_port());
  (void)co_await std::move(passing);
  if (!socket_) co_return make_error(Errc::kInvalid, "the connect request was decided meanwhile");
  BRAID_CO_TRY(auto pending, PendingEnd::create(wire_, *end, parameters));

  ChannelOwner channel(wire_, reactor, std::move(socket_));
  // establish() announces our segments, so that the peer knows them when it reads the reply.
  const uint64_t deadline_ns = reactor.now_ns() + wire_.options().handshake_bound_ns;
  Status done = co_await pending->establish(reactor, channel.shared(), received_, deadline_ns);
  if (done.ok()) {
    std::function<Status()> reply = [&] { return pending->send(*channel, CmKind::kReply); };
    done = co_await send_when_read(reactor, *channel, deadline_ns, std::move(reply));
  }
  if (done.ok()) {
    Task<Status> ready = channel->ready();
    Task<std::optional<Status>> limited =
        reactor.with_timeout(std::move(ready), wire_.options().handshake_bound_ns);
    const std::optional<Status> answer = co_await std::move(limited);
    done = answer.has_value() ? *answer
                              : make_error(Errc::kTimedOut, "{} did not confirm the connection",
                                           peer_text_of(channel->identity()));
  }
  if (!done.ok()) {
    channel->disconnect_user();
    co_return done.error().with("accepting a connection");
  }
  co_return std::make_unique<InHostConnection>(std::move(channel),
                                               std::move(received_.message.private_data));
}

// --- InHostListener

InHostListener::Candidate::Candidate(InHostListener& owner, std::unique_ptr<base::LocalSocket> s)
    : listener(owner),
      socket(std::move(s)),
      origin(socket->peer().pid),
      timer(&InHostListener::candidate_is_late, this) {
  watch.ready = &InHostListener::candidate_speaks;
  watch.context = this;
  listener.reactor_.io().watch_readable(socket->handle(), watch);
  listener.reactor_.schedule_after(timer, listener.wire_.options().handshake_bound_ns);
}

InHostListener::Candidate::~Candidate() {
  listener.reactor_.io().unwatch(watch);
}

InHostListener::InHostListener(InHostWire& wire, SoftDevice& device, base::Reactor& reactor,
                               BoundListener bound, int backlog,
                               std::shared_ptr<RequestQueue> requests)
    : wire_(wire),
      device_(device),
      reactor_(reactor),
      bound_(std::move(bound)),
      backlog_(static_cast<size_t>(std::clamp(backlog, 1, 4096))),
      pause_(&InHostListener::pause_over, this),
      candidates_({.all = backlog_ + kSilentCandidates, .of_one_origin = kSilentOfOneProcess}),
      refusals_(reactor, wire.host().log(), kLines),
      failures_(reactor, wire.host().log(), kLines),
      requests_(std::move(requests)) {
  watch_.ready = &InHostListener::somebody_connects;
  watch_.context = this;
  watch_socket(true);
}

InHostListener::~InHostListener() {
  watch_socket(false);
  requests_->close();
}

Task<Result<std::unique_ptr<ConnectRequest>>> InHostListener::next() {
  return RequestQueue::take(requests_);
}

void InHostListener::watch_socket(bool watched) {
  if (watched == watched_) return;
  watched_ = watched;
  if (watched) {
    reactor_.io().watch_readable(bound_.socket->handle(), watch_);
  } else {
    reactor_.io().unwatch(watch_);
  }
}

void InHostListener::pause_over(base::Timer& timer) {
  auto& listener = *static_cast<InHostListener*>(timer.context);
  listener.watch_socket(true);
}

void InHostListener::somebody_connects(base::Watch& watch) {
  static_cast<InHostListener*>(watch.context)->accept_sockets();
}

void InHostListener::accept_sockets() {
  for (int accepted = 0;; ++accepted) {
    if (accepted == kAcceptsPerTurn) {
      watch_socket(false);
      return reactor_.schedule_after(pause_, 0);
    }
    auto socket = bound_.socket->accept();
    if (socket.ok()) {
      admit(std::move(socket).value());
      continue;
    }
    if (socket.code() == Errc::kWouldBlock) return;
    failures_.warning("listener at {} port {}: {}", bound_.address.ip, bound_.address.port,
                      socket.error().message());
    // Out of descriptors, most likely: whoever waits stays in the kernel's backlog meanwhile.
    watch_socket(false);
    return reactor_.schedule_after(pause_, kAcceptPauseNs);
  }
}

void InHostListener::admit(std::unique_ptr<base::LocalSocket> socket) {
  if (Status allowed = wire_.check_peer(socket->peer()); !allowed.ok()) {
    refusals_.warning("refused: {}", allowed.error().message());
    return reject_peer(*socket, CmRejectReason::kInvalid);
  }
  candidates_.make_room(socket->peer().pid);
  candidates_.add(std::make_unique<Candidate>(*this, std::move(socket)));
}

void InHostListener::candidate_speaks(base::Watch& watch) {
  auto& candidate = *static_cast<Candidate*>(watch.context);
  candidate.listener.take_request(candidate);
}

void InHostListener::candidate_is_late(base::Timer& timer) {
  auto& candidate = *static_cast<Candidate*>(timer.context);
  (void)candidate.listener.candidates_.take(candidate);
}

void InHostListener::take_request(Candidate& candidate) {
  auto received = receive_cm_message(*candidate.socket);
  if (received.code() == Errc::kWouldBlock) return;
  std::unique_ptr<base::LocalSocket> socket = std::move(candidate.socket);
  const std::unique_ptr<Candidate> gone = candidates_.take(candidate);
  if (received.ok() && received.value().message.kind == CmKind::kRequest) {
    // Not before: a peer that still wants to send its request would see a hang-up, not the reason.
    if (requests_->size() >= backlog_) return reject_peer(*socket, CmRejectReason::kOverload);
    return requests_->push(std::make_unique<InHostRequest>(wire_, device_, std::move(socket),
                                                           std::move(received).value()));
  }
  if (received.code() == Errc::kDisconnected) return;
  refusals_.warning("refused a connect request of process {}: {}", socket->peer().pid,
                    received.ok() ? "not a request" : received.error().message());
  reject_peer(*socket, CmRejectReason::kInvalid);
}

}  // namespace braid::vhca::soft::inhost
