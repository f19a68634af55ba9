// Queue: life cycle and polling. The data path is in submit.cc.
#include "trs/client/queue.h"

#include <algorithm>
#include <utility>

#include "trs/client/path.h"
#include "trs/client/session.h"

namespace braid::trs::client {

using base::Errc;

Queue::Queue(Session& session, uint16_t cid, uint16_t cid_num, base::Reactor& reactor)
    : session_(session),
      reactor_(reactor),
      cid_(cid),
      cid_num_(cid_num),
      service_(cid == 0),
      policy_(session.policy()),
      ask_timer_(&time_to_ask, this) {}

Queue::~Queue() {
  for (auto& share : shares_) {
    if (share && share->channel) reactor_.io().unwatch(share->watch);
  }
}

template <typename Function>
void Queue::run_now_or_here(Function function) {
  if (&reactor_ == &session_.home()) {
    function();
  } else {
    run_here(std::move(function));
  }
}

void Queue::add_lane(size_t number, Path& path, LaneStatistics& statistics) {
  run_now_or_here([this, number, &path, &statistics] {
    if (lanes_.size() <= number) lanes_.resize(number + 1);
    lanes_[number] = std::make_unique<Lane>(*this, path, statistics);
  });
}

void Queue::remove_lane(size_t path) {
  run_here([this, path] {
    const auto& lane = lanes_[path];
    take_from(*lane);
    const LaneStatistics& counts = lane->statistics;
    base::add_shared(statistics_.reads, counts.reads.get());
    base::add_shared(statistics_.read_bytes, counts.read_bytes.get());
    base::add_shared(statistics_.writes, counts.writes.get());
    base::add_shared(statistics_.write_bytes, counts.write_bytes.get());
    base::add_shared(statistics_.messages_sent, counts.sent.get());
    base::add_shared(statistics_.messages_received, counts.received.get());
    Path& of = lane->path;
    lanes_[path].reset();
    of.post_home([&of] { of.lane_removed(); });
  });
}

void Queue::connect(size_t path, const wire::ConnReq& request, PermitPlan plan,
                    uint64_t timeout_ns) {
  run_here([this, path, request, plan, timeout_ns] {
    lanes_[path]->connect(request, plan, timeout_ns);
  });
}

base::Status Queue::prepare(size_t device, PermitPlan plan) {
  if (!watched_) {
    watched_ = true;
    reactor_.add(*this);
  }
  if (shares_.size() <= device) shares_.resize(device + 1);
  if (!shares_[device]) {
    vhca::Device& of = session_.domain().device(device);
    auto share = std::make_unique<Share>();
    share->td = of.create_td();
    BRAID_TRY(share->channel, of.create_comp_channel());
    share->watch.ready = &channel_ready;
    share->watch.context = share->channel.get();
    reactor_.io().watch(share->channel->event(), share->watch);
    shares_[device] = std::move(share);
  }
  if (!permits_ && plan.queue_depth > 0) make_permits(plan);
  // Anew for each server: one that came back as a later version may lend where none did.
  if (permits_)
    in_flight_max_ = plan.lends ? static_cast<uint32_t>(table_.size()) - plan.admin : share_;
  return {};
}

void Queue::make_permits(PermitPlan plan) {
  const uint32_t depth = service_ ? plan.admin : plan.queue_depth;
  permits_.emplace(depth);
  permits_->add_every(service_ ? 0 : cid_ - 1u, service_ ? 1 : cid_num_ - 1u,
                      service_ ? 0 : plan.admin);
  table_.resize(depth);
  share_ = permits_->size();
  debts_.resize(cid_num_);
}

void Queue::resume(size_t path, std::shared_ptr<const PathMap> map) {
  run_now_or_here([this, path, of_path = std::move(map)]() mutable {
    Lane& lane = *lanes_[path];
    lane.go_up(std::move(of_path));
    if (!lane.up()) return;
    if (lane.map().epoch != epoch_ || lane.map().lineage != lineage_) {
      begin_incarnation(lane.map());
    }
    lends_ = lane.map().lends && !service_;
    refuse_ = Errc::kOk;
    if (up_.empty() && was_up_) base::add_shared(statistics_.reconnects, 1);
    was_up_ = true;
    up_.push_back(&lane);
    wake();
    send_held();
  });
}

void Queue::lane_down(Lane& lane) {
  std::erase(up_, &lane);
}

/// Who waits for an admin request may be what the next path waits for: without one it ends at once.
void Queue::lane_fenced(Lane& lane) {
  if (!service_ || session_.connected_path() != nullptr) return;
  take_from(lane);
  while (!held_.empty()) end_request(*held_.front(), Errc::kDisconnected);
}

void Queue::watch_peer(size_t path, Watching watching) {
  run_here([this, path, watching] { lanes_[path]->watch_peer(watching); });
}

void Queue::fence(size_t path) {
  run_here([this, path] { lanes_[path]->begin_fence(); });
}

/// What is in flight there goes in front of what is held.
void Queue::take_from(Lane& lane) {
  base::IntrusiveList<ClientRequest> all;
  while (ClientRequest* request = lane.in_flight.pop_front()) {
    Slot& slot = table_[request->permit.index()];
    slot.request = nullptr;
    slot.lane = nullptr;
    lane.statistics.in_flight.subtract(1);
    base::add_shared(statistics_.held, 1);
    if (!service_ && refuse_ == Errc::kOk) base::add_shared(statistics_.resent, 1);
    all.push_back(*request);
  }
  all.take_all(held_);
  held_.take_all(all);
}

void Queue::fail_over(size_t path) {
  run_now_or_here([this, path] {
    Lane& lane = *lanes_[path];
    const uint64_t before = lane.statistics.in_flight.get();
    lane.statistics.failed_over.add(before);
    take_from(lane);
    plant_in_failover();
    if (refuse_ != Errc::kOk) refuse_held();
    // Without numbers an admin request might be done twice, and has an asker who can ask again.
    const bool once = up_.empty() || up_.front()->map().sequenced;
    while (service_ && !once && !held_.empty()) {
      end_request(*held_.front(), Errc::kDisconnected);
    }
    send_held();
  });
}

/// The planted bugs: what moves gets a new number, which the server may let pass, or another chunk.
void Queue::plant_in_failover() {
  const bool chunks = reactor_.host().mutant("chunk-reused");
  const bool numbers =
      reactor_.host().mutant("renumbered") || reactor_.host().mutant("sequence-unchecked");
  if (service_ || (!chunks && !numbers)) return;
  for (ClientRequest* request = held_.front(); request != nullptr; request = held_.next(*request)) {
    Permit other = chunks && request->sequence != 0 ? acquire() : Permit();
    if (chunks && !other) continue;
    request->sequence = 0;
    if (chunks) request->permit = std::move(other);
  }
}

void Queue::take_back() {
  run_here([this] {
    // The planted bug leaves one, so that the session still works.
    if (permits_ && !service_ && permits_->free_count() > 1 &&
        reactor_.host().mutant("permit-leak")) {
      (void)permits_->acquire();
    }
    for (const auto& lane : lanes_) {
      if (lane) take_from(*lane);
    }
    stop_lending();
    end_incarnation();
    while ((service_ || refuse_ != Errc::kOk) && !held_.empty()) {
      end_request(*held_.front(), refuse_ != Errc::kOk ? refuse_ : Errc::kDisconnected);
    }
    session_.post_home([&session = session_] { session.queue_returned(); });
  });
}

/// Nothing of it can be at the server, or come from it, any more.
void Queue::end_incarnation() {
  if (!reactor_.host().mutant("epoch-stale")) epoch_ = 0;
}

/// To a server that knows them requests go with the numbers that they had.
void Queue::begin_incarnation(const PathMap& map) {
  if (epoch_ == 0 || !reactor_.host().mutant("epoch-stale")) epoch_ = map.epoch;
  if (std::exchange(lineage_, map.lineage) == map.lineage) return;
  for (ClientRequest* request = held_.front(); request != nullptr; request = held_.next(*request)) {
    request->sequence = 0;
  }
}

void Queue::refuse(Errc status) {
  run_now_or_here([this, status] {
    refuse_ = status;
    if (status != Errc::kOk) refuse_held();
  });
}

void Queue::refuse_held() {
  while (!held_.empty()) end_request(*held_.front(), refuse_);
}

void Queue::set_policy(PathPolicy policy) {
  run_now_or_here([this, policy] { policy_ = policy; });
}

void Queue::stop() {
  run_here([this] {
    refuse_ = Errc::kCanceled;
    stopped_ = true;
    refuse_held();
    end_refused();
    watched_ = false;
    base::Poller::unlink();
    for (auto& share : shares_) {
      if (share) reactor_.io().unwatch(share->watch);
    }
    shares_.clear();
    session_.post_home([&session = session_] { session.queue_stopped(); });
  });
}

void Queue::channel_ready(base::Watch& watch) {
  auto& channel = *static_cast<vhca::CompChannel*>(watch.context);
  do {
    Connection::take_events(channel);
  } while (channel.more());  // a CQ for each path
}

bool Queue::poll() {
  bool did = false;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i]) did |= lanes_[i]->poll();
  }
  if (!up_.empty() && !held_.empty()) did |= send_held();
  if (!ending_.empty()) did |= end_refused();
  if (!waiters_.empty()) {
    did |= serve_waiters();
    ask_if_short();
  }
  if (returned_ > 0) pay_debts();
  if (did || has_work())
    wake();
  else
    rest();
  return did;
}

