// Session: making the path, losing it and making it again.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trs/client/session.h"

namespace braid::trs::client {

using base::Errc;
using base::make_error;

base::Task<base::Status> Session::start() {
  base::Status status = co_await attempt();
  if (status.ok() && lost_) status = *why_;
  if (!status.ok()) {
    path_.set(ClientPathState::kConnectingErr, "first attempt failed");
    path_.set(ClientPathState::kClosing, "first attempt failed");
    co_await fence_all();
    co_await stop_all();
    path_.set(ClientPathState::kClosed, "first attempt failed");
    path_.set(ClientPathState::kDead, "first attempt failed");
    co_return status.error().with("connecting to {}:{}", options_.server.ip, options_.server.port);
  }
  go_up();
  maintain_task_ = maintain();
  maintain_task_.start();
  co_return base::Status();
}

/// Runs as long as the session: waits for the loss of the path, makes it again.
base::Task<void> Session::maintain() {
  for (;;) {
    while (!lost_) co_await changed_->wait();
    if (!closing_) {
      path_.set(ClientPathState::kReconnecting, why_->message());
      user_.disconnected(*why_);
    }
    co_await fence_all();
    if (closing_) break;
    user_.requests_returned();
    const bool up_again = co_await reconnect();  // apart: g++ 12 breaks `if (co_await ...)`
    if (!up_again) break;
  }
  path_.set(ClientPathState::kClosing, "closed by its user");
  home_.cancel(give_up_timer_);
  co_await fence_all();
  co_await stop_all();
  path_.set(ClientPathState::kClosed, "all queues stopped");
  wake();
}

/// Tries until the path is up and its user had its turn. False: the session is being closed.
base::Task<bool> Session::reconnect() {
  for (unsigned attempts = 0;; ++attempts) {
    co_await back_off(attempts);
    if (closing_) co_return false;
    path_.set(ClientPathState::kConnecting, "next attempt");
    lost_ = false;
    base::Status status = co_await attempt();
    if (status.ok() && !lost_) {
      path_.set(ClientPathState::kConnected, "info exchange done");
      status = co_await users_turn();
      if (status.ok() && !lost_) {
        go_up();
        user_.restored();
        co_return true;
      }
      if (status.ok()) status = *why_;
      const base::Error why = status.error();
      co_await turn_failed(why);
    } else {
      if (status.ok()) status = *why_;
      lose(status.error());
      path_.set(ClientPathState::kConnectingErr, status.error().message());
      if (!closing_) path_.set(ClientPathState::kReconnecting, "attempt undone");
    }
    co_await fence_all();
    if (closing_) co_return false;
    why_ = status.error();
  }
}

/// For its user this is the loss of a path like any other: it may have come to rely on it.
base::Task<void> Session::turn_failed(base::Error why) {
  lose(why);
  if (!closing_) {
    path_.set(ClientPathState::kReconnecting, why.message());
    user_.disconnected(why);
    if (gave_up_) give_up_now();
  }
  co_await fence_all();
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
void Session::go_up() {
  if (path_.is(ClientPathState::kConnecting)) {
    path_.set(ClientPathState::kConnected, "info exchange done");
  }
  usable_ = true;
  gave_up_ = false;
  home_.cancel(give_up_timer_);
  for (size_t cid = 1; cid < queues_.size(); ++cid) queues_[cid]->resume(map_);
  log_.info("path to {}:{} up: {} permits of {} bytes", options_.server.ip, options_.server.port,
            limits_.queue_depth, limits_.max_io_bytes);
}

base::Task<base::Status> Session::attempt() {
  const uint64_t deadline_ns = home_.host().now_ns() + options_.reconnect.attempt_timeout_ns;
  base::Status status = co_await make_connections(deadline_ns);
  if (!status.ok()) co_return status;
  status = co_await exchange_info(deadline_ns);
  if (!status.ok()) co_return status;
  queues_.front()->resume(map_);  // admin requests work from here on
  watch_peer();
  co_return status;
}

base::Task<base::Status> Session::make_connections(uint64_t deadline_ns) {
  ++recon_cnt_;
  for (auto& queue : queues_) {
    ConnectOutcome outcome = co_await connect_queue(*queue, deadline_ns);
    if (outcome.rejected_errno == ENXIO && known_to_server_ && queue->cid() == 0 && !lost_) {
      // It was restarted, or has forgotten us. No other path could be meant, so begin anew.
      known_to_server_ = false;
      outcome = co_await connect_queue(*queue, deadline_ns);
    }
    if (!outcome.status.ok()) co_return outcome.status;
    if (lost_) co_return *why_;
    if (queue->cid() == 0) {
      base::Status status = accept_limits(outcome.granted);
      if (!status.ok()) co_return status;
    } else if (std::memcmp(&outcome.granted, &granted_, sizeof(granted_)) != 0) {
      co_return make_error(Errc::kProtocol, "the server grants connection {} other limits",
                           queue->cid());
    }
  }
  known_to_server_ = true;
  co_return base::Status();
}

base::Task<ConnectOutcome> Session::connect_queue(Queue& queue, uint64_t deadline_ns) {
  wire::ConnReq request;
  request.cid = queue.cid();
  request.cid_num = static_cast<uint16_t>(queues_.size());
  request.recon_cnt = recon_cnt_;
  request.sess_uuid = sess_uuid_;
  request.paths_uuid = paths_uuid_;
  request.flags = known_to_server_ ? uint8_t{0} : wire::kFirstConn;
  request.braid_magic = wire::kBraidMagic;
  request.braid_features = wire::kFeatures;
  const uint64_t now_ns = home_.host().now_ns();
  const uint64_t timeout_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 1;
  outcome_.reset();
  const PermitPlan plan =
      queue.cid() == 0 ? PermitPlan{} : PermitPlan{granted_.queue_depth, limits_.admin_permits};
  queue.connect(request, plan, timeout_ns);
  while (!outcome_) co_await changed_->wait();
  ConnectOutcome outcome = std::move(*outcome_);
  co_return outcome;
}

/// The limits of the first connect hold for good: requests are held that were made for them.
base::Status Session::accept_limits(const wire::ConnRsp& granted) {
  granted_ = granted;
  const uint32_t for_admin = limits_known_ ? limits_.admin_permits : admin_permits(granted);
  if (granted.queue_depth < for_admin + options_.reactors.size()) {
    return make_error(Errc::kNotSupported, "the server grants {} permits, too few for {} reactors",
                      uint16_t{granted.queue_depth}, options_.reactors.size());
  }
  if (!limits_known_) {
    limits_known_ = true;
    limits_.queue_depth = granted.queue_depth;
    limits_.admin_permits = for_admin;
    limits_.max_io_bytes = granted.max_io_size;
    limits_.braid_peer = granted.braid_magic == wire::kBraidMagic;
    limits_.features = granted.braid_features & wire::kFeatures;
    return make_admin_slots();
  }
  if (for_admin > 1 && admin_permits(granted) == 1 && granted.queue_depth >= limits_.queue_depth) {
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

base::Task<base::Status> Session::exchange_info(uint64_t deadline_ns) {
  wire::InfoReq request;
  std::copy(options_.session_name.begin(), options_.session_name.end(),
            request.session_name.begin());
  if ((granted_.braid_features & wire::kFeatureAdminPermits) != 0) {
    request.braid_admin_permits = static_cast<uint8_t>(limits_.admin_permits);
  }
  info_.reset();
  if (!queues_.front()->send_message(wire::bytes_of(request))) {
    co_return make_error(Errc::kDisconnected, "connection 0 was lost before the info exchange");
  }
  while (!info_ && !lost_) {
    if (home_.host().now_ns() >= deadline_ns) {
      co_return make_error(Errc::kTimedOut,
                           "the server did not answer the info request (it may still be busy with "
                           "requests of the former path)");
    }
    co_await changed_before(deadline_ns);
  }
  if (lost_) co_return *why_;
  co_return *info_;
}

base::Task<void> Session::fence_all() {
  if (!lost_) lose(make_error(Errc::kDisconnected, "the attempt failed"));
  while (fences_due_ > 0) co_await changed_->wait();
}

base::Task<void> Session::stop_all() {
  for (auto& queue : queues_) {
    ++stops_due_;
    queue->stop();
  }
  while (stops_due_ > 0) co_await changed_->wait();
}

/// Exponential, with up to a quarter on top so that many clients do not come back at one instant.
base::Task<void> Session::back_off(unsigned attempts) {
  const ReconnectOptions& options = options_.reconnect;
  const uint64_t doubled_ns = options.delay_min_ns << std::min(attempts, 20u);
  const uint64_t delay_ns = std::min(doubled_ns, options.delay_max_ns);
  uint64_t chance = 0;
  home_.host().random(std::as_writable_bytes(std::span(&chance, 1)));
  const uint64_t until_ns = home_.host().now_ns() + delay_ns + chance % (delay_ns / 4 + 1);
  while (!closing_ && home_.host().now_ns() < until_ns) co_await changed_before(until_ns);
}

/// Until something changed, or the time has come.
base::Task<void> Session::changed_before(uint64_t deadline_ns) {
  home_.schedule(wake_timer_, deadline_ns);
  co_await changed_->wait();
  home_.cancel(wake_timer_);
}

}  // namespace braid::trs::client
