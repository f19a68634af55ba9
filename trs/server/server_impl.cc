#include "trs/server/server_impl.h"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace braid::trs {

base::Result<std::unique_ptr<Server>> Server::create(vhca::Device& device, ServerOptions options,
                                                     ServerUser& user) {
  using base::Errc;
  using base::make_error;
  if (options.reactors.empty()) return make_error(Errc::kInvalid, "a server without a reactor");
  if (options.queue_depth < 2 || options.queue_depth > wire::kQueueDepthMax) {
    return make_error(Errc::kInvalid, "queue depth {}: 2 to {} are right", options.queue_depth,
                      wire::kQueueDepthMax);
  }
  if (options.max_io_bytes < wire::kChunkBytesMin || options.max_io_bytes > 1u << 27 ||
      !ImmCodec::fits(options.queue_depth,
                      std::bit_ceil(options.max_io_bytes + wire::kChunkBytesMin))) {
    return make_error(Errc::kInvalid,
                      "{} requests of {} bytes: requests have at least {} bytes, and all of them "
                      "with their headers, each rounded up to a power of two, at most 256 MiB",
                      options.queue_depth, options.max_io_bytes, wire::kChunkBytesMin);
  }
  auto server = std::make_unique<server::ServerImpl>(device, std::move(options), user);
  BRAID_CHECK(server->start());
  return std::unique_ptr<Server>(std::move(server));
}