/// Beside what its lanes may find.
bool Queue::has_work() const {
  const bool waits = !up_.empty() && !held_.empty();
  return waits || !ending_.empty() || !waiters_.empty() || returned_ > 0;
}

/// However many sessions a reactor has, those that do nothing cost its turns nothing.
void Queue::rest() {
  bool dozes = false;
  for (const auto& lane : lanes_) {
    if (!lane || lane->rests()) continue;
    if (!lane->dozes()) return wake();
    dozes = true;
  }
  if (dozes && polled_seldom_) return;
  base::Poller::unlink();
  polled_seldom_ = dozes;
  if (dozes) reactor_.poll_seldom(*this);
}

/// Not asked while it rests: its connections have asked for a wake-up.
bool Queue::awaits() const {
  const auto owes = [](const auto& lane) { return lane && !lane->in_flight.empty(); };
  return std::any_of(lanes_.begin(), lanes_.end(), owes);
}

void Queue::begin_arm() {
  for (const auto& lane : lanes_) {
    if (lane) lane->arm();
  }
}

bool Queue::arm() {
  begin_arm();  // who has done something since is not armed any more
  reactor_.fence();
  return !poll();
}

bool Queue::send_message(size_t path, std::span<const std::byte> message) {
  return path < lanes_.size() && lanes_[path] && lanes_[path]->send_message(message);
}

