// Session: what its user calls, and what its queues and paths report.
#include "trs/client/session.h"

#include <algorithm>

#include "trs/client/domain.h"

namespace braid::trs {

base::Task<base::Result<std::unique_ptr<ClientSession>>> ClientSession::open(Domain& domain,
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
  if (options.user_header_bytes_max > wire::kUserHeaderBytesMax) {
    co_return base::make_error(Errc::kInvalid, "user headers of {} bytes: at most {} are right",
                               options.user_header_bytes_max, wire::kUserHeaderBytesMax);
  }
  if (options.server.port == 0) options.server.port = wire::kDefaultPort;
  for (PathOptions& path : options.paths) {
    if (path.server.port == 0) path.server.port = wire::kDefaultPort;
    if (path.device < domain.devices()) continue;
    co_return base::make_error(Errc::kInvalid, "a path to {} by device {}: there are {}",
                               path.server.ip, path.device, domain.devices());
  }
  auto session = std::make_unique<client::Session>(domain, std::move(options), user);
  base::Status status = co_await session->start();
  if (!status.ok()) co_return status.error();
  co_return std::unique_ptr<ClientSession>(std::move(session));
}

std::string_view to_string(PathPolicy policy) {
  switch (policy) {
    case PathPolicy::kRoundRobin:
      return "round-robin";
    case PathPolicy::kMinInflight:
      return "min-inflight";
    case PathPolicy::kMinLatency:
      return "min-latency";
  }
  return "unknown";
}

namespace client {

using base::Errc;
using base::make_error;

wire::Uuid random_uuid(base::Host& host) {
  wire::Uuid uuid;
  host.random(std::as_writable_bytes(std::span(uuid.bytes)));
  return uuid;
}

Session::Session(Domain& domain, ClientOptions options, SessionUser& user)
    : domain_(domain),
      options_(std::move(options)),
      user_(user),
      home_(*options_.reactors.front()),
      log_(home_.log().child("trs")),
      paths_uuid_(random_uuid(home_.host())),
      changed_(std::make_shared<base::Signal>(home_)),
      give_up_timer_(&give_up, this),
      lost_timer_(&lose, this) {
  const auto cid_num = static_cast<uint16_t>(options_.reactors.size() + 1);
  queues_.push_back(std::make_unique<Queue>(*this, uint16_t{0}, cid_num, home_));
  for (size_t i = 0; i < options_.reactors.size(); ++i) {
    queues_.push_back(std::make_unique<Queue>(*this, static_cast<uint16_t>(1 + i), cid_num,
                                              *options_.reactors[i]));
  }
  paths_.push_back(std::make_unique<Path>(*this, 0, PathOptions{options_.server, 0}));
  for (const PathOptions& path : options_.paths) {
    paths_.push_back(std::make_unique<Path>(*this, paths_.size(), path));
  }
}

Session::~Session() {
  // A server that stands still in the middle of a copy must not hold up this reactor.
  if (admin_mr_ != nullptr) {
    domain_.release(std::move(admin_mr_), std::shared_ptr<base::Segment>(std::move(admin_memory_)));
  }
  if (answers_mr_ != nullptr) {
    domain_.release(std::move(answers_mr_), std::shared_ptr<base::Segment>(std::move(answers_)));
  }
}

ClientQueue& Session::queue(size_t reactor_index) {
  return *queues_.at(1 + reactor_index);
}

/// What a path's lanes have counted is the queue's once the path is removed; for a moment it may be
/// there twice.
ClientStatistics Session::statistics(size_t reactor_index) const {
  const size_t cid = 1 + reactor_index;
  ClientStatistics all = queues_.at(cid)->counts();
  for (const auto& path : paths_) {
    if (path) path->lane_statistics(cid).add_to(all);
  }
  return all;
}

base::Task<void> Session::close() {
  if (dead_) co_return;
  const std::shared_ptr<base::Signal> changed = changed_;
  closing_ = true;
  usable_ = false;
  const auto why = make_error(Errc::kCanceled, "the session is being closed");
  why_ = why;
  for (const auto& path : paths_) {
    if (path) path->lose(why);
  }
  wake();
  while (!closed_) co_await changed->wait();
  if (dead_) co_return;  // another close() was first
  for (const auto& path : paths_) {
    if (path) path->close();
  }
  dead_ = true;
  wake();
}

void Session::queue_returned() {
  --returns_due_;
  wake();
}

void Session::queue_stopped() {
  --stops_due_;
  wake();
}

void Session::drop_path(std::string_view why) {
  const auto error = make_error(Errc::kCanceled, "given up by this side: {}", why);
  for (const auto& path : paths_) {
    if (path) path->lose(error);
  }
}

bool Session::any_connected() const {
  return std::any_of(paths_.begin(), paths_.end(),
                     [](const auto& path) { return path && path->connected(); });
}

Path* Session::connected_path() {
  const auto found = std::find_if(paths_.begin(), paths_.end(),
                                  [](const auto& path) { return path && path->connected(); });
  return found != paths_.end() ? found->get() : nullptr;
}

void Session::path_lost(Path& path) {
  const auto level = usable_ && !closing_ ? base::LogLevel::kWarning : base::LogLevel::kDebug;
  log_.log(level, "path to {} lost: {}", path.text(), path.why().message());
  if (!any_connected()) path_down(path.why());
}

void Session::path_joined() {
  if (usable_ || closing_) return;
  // The last one was lost in the turn in which this one came: nobody else has noticed.
  usable_ = true;
  home_.cancel(give_up_timer_);
  home_.cancel(lost_timer_);
  if (gave_up_) refuse_all(Errc::kOk);
  gave_up_ = false;
}

/// Without epochs a new session at the server cannot be told from the one whose devices are open.
void Session::server_forgot(const base::Error& why) {
  const base::Error all = why.with("the server was restarted");
  for (const auto& path : paths_) {
    if (path && path->connected()) path->lose(all);
  }
}

/// There is no path any more; maintain() does the rest.
void Session::path_down(const base::Error& why) {
  if (usable_) {
    down_since_ns_ = home_.host().now_ns();
    if (!closing_) watch_absence();
  }
  usable_ = false;
  why_ = why;
  wake();
}

/// An answer may come late, by a path that was asked first: then it is of a former life.
void Session::fenced_at_server(const wire::FenceMsg& fence) {
  for (const auto& path : paths_) {
    if (path && path->fenced_at_server(fence)) return;
  }
}

void Session::notice_received() {
  if (notice_due_) return;
  notice_due_ = true;
  post_home([this] {
    notice_due_ = false;
    if (!closing_) user_.notice();
  });
}

void Session::give_up(base::Timer& timer) {
  auto& self = *static_cast<Session*>(timer.context);
  self.gave_up_ = true;
  if (!self.users_turn_) self.give_up_now();  // else the path may be about to come back
}

void Session::give_up_now() {
  const auto why = make_error(Errc::kTimedOut, "no path to {} for {} ms: {}", server_text(),
                              options_.reconnect.give_up_after_ns / base::kMillisecond, why_text());
  log_.warning("requests fail from now on: {}", why.message());
  refuse_all(Errc::kTimedOut);
  user_.gave_up(why);
}

/// From the loss of the last path on.
void Session::watch_absence() {
  const uint64_t give_up_ns = options_.reconnect.give_up_after_ns;
  if (give_up_ns != base::kNever) home_.schedule(give_up_timer_, down_since_ns_ + give_up_ns);
  const uint64_t lost_ns = options_.reconnect.lost_after_ns;
  if (lost_ns != base::kNever) home_.schedule(lost_timer_, down_since_ns_ + lost_ns);
}

void Session::set_lost_after(uint64_t lost_after_ns) {
  options_.reconnect.lost_after_ns = lost_after_ns;
  home_.cancel(lost_timer_);
  const bool away = limits_known_ && !usable_ && !closing_ && !lost_;
  if (away && lost_after_ns != base::kNever)
    home_.schedule(lost_timer_, down_since_ns_ + lost_after_ns);
}

/// An attempt that is under way is given up; in its user's turn it may still come to an end.
void Session::lose(base::Timer& timer) {
  auto& self = *static_cast<Session*>(timer.context);
  self.lost_ = true;
  if (self.users_turn_) return;
  const auto why = make_error(Errc::kDisconnected, "the session is lost");
  if (self.beginning_ != nullptr) self.beginning_->lose(why);
  self.wake();
}

void Session::be_lost() {
  home_.cancel(give_up_timer_);
  why_ =
      make_error(Errc::kDisconnected, "no path to {} for {} ms, and none is tried any more: {}",
                 server_text(), options_.reconnect.lost_after_ns / base::kMillisecond, why_text());
  log_.error("the session is lost: {}", why_->message());
  refuse_all(Errc::kDisconnected);
  user_.lost(*why_);
}

void Session::refuse_all(Errc status) {
  for (size_t cid = 1; cid < queues_.size(); ++cid) queues_[cid]->refuse(status);
}

SessionState Session::state() const {
  if (closing_ || closed_) return SessionState::kClosed;
  if (usable_) return SessionState::kConnected;
  if (lost_ && !users_turn_) return SessionState::kLost;
  return limits_known_ ? SessionState::kReconnecting : SessionState::kConnecting;
}

std::string Session::server_text() const {
  return fmt::format("{}:{}", options_.server.ip, options_.server.port);
}

std::string Session::why_text() const {
  return why_ ? why_->message() : std::string("not tried yet");
}

/// Of a session with several: how many carry requests, and what of the others.
std::string Session::paths_text() const {
  size_t all = 0, up = 0;
  std::string others;
  for (const auto& path : paths_) {
    if (!path) continue;
    ++all;
    if (path->connected()) {
      ++up;
      continue;
    }
    const PathStatus status = path->status();
    others += fmt::format("; path {} to {} is {}{}{}", status.id, path->text(), status.state,
                          status.why.empty() ? "" : ": ", status.why);
  }
  return all < 2 ? "" : fmt::format(" by {} of {} paths{}", up, all, others);
}

std::string Session::explain() const {
  switch (state()) {
    case SessionState::kConnected:
      return fmt::format("connected to {}{}{}", server_text(), paths_text(), unanswered());
    case SessionState::kConnecting:
      return fmt::format("connecting to {}", server_text());
    case SessionState::kReconnecting: {
      const uint64_t ms = (home_.host().now_ns() - down_since_ns_) / base::kMillisecond;
      return fmt::format("reconnecting to {} for {}.{} s{}: {}", server_text(), ms / 1000,
                         ms % 1000 / 100, gave_up_ ? ", too long: requests fail" : "", why_text());
    }
    case SessionState::kLost:
      return fmt::format("lost: {}", why_text());
    case SessionState::kClosed:
      return fmt::format("closed: {}", why_text());
  }
  return {};
}

std::string Session::peer_text() const {
  const std::string text = queues_.front()->peer_text();
  return text.empty() ? server_text() : text;
}

}  // namespace client
}  // namespace braid::trs