namespace server {
namespace {

constexpr int kBacklog = 128;
constexpr uint64_t kAcceptPauseNs = 100 * base::kMillisecond;  // after a failure of the listener
// Lines of the log that peers cause: about those that misbehave, and about what comes and goes.
constexpr base::LimitedLog::Limits kComplaints{.burst = 10, .per_second = 10};
constexpr base::LimitedLog::Limits kComings{.burst = 200, .per_second = 10};

// Sessions that have ended, and are kept, for each that may be open: those of one client, who may
// have had them all, leave room for as many of others.
constexpr size_t kKeptLives = 4;

}  // namespace

ServerImpl::ServerImpl(vhca::Device& device, ServerOptions options, ServerUser& user)
    : device_(device),
      options_(std::move(options)),
      chunk_bytes_(std::bit_ceil(options_.max_io_bytes + wire::kChunkBytesMin)),
      keys_(options_.keys),
      user_(user),
      home_(*options_.reactors.front()),
      complaints_(home_, home_.log().child("trs-server"), kComplaints),
      comings_(home_, home_.log().child("trs-server"), kComings),
      connect_rate_(2 * options_.sessions_max),
      kept_answers_({.sessions_max = kKeptLives * options_.sessions_max,
                     .of_one_max = options_.sessions_max}),
      changed_(std::make_shared<base::Signal>(home_)) {}

ServerImpl::~ServerImpl() = default;

base::Status ServerImpl::start() {
  for (base::Reactor* reactor : options_.reactors) {
    workers_.push_back(std::make_unique<Worker>(*reactor, workers_.size(), session_count_));
  }
  BRAID_CHECK(add_endpoint(device_, options_.listen));
  for (const ServerEndpoint& more : options_.endpoints) {
    BRAID_CHECK(add_endpoint(*more.device, more.listen));
  }
  for (auto& worker : workers_) worker->start();
  for (size_t i = 0; i < endpoints_.size(); ++i) {
    endpoints_[i]->accept_task = accept_loop(i);
    endpoints_[i]->accept_task.start();
  }
  return {};
}

std::shared_ptr<TurnShare[]> ServerImpl::turn_shares(const std::string& client) {
  std::erase_if(turn_shares_, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<TurnShare[]>& its = turn_shares_[client];
  std::shared_ptr<TurnShare[]> shares = its.lock();
  if (!shares) {
    shares.reset(new TurnShare[options_.reactors.size()]);  // make_shared would copy them
    its = shares;
  }
  return shares;
}

/// One for each device, on how many addresses it may listen.
LentQuota& ServerImpl::quota_of(vhca::Device& device) {
  for (const auto& endpoint : endpoints_)
    if (endpoint->device == &device && endpoint->lent != nullptr) return *endpoint->lent;
  lent_quotas_.push_back(std::make_unique<LentQuota>());
  lent_quotas_.back()->max = static_cast<size_t>(std::max(device.query().max_mr, 0)) / 2;
  return *lent_quotas_.back();
}

base::Status ServerImpl::add_endpoint(vhca::Device& device, const vhca::Address& listen) {
  for (auto& worker : workers_) BRAID_CHECK(worker->add_endpoint(device));
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->device = &device;
  BRAID_TRY(endpoint->listener, device.listen(home_, listen, kBacklog));
  endpoints_.push_back(std::move(endpoint));
  endpoints_.back()->lent = &quota_of(device);
  return {};
}

std::vector<vhca::Address> ServerImpl::addresses() const {
  std::vector<vhca::Address> all;
  for (const auto& endpoint : endpoints_) all.push_back(endpoint->listener->address());
  return all;
}

base::Task<void> ServerImpl::accept_loop(size_t endpoint) {
  uint64_t turn_ns = 0;  // of the last that was handled
  for (;;) {
    auto request = co_await endpoints_[endpoint]->listener->next();
    if (request.ok()) {
      // One in a turn: what is open is not to wait for a crowd that comes.
      if (home_.now_ns() == turn_ns) co_await home_.sleep_ns(0);
      turn_ns = home_.now_ns();
      handle(endpoint, std::move(*request));
      continue;
    }
    complaints_.warning("accepting a connection: {}", request.error().message());
    co_await home_.sleep_ns(kAcceptPauseNs);
  }
}

void ServerImpl::handle(size_t endpoint, std::unique_ptr<vhca::ConnectRequest> request) {
  auto parsed = wire::parse_conn_req(request->private_data());
  if (!parsed.ok()) {
    reject(*request, ECONNRESET, parsed.error().message());
    return;
  }
  if (parsed->cid == 0 && !connect_rate_.allow(address_of(request->peer_text()), home_.now_ns())) {
    reject(*request, EAGAIN, "paths from this address begin too fast");
    return;
  }
  Session* const session = newest(parsed->paths_uuid);
  if (keys_ != nullptr && !shows_proof(*parsed, session, *request)) return;
  const Admission admission = judge(*parsed, session, request->peer_text());
  if (admission.kind == Admission::Kind::kReject) {
    reject(*request, admission.sys_errno,
           fmt::format("connection {} of session {}", uint16_t{parsed->cid},
                       wire::to_string(parsed->paths_uuid)));
    return;
  }
  take(endpoint, *parsed, session, admission.kind, std::move(request));
}

Admission ServerImpl::judge(const wire::ConnReq& asked, Session* session,
                            const std::string& peer_text) const {
  KnownSession known = session != nullptr ? session->known(asked) : KnownSession();
  known.lives = lives_of(asked.paths_uuid);
  for (const auto& each : sessions_) {
    if (each->paths_uuid() == asked.paths_uuid) known.connections += each->connections();
  }
  return admit(asked, session != nullptr ? &known : nullptr,
               room_from(address_of(peer_text), nullptr));
}

void ServerImpl::take(size_t endpoint, const wire::ConnReq& asked, Session* session,
                      Admission::Kind kind, std::unique_ptr<vhca::ConnectRequest> request) {
  using Kind = Admission::Kind;
  if (kind == Kind::kJoin) {
    session->live_path(asked.sess_uuid)->join(asked, std::move(request));
    return;
  }
  if (keys_ != nullptr) return take_unproven(endpoint, asked, session, kind, std::move(request));
  if (kind != Kind::kPath && !make_half_open_room(asked.cid_num, nullptr)) {
    reject(*request, EBUSY, "too many clients that have not opened their session yet");
    return;
  }
  auto pd = device(endpoint).alloc_pd();
  if (!pd.ok()) {
    reject(*request, ENOMEM, pd.error().message());
    return;
  }
  if (kind == Kind::kReplace) session->close("its client came back");
  if (kind == Kind::kNew || kind == Kind::kReplace) {
    session = &add_session(std::make_unique<Session>(*this, asked, request->peer_text(), false));
  }
  Path* const former = session->live_path(asked.sess_uuid);
  Path& path = session->add_path(endpoint, std::move(*pd), asked, request->peer_text());
  if (former != nullptr) former->close("its client made it anew");
  path.join(asked, std::move(request));
}

void ServerImpl::reject(vhca::ConnectRequest& request, int sys_errno, const std::string& why) {
  wire::ConnRsp answer;
  answer.error = static_cast<uint16_t>(-sys_errno);
  ++statistics_.connects_refused;
  complain(request.peer_text(),
           fmt::format("{} refused with errno {}: {}", request.peer_text(), sys_errno, why));
  request.reject(wire::bytes_of(answer));
}

Session* ServerImpl::newest(const wire::Uuid& paths_uuid) {
  for (auto it = sessions_.rbegin(); it != sessions_.rend(); ++it) {
    if ((*it)->paths_uuid() == paths_uuid && (*it)->proven()) return it->get();
  }
  return nullptr;
}

size_t ServerImpl::lives_of(const wire::Uuid& paths_uuid) const {
  const auto its = [&](const auto& session) {
    return session->paths_uuid() == paths_uuid && session->proven();
  };
  return static_cast<size_t>(std::count_if(sessions_.begin(), sessions_.end(), its));
}

size_t ServerImpl::proven_sessions() const {
  const auto proven = [](const auto& session) { return session->proven(); };
  return static_cast<size_t>(std::count_if(sessions_.begin(), sessions_.end(), proven));
}

ServerStatistics ServerImpl::statistics() const {
  ServerStatistics statistics = statistics_;
  statistics.sessions = proven_sessions();
  statistics.unproven = unproven().size();
  for (const auto& worker : workers_) {
    statistics.polls += worker->polls();
    statistics.turn_clients += worker->clients();
  }
  return statistics;
}

bool ServerImpl::has_predecessor(const Session& session) const {
  for (const auto& other : sessions_) {
    if (other.get() == &session) return false;
    if (other->paths_uuid() == session.paths_uuid() && other->proven()) return true;
  }
  return false;
}

Session& ServerImpl::add_session(std::unique_ptr<Session> session) {
  sessions_.push_back(std::move(session));
  session_count_.store(sessions_.size(), std::memory_order_relaxed);
  return *sessions_.back();
}

/// The session may be in the middle of a call, so it goes in the next turn.
void ServerImpl::session_ended(Session& session) {
  home_.post([this, alive = std::weak_ptr<char>(alive_), ended = &session] {
    if (alive.expired()) return;
    remember_left_behind(*ended);
    if (KeptSession kept = ended->kept_answers(); !kept.answers.empty()) {
      kept_answers_.keep(std::move(kept));
    }
    std::erase_if(sessions_, [ended](const auto& each) { return each.get() == ended; });
    session_count_.store(sessions_.size(), std::memory_order_relaxed);
    changed_->notify_all();
  });
}

void ServerImpl::remember_left_behind(const Session& session) {
  std::erase_if(left_behind_, [](const LeftBehind& each) { return each.memory.expired(); });
  for (const auto& memory : session.left_behind()) {
    if (!memory.expired()) left_behind_.push_back({address_of(session.peer_text()), memory});
  }
}

std::vector<ServerSession*> ServerImpl::sessions() {
  std::vector<ServerSession*> open;
  for (const auto& session : sessions_) {
    if (session->opened()) open.push_back(session.get());
  }
  return open;
}

base::Task<void> ServerImpl::stop() {
  (void)co_await stop_within(base::kNever);
}

base::Task<base::Status> ServerImpl::stop_within(uint64_t limit_ns) {
  const std::shared_ptr<base::Signal> changed = changed_;
  const uint64_t began_ns = home_.host().now_ns();
  const uint64_t deadline_ns =
      limit_ns < base::kNever - began_ns ? began_ns + limit_ns : base::kNever;
  base::Timer timer([](base::Timer& t) { static_cast<base::Signal*>(t.context)->notify_all(); },
                    changed.get());
  if (deadline_ns != base::kNever) home_.schedule(timer, deadline_ns);
  begin_stop();
  while (!sessions_.empty() || !workers_stopping_ || stops_due_ > 0) {
    if (sessions_.empty() && !workers_stopping_) {
      stop_workers();
      continue;
    }
    if (home_.host().now_ns() >= deadline_ns) {
      co_return base::make_error(base::Errc::kTimedOut,
                                 "the server has not stopped after {} ms: {}",
                                 limit_ns / base::kMillisecond, holdups());
    }
    co_await changed->wait();
  }
  co_return base::Status();
}

void ServerImpl::begin_stop() {
  if (std::exchange(stopping_, true)) return;
  for (const auto& endpoint : endpoints_) {
    endpoint->accept_task = {};
    endpoint->listener.reset();
  }
  for (const auto& session : sessions_) session->close("the server stops");
}

void ServerImpl::stop_workers() {
  workers_stopping_ = true;
  stops_due_ = workers_.size();
  for (const auto& worker : workers_) {
    worker->stop([this] {
      home_.post([this, alive = std::weak_ptr<char>(alive_)] {
        if (alive.expired()) return;
        --stops_due_;
        changed_->notify_all();
      });
    });
  }
}

std::string ServerImpl::holdups() const {
  if (sessions_.empty()) return fmt::format("{} reactors have not answered", stops_due_);
  std::string text;
  for (const auto& session : sessions_) {
    text += fmt::format("{}{}", text.empty() ? "" : "; ", session->holdup());
  }
  return text;
}

}  // namespace server
}  // namespace braid::trs