bool Queue::probe(size_t path) {
  return path < lanes_.size() && lanes_[path] && lanes_[path]->probe();
}

std::string Queue::peer_text() const {
  for (const auto& lane : lanes_) {
    const std::string text = lane ? lane->peer_text() : std::string();
    if (!text.empty()) return text;
  }
  return {};
}

ClientStatistics Queue::statistics() const {
  ClientStatistics all = counts();
  for (const auto& lane : lanes_) {
    if (lane) lane->statistics.add_to(all);
  }
  return all;
}

ClientStatistics Queue::counts() const {
  using base::read_shared;
  ClientStatistics all;
  all.reads = read_shared(statistics_.reads);
  all.read_bytes = read_shared(statistics_.read_bytes);
  all.writes = read_shared(statistics_.writes);
  all.write_bytes = read_shared(statistics_.write_bytes);
  all.in_flight = read_shared(statistics_.in_flight);
  all.resent = read_shared(statistics_.resent);
  all.held = read_shared(statistics_.held);
  all.reconnects = read_shared(statistics_.reconnects);
  all.messages_sent = read_shared(statistics_.messages_sent);
  all.messages_received = read_shared(statistics_.messages_received);
  all.permits_lent = read_shared(statistics_.permits_lent);
  all.permits_borrowed = read_shared(statistics_.permits_borrowed);
  all.permits = permits();
  all.permits_free = permits_ ? permits_->free_count() : 0;
  return all;
}

}  // namespace braid::trs::client
