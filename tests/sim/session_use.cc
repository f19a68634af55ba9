#include "tests/sim/session_use.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/checkers/permits.h"
#include "tests/sim/server.h"

namespace braid::sim {

SessionUse::SessionUse(base::sim::SimHost& host, std::vector<base::Reactor*> reactors,
                       vhca::Device& device, vhca::Device* second, Judge& judge, Board& board,
                       const Plan& plan, size_t client, size_t server, uint32_t features,
                       uint64_t seed)
    : context_{host, *reactors.front(), judge, board, plan, client, base::sim::SimRandom(seed)},
      reactors_(std::move(reactors)),
      device_(device),
      second_device_(second),
      server_(server),
      features_(features),
      paths_taken_seen_(board.paths_taken(client)) {
  for (size_t d = 0; d < plan.devices.size(); ++d)
    if (plan.devices[d].server == server && plan.devices[d].used_by(client))
      uses_.push_back(std::make_unique<DeviceUse>(context_, d));
  context_.reactor.post([this] {
    life_ = live();
    life_.start();
  });
}

base::Task<void> SessionUse::live() {
  for (;;) {
    co_await open();
    for (auto& use : uses_) use->begin(*session_, [this] { return made(); });
    while (!must_close()) {
      if (paths_taken_seen_ != context_.board.paths_taken(context_.client)) co_await take_path();
      co_await context_.reactor.sleep_ns(nap_ns());
    }
    co_await close();
    if (context_.activity == Activity::kClose) break;
    co_await context_.reactor.sleep_ns(nap_ns());
  }
  closed_ = true;
}

base::Task<void> SessionUse::open() {
  const ServerPlan& server = context_.plan.servers[server_];
  for (;;) {
    bnbd::RemoteSessionOptions options;
    options.transport.session_name = context_.me().name;
    options.transport.server = {server.ip, kServerPort};
    options.transport.features = features_;
    options.transport.reactors = reactors_;
    options.transport.policy = context_.me().policy;
    options.transport.reconnect.delay_max_ns = context_.me().reconnect_max_ns;
    if (server.asks_for_keys()) options.transport.key = key_of(context_.me().name);
    options.copy_pool_bytes = 512 << 10;
    options.touch_buffers = false;  // takes real time, and no virtual
    if (second_device_ != nullptr) {
      options.paths.push_back({second_device_, {server.second_ip, kServerPort}});
    }
    auto session = co_await bnbd::RemoteSession::open(device_, options);
    if (session.ok()) {
      session_ = std::move(*session);
      remaps_seen_ = context_.board.session_remaps(context_.client);
      co_return;
    }
    last_refusal_ = session.error().message();
    co_await context_.reactor.sleep_ns(nap_ns());
  }
}

/// The second one: down for a while, or removed and added again.
base::Task<void> SessionUse::take_path() {
  paths_taken_seen_ = context_.board.paths_taken(context_.client);
  if (second_device_ == nullptr) co_return;
  const vhca::Address server{context_.plan.servers[server_].second_ip, kServerPort};
  const std::vector<trs::PathStatus> paths = session_->paths();
  const auto path = std::find_if(paths.begin(), paths.end(), [&](const trs::PathStatus& status) {
    return status.server.ip == server.ip;
  });
  if (path == paths.end()) co_return;
  const size_t id = path->id;
  const uint64_t made_by_it = reactors_.size() * (2 + path->reconnects);
  if (session_->statistics().in_flight != 0) ++context_.board.counters.paths_taken;
  if (context_.random.one_in(2)) {
    (void)session_->disconnect_path(id);
    co_await context_.reactor.sleep_ns(nap_ns());
    (void)session_->reconnect_path(id);
    co_return;
  }
  const base::Status removed = co_await session_->remove_path(id);
  if (removed.ok()) made_by_removed_ += made_by_it;
  co_await context_.reactor.sleep_ns(nap_ns());
  const bnbd::RemotePath again{second_device_, server};
  if (!removed.ok()) co_return;
  // Its operator tries again when there was no memory for it.
  while (session_->add_path(again).code() == base::Errc::kNoMemory)
    co_await context_.reactor.sleep_ns(nap_ns());
}

/// At most: each path has one for each reactor, and gets others when it or the session comes back.
UntoldLosses::Ways SessionUse::made() const {
  const std::vector<trs::PathStatus> paths = session_->paths();
  uint64_t times = session_->statistics().reconnects * paths.size();
  for (const trs::PathStatus& path : paths) times += 1 + path.reconnects;
  UntoldLosses::Ways ways;
  ways.connections = made_by_removed_ + reactors_.size() * times;
  ways.there = reactors_.size() * paths.size();
  return ways;
}

bool SessionUse::must_close() {
  if (context_.activity == Activity::kClose) return true;
  if (session_->state() == trs::SessionState::kLost) {
    ++context_.board.counters.sessions_lost;
    return true;
  }
  if (remaps_seen_ == context_.board.session_remaps(context_.client)) return false;
  if (session_->statistics().in_flight + session_->statistics().held != 0)
    ++context_.board.counters.sessions_remapped;
  return true;
}

base::Task<void> SessionUse::close() {
  check_no_path_lost();
  const bool leave_open = context_.activity == Activity::kWork && context_.random.one_in(2);
  for (auto& use : uses_) use->end(leave_open);
  while (!std::all_of(uses_.begin(), uses_.end(), [](const auto& use) { return use->ended(); }))
    co_await context_.reactor.sleep_ns(base::kMillisecond);
  co_await session_->close();
  for (auto& use : uses_) {
    co_await use->drained();
    use->drop();
  }
  session_.reset();
}

void SessionUse::set_activity(Activity activity) {
  context_.reactor.post([this, activity] {
    context_.activity = activity;
    for (auto& use : uses_) use->activity_changed();
  });
}

bool SessionUse::at_rest() const {
  return session_ != nullptr &&
         std::all_of(uses_.begin(), uses_.end(), [](const auto& use) { return use->at_rest(); });
}

bool SessionUse::verified() const {
  return std::all_of(uses_.begin(), uses_.end(), [](const auto& use) { return use->verified(); });
}

bool SessionUse::reconnecting() const {
  return session_ != nullptr && session_->state() == trs::SessionState::kReconnecting;
}

bool SessionUse::connected() const {
  return session_ != nullptr && session_->state() == trs::SessionState::kConnected;
}

/// In a round without faults that would cost one.
void SessionUse::check_no_path_lost() {
  if (!context_.plan.gentle) return;
  const trs::ClientStatistics statistics = session_->statistics();
  uint64_t losses = statistics.reconnects;
  for (const trs::PathStatus& path : session_->paths()) losses += path.reconnects;
  if (losses + statistics.resent == 0) return;
  context_.judge.violations().add(
      "{} to {}: lost a path, {} times, with {} requests, by faults that the hardware bridges",
      context_.me().name, context_.plan.servers[server_].name, losses, statistics.resent);
}

void SessionUse::check_permits() {
  check_no_path_lost();
  const trs::ClientStatistics statistics = session_->statistics();
  const std::string name =
      fmt::format("{} to {}", context_.me().name, context_.plan.servers[server_].name);
  if (statistics.in_flight != 0 || statistics.held != 0)
    context_.judge.violations().add("{}: {} requests in flight and {} held at rest", name,
                                    statistics.in_flight, statistics.held);
  check_permits_at_rest(context_.judge.violations(), name, statistics.permits,
                        statistics.permits_free);
}

std::string SessionUse::explain() const {
  if (session_ == nullptr)
    return fmt::format("{}: no session: {}", context_.me().name, last_refusal_);
  std::string text = fmt::format("{}: {}", context_.me().name, session_->explain());
  for (const auto& use : uses_) text += fmt::format("; {}", use->explain());
  return text;
}

}  // namespace braid::sim
