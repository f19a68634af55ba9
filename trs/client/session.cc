// Session: what its user calls, and what its queues report.
#include "trs/client/session.h"

#include <algorithm>

namespace braid::trs {

base::Task<base::Result<std::unique_ptr<ClientSession>>> ClientSession::open(vhca::Device& device,
                                                                             vhca::Pd& pd,
                                                                             ClientOptions options,
                                                                             SessionUser& user) {
  using base::Errc;
  if (options.reactors.empty() || options.reactors.size() >= wire::kConnectionsMax) {
    co_return base::make_error(Errc::kInvalid, "a session over {} reactors; 1 to {} are right",
                               options.reactors.size(), wire::kConnectionsMax - 1);
  }
  const std::string& name = options.session_name;
  const bool printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (name.empty() || name.size() > wire::kSessionNameBytesMax || !printable) {
    co_return base::make_error(
        Errc::kInvalid, "session name '{}': 1 to {} printable characters without blanks are right",
        name, wire::kSessionNameBytesMax);
  }
  if (options.server.port == 0) options.server.port = wire::kDefaultPort;
  auto session = std::make_unique<client::Session>(device, pd, std::move(options), user);
  base::Status status = co_await session->start();
  if (!status.ok()) co_return status.error();
  co_return std::unique_ptr<ClientSession>(std::move(session));
}

namespace client {

using base::Errc;
using base::make_error;

namespace {

wire::Uuid random_uuid(base::Host& host) {
  wire::Uuid uuid;
  host.random(std::as_writable_bytes(std::span(uuid.bytes)));
  return uuid;
}

}  // namespace

Session::Session(vhca::Device& device, vhca::Pd& pd, ClientOptions options, SessionUser& user)
    : device_(device),
      pd_(pd),
      options_(std::move(options)),
      user_(user),
      home_(*options_.reactors.front()),
      log_(home_.log().child("trs")),
      path_(ClientPathState::kConnecting, log_),
      sess_uuid_(random_uuid(home_.host())),
      paths_uuid_(random_uuid(home_.host())),
      give_up_timer_(&give_up, this),
      wake_timer_([](base::Timer& timer) { static_cast<Session*>(timer.context)->wake(); }, this),
      changed_(std::make_shared<base::Signal>(home_)) {
  const auto cid_num = static_cast<uint16_t>(options_.reactors.size() + 1);
  queues_.push_back(std::make_unique<Queue>(*this, uint16_t{0}, cid_num, home_));
  for (size_t i = 0; i < options_.reactors.size(); ++i) {
    queues_.push_back(std::make_unique<Queue>(*this, static_cast<uint16_t>(1 + i), cid_num,
                                              *options_.reactors[i]));
  }
}

Session::~Session() {
  // A server that stands still in the middle of a copy must not hold up this reactor.
  if (admin_mr_ != nullptr) {
    pd_.dereg_mr(std::move(admin_mr_), std::shared_ptr<base::Segment>(std::move(admin_memory_)));
  }
}

ClientQueue& Session::queue(size_t reactor_index) {
  return *queues_.at(1 + reactor_index);
}

base::Task<void> Session::close() {
  if (path_.is(ClientPathState::kDead)) co_return;
  const std::shared_ptr<base::Signal> changed = changed_;
  closing_ = true;
  lose(make_error(Errc::kCanceled, "the session is being closed"));
  wake();
  while (!path_.is(ClientPathState::kClosed)) {
    if (path_.is(ClientPathState::kDead)) co_return;  // another close() was first
    co_await changed->wait();
  }
  path_.set(ClientPathState::kDead, "removed");
  wake();
}

void Session::queue_connected(Queue&, ConnectOutcome outcome) {
  outcome_ = std::move(outcome);
  wake();
}

void Session::queue_fenced(Queue&) {
  --fences_due_;
  wake();
}

void Session::queue_stopped(Queue&) {
  --stops_due_;
  wake();
}

void Session::drop_path(std::string_view why) {
  trouble(base::make_error(base::Errc::kCanceled, "given up by this side: {}", why));
}

void Session::trouble(base::Error why) {
  lose(std::move(why));
}

/// Takes the path, or the attempt to make it, down; once. maintain() does the rest.
void Session::lose(base::Error why) {
  if (lost_) return;
  lost_ = true;
  const auto level = usable_ && !closing_ ? base::LogLevel::kWarning : base::LogLevel::kDebug;
  log_.log(level, "path to {}:{} lost: {}", options_.server.ip, options_.server.port,
           why.message());
  if (usable_) {
    down_since_ns_ = home_.host().now_ns();
    const uint64_t limit_ns = options_.reconnect.give_up_after_ns;
    if (limit_ns != base::kNever && !closing_) home_.schedule_after(give_up_timer_, limit_ns);
  }
  usable_ = false;
  why_ = std::move(why);
  // At once, for those who wait for an answer over this path.
  for (auto& queue : queues_) {
    ++fences_due_;
    queue->fence();
  }
  wake();
}

void Session::info_received(std::span<const std::byte> message) {
  const uint32_t chunk_bytes = granted_.max_io_size + granted_.max_hdr_size;
  map_ = std::make_shared<PathMap>(granted_.queue_depth);
  map_->braid_peer = granted_.braid_magic == wire::kBraidMagic;
  info_ = wire::parse_info_rsp(message, chunk_bytes, map_->chunks);
  wake();
}

uint64_t Session::received_count() const {
  uint64_t sum = 0;
  for (const auto& queue : queues_) sum += queue->received_count();
  return sum;
}

/// A kernel peer has one heartbeat, on connection 0, and warns of others.
void Session::watch_peer() {
  const bool braid_peer = granted_.braid_magic == wire::kBraidMagic;
  for (auto& queue : queues_) {
    if (braid_peer || queue->cid() == 0) queue->watch_peer(!braid_peer);
  }
}

void Session::give_up(base::Timer& timer) {
  auto& self = *static_cast<Session*>(timer.context);
  self.gave_up_ = true;
  if (!self.users_turn_) self.give_up_now();  // else the path may be about to come back
}

void Session::give_up_now() {
  const auto why =
      make_error(Errc::kTimedOut, "no path to {}:{} for {} ms: {}", options_.server.ip,
                 options_.server.port, options_.reconnect.give_up_after_ns / base::kMillisecond,
                 why_ ? why_->message() : "not tried yet");
  log_.warning("requests fail from now on: {}", why.message());
  refuse_all(Errc::kTimedOut);
  user_.gave_up(why);
}

void Session::refuse_all(Errc status) {
  for (size_t cid = 1; cid < queues_.size(); ++cid) queues_[cid]->refuse(status);
}

SessionState Session::state() const {
  switch (path_.state()) {
    case ClientPathState::kConnected:
      return usable_ ? SessionState::kConnected : SessionState::kReconnecting;
    case ClientPathState::kClosing:
    case ClientPathState::kClosed:
    case ClientPathState::kDead:
      return SessionState::kClosed;
    default:
      return limits_known_ ? SessionState::kReconnecting : SessionState::kConnecting;
  }
}

std::string Session::explain() const {
  const std::string server = fmt::format("{}:{}", options_.server.ip, options_.server.port);
  const std::string why = why_ ? why_->message() : std::string("not tried yet");
  switch (state()) {
    case SessionState::kConnected:
      return fmt::format("connected to {}{}", server, unanswered());
    case SessionState::kConnecting:
      return fmt::format("connecting to {}", server);
    case SessionState::kReconnecting: {
      const uint64_t ms = (home_.host().now_ns() - down_since_ns_) / base::kMillisecond;
      return fmt::format("reconnecting to {} for {}.{} s{}: {}", server, ms / 1000, ms % 1000 / 100,
                         gave_up_ ? ", too long: requests fail" : "", why);
    }
    case SessionState::kClosed:
      return fmt::format("closed: {}", why);
  }
  return {};
}

std::string Session::peer_text() const {
  const std::string text = queues_.front()->peer_text();
  return text.empty() ? fmt::format("{}:{}", options_.server.ip, options_.server.port) : text;
}

}  // namespace client
}  // namespace braid::trs
