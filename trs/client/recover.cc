// Session: beginning incarnations, ending them and beginning again.
#include <algorithm>
#include <cerrno>

#include "trs/client/domain.h"
#include "trs/client/session.h"

namespace braid::trs::client {

using base::Errc;
using base::make_error;

base::Task<base::Status> Session::start() {
  base::Status status = co_await first_attempts();
  if (!status.ok()) {
    closing_ = true;
    co_await fence_all();
    co_await stop_all();
    for (const auto& path : paths_) path->close();
    closed_ = dead_ = true;
    co_return status;
  }
  maintain_task_ = maintain();
  maintain_task_.start();
  co_return base::Status();
}

/// Each path once; the first that works begins the session.
base::Task<base::Status> Session::first_attempts() {
  base::Status status;
  for (size_t i = 0; i < paths_.size(); ++i) {
    Path& path = *paths_[i];
    status = co_await path.attempt(true);
    if (status.ok() && path.lost()) status = path.why();
    if (status.ok()) {
      go_up(path);
      co_return status;
    }
    const base::Error why = status.error();
    path.lose(why);
    co_await path.fenced();
    path.mark_down(why);
    status = why.with("connecting to {}", path.text());
  }
  co_return status;
}

/// Runs as long as the session: waits for the loss of the last path, begins again.
base::Task<void> Session::maintain() {
  for (;;) {
    alive_incarnation_ = true;
    for (size_t i = 0; i < paths_.size(); ++i) {
      if (paths_[i]) paths_[i]->start_keeping();
    }
    while (any_connected() && !closing_) co_await changed_->wait();
    if (!closing_) user_.disconnected(*why_);
    co_await end_incarnation();
    if (closing_) break;
    user_.requests_returned();
    const bool up_again = co_await reconnect();  // apart: g++ 12 breaks `if (co_await ...)`
    if (up_again) continue;
    if (!closing_) be_lost();
    while (!closing_) co_await changed_->wait();
    break;
  }
  home_.cancel(give_up_timer_);
  home_.cancel(lost_timer_);
  co_await fence_all();
  co_await take_back_all();
  co_await stop_all();
  closed_ = true;
  wake();
}

/// From here on nothing of it is read, written or answered.
base::Task<void> Session::end_incarnation() {
  alive_incarnation_ = false;
  ending_ = true;
  for (const auto& path : paths_) {
    if (path) path->stop_keeping();
  }
  co_await fence_all();
  epoch_ = 0;
  sequenced_ = false;
  co_await take_back_all();
  ending_ = false;
  wake();
}

/// Tries until a path is up and its user had its turn. False: the session is being closed, or lost.
base::Task<bool> Session::reconnect() {
  at_once_ = false;
  unsigned rounds = 0;
  size_t tried = 0;
  for (;;) {
    // A round of all paths, then a pause.
    if (tried == 0) co_await back_off(rounds++, at_once_);
    at_once_ = false;
    if (++tried >= usable_paths()) tried = 0;
    if (closing_ || lost_) co_return false;
    Path* const path = next_path();
    if (path == nullptr) {
      why_ = make_error(Errc::kCanceled, "all paths are disconnected by their operator");
      co_await changed_->wait();
      continue;
    }
    base::Status status = co_await begin_by(*path);
    if (status.ok()) co_return true;
    if (closing_) co_return false;
    if (!lost_) why_ = status.error();
    if (status.code() == Errc::kNoMemory && home_.host().mutant("shortage-final")) {
      while (!closing_) co_await changed_->wait();
      co_return false;
    }
  }
}

base::Task<base::Status> Session::begin_by(Path& path) {
  path.reset();
  beginning_ = &path;
  base::Status status = co_await try_to_begin(path);
  beginning_ = nullptr;
  wake();
  co_return status;
}

base::Task<base::Status> Session::try_to_begin(Path& path) {
  base::Status status = co_await path.attempt(true);
  if (status.ok() && !path.lost()) {
    path.mark_connected();
    status = co_await users_turn();
    if (status.ok() && !path.lost()) {
      go_up(path);
      user_.restored();
      co_return status;
    }
    const base::Error why = status.ok() ? path.why() : status.error();
    co_await turn_failed(why);
    co_return why;
  }
  const base::Error why = status.ok() ? path.why() : status.error();
  path.lose(why);
  co_await path.fenced();
  if (!closing_) path.mark_down(why);
  co_await take_back_all();
  co_return why;
}

/// For its user this is the loss of a path like any other: it may have come to rely on it.
base::Task<void> Session::turn_failed(base::Error why) {
  for (const auto& path : paths_) {
    if (path) path->lose(why);
  }
  if (!closing_) {
    user_.disconnected(why);
    if (gave_up_) give_up_now();
  }
  co_await end_incarnation();
  if (!closing_) user_.requests_returned();
}

/// What its user submits meanwhile is held, however long there was no path.
base::Task<base::Status> Session::users_turn() {
  users_turn_ = true;
  if (gave_up_) refuse_all(Errc::kOk);
  base::Status status = co_await user_.reconnected();
  users_turn_ = false;
  co_return status;
}

/// Requests flow from here on.
void Session::go_up(Path& path) {
  usable_ = true;
  gave_up_ = false;
  lost_ = false;
  home_.cancel(give_up_timer_);
  home_.cancel(lost_timer_);
  path.go_up();
  may_have_lent_ = may_have_lent_ || path.map()->lends;
  log_.info("path to {} up: {} permits of {} bytes", path.text(), limits_.queue_depth,
            limits_.max_io_bytes);
}

void Session::set_incarnation(const PathMap& map) {
  if (!map.keeps_answers || !wire::follows_epoch(map.epoch, last_epoch_)) ++lineage_;
  epoch_ = last_epoch_ = map.epoch;
  sequenced_ = map.sequenced;
}

/// With several paths one that does not answer must not hold up the others for long.
uint64_t Session::attempt_timeout_ns() const {
  const uint64_t whole_ns = options_.reconnect.attempt_timeout_ns;
  const size_t paths = usable_paths();
  return paths < 2 ? whole_ns : std::max(whole_ns / paths, base::kSecond);
}

void Session::still_waits(base::Error why) {
  log_.warning("{}", why.message());
  why_ = std::move(why);
}

uint32_t Session::shared_features(const wire::ConnRsp& granted) const {
  if (granted.braid_magic != wire::kBraidMagic) return 0;
  return wire::usable_features(granted.braid_features & features());
}

/// By the first grant, whatever a later one says: there is an answer slot for each of those.
PermitPlan Session::permit_plan(const wire::ConnRsp& granted) const {
  PermitPlan plan{limits_.queue_depth, limits_.admin_permits};
  plan.lends = queues_.size() > 2 && (shared_features(granted) & wire::kFeatureLentPermits) != 0;
  return plan;
}

/// The limits of the first connect hold for good: requests are held that were made for them. What
/// the server is and can holds for an incarnation: who answers a path that only joins may be
/// anybody.
base::Status Session::accept_limits(const wire::ConnRsp& granted, bool begins) {
  const uint32_t features = shared_features(granted);
  const uint32_t admin_now = admin_permits(granted, features);
  const uint32_t for_admin = limits_known_ ? limits_.admin_permits : admin_now;
  if (granted.queue_depth < for_admin + options_.reactors.size()) {
    const uint32_t depth = uint16_t{granted.queue_depth};
    return make_error(Errc::kNotSupported,
                      "the server grants {} permits, too few for {} reactors: it has them for {}",
                      depth, options_.reactors.size(), depth - std::min(depth, for_admin));
  }
  if (may_have_lent_ && (features & wire::kFeatureLentPermits) == 0) {
    return make_error(Errc::kNotSupported,
                      "the server came back as a version that knows no lent permits, where this "
                      "session of {} reactors may have lent some",
                      options_.reactors.size());
  }
  if (begins) {
    limits_.braid_peer = granted.braid_magic == wire::kBraidMagic;
    limits_.features = features;
    limits_.notices = (features & wire::kFeatureNotices) != 0;
  }
  if (!limits_known_) {
    limits_.queue_depth = granted.queue_depth;
    limits_.admin_permits = for_admin;
    limits_.max_io_bytes = granted.max_io_size;
    BRAID_CHECK(make_memory());
    limits_known_ = true;
    return {};
  }
  if (for_admin > 1 && admin_now == 1 && granted.queue_depth >= limits_.queue_depth) {
    return make_error(Errc::kNotSupported,
                      "the server came back as a version that knows one admin permit only, where "
                      "this session has {}",
                      for_admin);
  }
  if (granted.queue_depth < limits_.queue_depth || granted.max_io_size < limits_.max_io_bytes) {
    return make_error(Errc::kNotSupported,
                      "the server came back with smaller limits: {} permits of {} bytes, where "
                      "this session was granted {} of {}",
                      uint16_t{granted.queue_depth}, uint32_t{granted.max_io_size},
                      limits_.queue_depth, limits_.max_io_bytes);
  }
  return {};
}

wire::InfoReq Session::info_request(const wire::ConnRsp& granted, size_t device) const {
  wire::InfoReq request;
  std::copy(options_.session_name.begin(), options_.session_name.end(),
            request.session_name.begin());
  if (granted.braid_magic != wire::kBraidMagic) {
    // Linux's server makes a folder of its sysfs of the name, and refuses these.
    const auto refused = [](char c) { return c == '.' || c == '/'; };
    std::replace_if(request.session_name.begin(), request.session_name.end(), refused, '-');
  }
  if ((shared_features(granted) & wire::kFeatureAdminPermits) != 0) {
    request.braid_admin_permits = static_cast<uint8_t>(limits_.admin_permits);
  }
  if ((shared_features(granted) & wire::kFeatureAnswerSlots) != 0) {
    request.braid_answers_address = reinterpret_cast<uint64_t>(answers_->data());
    request.braid_answers_key = Memory::rkey_of(*answers_mr_, device);
  }
  return request;
}

base::Task<void> Session::fence_all() {
  for (size_t i = 0; i < paths_.size(); ++i) {
    if (!paths_[i]) continue;
    co_await paths_[i]->fenced();
    if (!closing_ && why_) paths_[i]->mark_down(paths_[i]->why());
  }
}

base::Task<void> Session::take_back_all() {
  for (auto& queue : queues_) {
    ++returns_due_;
    queue->take_back();
  }
  while (returns_due_ > 0) co_await changed_->wait();
}

base::Task<void> Session::stop_all() {
  for (auto& queue : queues_) {
    ++stops_due_;
    queue->stop();
  }
  while (stops_due_ > 0) co_await changed_->wait();
}

/// The pause before the next attempt.
base::Task<void> Session::back_off(unsigned attempts, const bool& at_once) {
  const ReconnectOptions& options = options_.reconnect;
  const uint64_t doubled_ns = options.delay_min_ns << std::min(attempts, 20u);
  const uint64_t delay_ns = std::min(doubled_ns, options.delay_max_ns);
  uint64_t chance = 0;
  home_.host().random(std::as_writable_bytes(std::span(&chance, 1)));
  const uint64_t until_ns = home_.host().now_ns() + delay_ns + chance % (delay_ns / 4 + 1);
  base::Timer timer([](base::Timer& t) { static_cast<base::Signal*>(t.context)->notify_all(); },
                    changed_.get());
  home_.schedule(timer, until_ns);
  while (!closing_ && !lost_ && !at_once && home_.host().now_ns() < until_ns)
    co_await changed_->wait();
}

}  // namespace braid::trs::client
