// Path: losing it and making it again while its incarnation lives. How it is made is in attempt.cc.
#include "trs/client/path.h"

#include "trs/client/session.h"

namespace braid::trs::client {

using base::Errc;
using base::kMillisecond;
using base::make_error;

Path::Path(Session& session, size_t number, const PathOptions& options)
    : session_(session),
      home_(session.home()),
      number_(number),
      options_(options),
      log_(home_.log().child("trs")),
      state_(ClientPathState::kConnecting, log_),
      uuid_(random_uuid(home_.host())) {
  for (size_t cid = 0; cid < session.queues(); ++cid) {
    statistics_.push_back(std::make_unique<LaneStatistics>());
    session.queue_of(cid).add_lane(number, *this, *statistics_.back());
  }
}

Path::~Path() = default;

std::string Path::text() const {
  return fmt::format("{}:{}", options_.server.ip, options_.server.port);
}

uint64_t Path::received_count() const {
  uint64_t sum = 0;
  for (const auto& lane : statistics_) sum += lane->received.get();
  return sum;
}

PathStatus Path::status() const {
  PathStatus status;
  status.id = number_;
  status.server = options_.server;
  status.device = session_.domain().device(options_.device).info().name;
  status.connected = connected();
  status.state = disabled_ && !connected() ? "disconnected by its operator"
                                           : std::string(to_string(state_.state()));
  if (why_ && !status.connected) status.why = why_->message();
  status.disconnected_by_operator = disabled_;
  status.unknown_there = unknown_there_ && !status.connected;
  status.reconnects = reconnects_;
  status.reconnects_failed = reconnects_failed_;
  for (const auto& lane : statistics_) {
    status.failed_over += lane->failed_over.get();
    status.connections.push_back(lane->read());
  }
  return status;
}

void Path::go_up() {
  if (state_.is(ClientPathState::kConnecting)) {
    state_.set(ClientPathState::kConnected, "info exchange done");
  }
  if (was_up_) ++reconnects_;
  was_up_ = true;
  shortage_told_ = false;
  for (size_t cid = 1; cid < session_.queues(); ++cid) {
    session_.queue_of(cid).resume(number_, map_);
  }
}

void Path::lose(base::Error why) {
  if (lost_) return;
  const bool was_connected = connected();
  lost_ = true;
  why_ = std::move(why);
  // At once, for those who wait for an answer over this path.
  for (size_t cid = 0; cid < session_.queues(); ++cid) {
    ++fences_due_;
    session_.queue_of(cid).fence(number_);
  }
  if (was_connected) session_.path_lost(*this);
  session_.wake();
}

base::Task<void> Path::fenced() {
  const std::shared_ptr<base::Signal> changed = session_.changed();
  if (!lost_) lose(make_error(Errc::kDisconnected, "the attempt failed"));
  while (fences_due_ > 0) co_await changed->wait();
}

void Path::mark_down(const base::Error& why) {
  why_ = why;
  if (state_.is(ClientPathState::kConnecting)) {
    state_.set(ClientPathState::kConnectingErr, why.message());
    tell_shortage(why);
  }
  if (state_.is(ClientPathState::kReconnecting)) return;
  state_.set(ClientPathState::kReconnecting, why.message());
  session_.wake();
}

void Path::tell_shortage(const base::Error& why) {
  if (why.code() != Errc::kNoMemory || std::exchange(shortage_told_, true)) return;
  log_.warning("path to {} cannot be made, and is tried again: {}", text(), why.message());
}

void Path::close() {
  if (state_.is(ClientPathState::kDead)) return;
  state_.set(ClientPathState::kClosing, "closed by its user");
  state_.set(ClientPathState::kClosed, "all connections are drained");
  state_.set(ClientPathState::kDead, "removed");
}

void Path::set_disabled(bool disabled) {
  disabled_ = disabled;
  at_once_ = !disabled;
  unknown_there_ = false;  // of what its operator begins anew nothing is known yet
  if (disabled) lose(make_error(Errc::kCanceled, "disconnected by its operator"));
  session_.wake();
}

base::Task<void> Path::remove() {
  const std::shared_ptr<base::Signal> changed = session_.changed();
  for (size_t cid = 0; cid < session_.queues(); ++cid) {
    ++removals_due_;
    session_.queue_of(cid).remove_lane(number_);
  }
  while (removals_due_ > 0) co_await changed->wait();
  close();
}

void Path::start_keeping() {
  keep_task_ = keep();
  keep_task_.start();
}

/// Ends only by its destruction, with the incarnation.
base::Task<void> Path::keep() {
  for (;;) {
    while (connected()) co_await session_.changed()->wait();
    if (lost_) {
      co_await fenced();
      if (state_.is(ClientPathState::kConnected)) co_await move_requests();
      const base::Error why = *why_;
      mark_down(why);
    }
    co_await rejoin();
  }
}

/// Until the path is up again.
base::Task<void> Path::rejoin() {
  for (unsigned attempts = 0;; ++attempts) {
    while (disabled_) co_await session_.changed()->wait();
    if (was_up_ || attempts > 0) co_await session_.back_off(attempts, at_once_);
    if (disabled_) continue;
    at_once_ = false;
    lost_ = false;
    base::Status status = co_await attempt(false);
    if (status.ok() && !lost_) {
      go_up();
      session_.path_joined();
      log_.info("path {} to {} joined the session", number_, text());
      co_return;
    }
    const base::Error why = status.ok() ? *why_ : status.error();
    ++reconnects_failed_;
    lose(why);
    co_await fenced();
    mark_down(why);
  }
}

/// Nothing of the path can land here any more; when nothing can land at the server either, what was
/// in flight goes by others.
base::Task<void> Path::move_requests() {
  fenced_there_ = !session_.sequenced() || home_.host().mutant("path-fence-skipped") ||
                  home_.host().mutant("late-request-taken");
  while (!fenced_there_) {
    Path* const via = session_.connected_path();
    if (via != nullptr && via->send_fence(uuid_, recon_cnt_)) {
      while (!fenced_there_ && via->connected()) co_await session_.changed()->wait();
    } else if (via != nullptr) {
      co_await home_.sleep_ns(kMillisecond);  // no send slot: nobody tells when there is one
    } else {
      co_await session_.changed()->wait();  // for another path, or for the incarnation's end
    }
  }
  for (size_t cid = 0; cid < session_.queues(); ++cid) session_.queue_of(cid).fail_over(number_);
}

bool Path::send_fence(const wire::Uuid& path, uint16_t recon_cnt) {
  wire::FenceMsg fence;
  fence.type = static_cast<uint16_t>(wire::MessageType::kFencePath);
  fence.epoch = session_.epoch();
  fence.recon_cnt = recon_cnt;
  fence.sess_uuid = path;
  return session_.queue_of(0).send_message(number_, wire::bytes_of(fence));
}

bool Path::fenced_at_server(const wire::FenceMsg& fence) {
  if (fence.sess_uuid != uuid_ || fence.recon_cnt != recon_cnt_) return false;
  fenced_there_ = true;
  session_.wake();
  return true;
}

void Path::lane_connected(ConnectOutcome outcome) {
  outcome_ = std::move(outcome);
  session_.wake();
}

void Path::lane_fenced() {
  --fences_due_;
  session_.wake();
}

void Path::lane_removed() {
  --removals_due_;
  session_.wake();
}

void Path::message_received(std::span<const std::byte> message) {
  if (lost_) return;
  if (handshake_ && !proof_) return take_proof(message);
  if (!info_ && !asked_) return lose(make_error(Errc::kProtocol, "a message that is not due"));
  if (!info_) return take_info(message);
  auto fence = wire::parse_fence(message, wire::MessageType::kPathFenced);
  if (!fence.ok()) {
    lose(fence.error());
  } else if (fence->epoch != session_.epoch()) {
    lose(make_error(Errc::kProtocol, "the server ended a path of another incarnation"));
  } else {
    session_.fenced_at_server(*fence);
  }
}

/// Also of a path that is being lost: its server takes it for told.
bool Path::notice_received() {
  if (!info_ || !info_->ok() || !map_->notices) return false;
  session_.notice_received();
  return true;
}

}  // namespace braid::trs::client
