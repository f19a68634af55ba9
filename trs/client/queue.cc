// Queue: life cycle and polling. The data path is in submit.cc, connecting in connect.cc.
#include "trs/client/queue.h"

#include <algorithm>

#include "trs/client/session.h"

namespace braid::trs::client {

using base::Errc;
using base::make_error;

Queue::Queue(Session& session, uint16_t cid, uint16_t cid_num, base::Reactor& reactor)
    : session_(session),
      reactor_(reactor),
      cid_(cid),
      cid_num_(cid_num),
      service_(cid == 0),
      heartbeat_(reactor, session.heartbeat_options(), *this) {
  watch_.ready = &channel_ready;
  watch_.context = this;
}

Queue::~Queue() {
  if (channel_) reactor_.io().unwatch(watch_);
}

void Queue::resume(std::shared_ptr<const PathMap> map) {
  if (&reactor_ == &session_.home()) {
    go_up(std::move(map));
  } else {
    run_here([this, path = std::move(map)]() mutable { go_up(std::move(path)); });
  }
}

void Queue::go_up(std::shared_ptr<const PathMap> map) {
  if (!connection_ || fencing_ || !connection_->open()) return;  // lost meanwhile
  map_ = std::move(map);
  if (permits_) {
    chunk_keys_.resize(permits_->slots());
    for (uint32_t i = 0; i < map_->chunks.size(); ++i) {
      if (permits_->owns(i)) chunk_keys_[permits_->slot_of(i)] = map_->chunks[i].key;
    }
  }
  refuse_ = Errc::kOk;
  up_ = true;
  if (was_up_) ++statistics_.reconnects;
  was_up_ = true;
  send_held();
}

void Queue::fence() {
  run_here([this] { begin_fence(); });
}

void Queue::watch_peer(bool whole_path) {
  run_here([this, whole_path] {
    if (!connection_ || fencing_ || !connection_->open()) return;
    whole_path_ = whole_path;
    heartbeat_.start();
  });
}

uint64_t Queue::listen() {
  connection_->poll();
  return whole_path_ ? session_.received_count() : received_count();
}

void Queue::send_heartbeat() {
  if (!connection_->open() || !connection_->can_send()) return;
  connection_->post_imm(encode_imm({ImmType::kHeartbeat, 0}));
}

void Queue::peer_silent(uint64_t silent_ns) {
  trouble(make_error(Errc::kTimedOut, "connection {}: no sign of life from the server for {} ms",
                     cid_, silent_ns / base::kMillisecond));
}

void Queue::begin_fence() {
  up_ = false;
  heartbeat_.stop();
  if (connecting_) {
    connect_task_ = {};
    connection_.reset();
    ConnectOutcome outcome;
    outcome.status = make_error(Errc::kCanceled, "the attempt was given up");
    end_connect(std::move(outcome));
  }
  fencing_ = true;
  if (connection_) {
    connection_->fence();
  } else {
    fenced();
  }
}

/// The connection is drained: what is in flight can be sent again, or ends.
void Queue::fenced() {
  fencing_ = false;
  poisoned_ = false;
  connection_.reset();
  base::IntrusiveList<ClientRequest> all;
  // The planted bug leaves one, so that the session still works.
  if (permits_ && !service_ && permits_->free_count() > 1 &&
      reactor_.host().mutant("permit-leak")) {
    (void)permits_->acquire();
  }
  while (ClientRequest* request = in_flight_.pop_front()) {
    if (!service_ && refuse_ == Errc::kOk) ++statistics_.resent;
    all.push_back(*request);
  }
  all.take_all(held_);
  statistics_.held = 0;
  std::fill(table_.begin(), table_.end(), nullptr);
  while (ClientRequest* request = all.pop_front()) {
    if (service_ || refuse_ != Errc::kOk) {
      request->outcome = refuse_ != Errc::kOk ? refuse_ : Errc::kDisconnected;
      ending_.push_back(*request);
    } else {
      hold(*request);
    }
  }
  session_.post_home([this] { session_.queue_fenced(*this); });
}

void Queue::refuse(Errc status) {
  const auto begin = [this, status] {
    refuse_ = status;
    if (status != Errc::kOk) refuse_held();
  };
  if (&reactor_ == &session_.home()) {
    begin();
  } else {
    run_here(begin);
  }
}

void Queue::refuse_held() {
  statistics_.held = 0;
  while (ClientRequest* request = held_.pop_front()) {
    request->outcome = refuse_;
    ending_.push_back(*request);
  }
}

void Queue::stop() {
  run_here([this] {
    refuse_ = Errc::kCanceled;
    stopped_ = true;
    refuse_held();
    end_refused();
    base::Poller::unlink();
    if (channel_) reactor_.io().unwatch(watch_);
    channel_.reset();
    session_.post_home([this] { session_.queue_stopped(*this); });
  });
}

void Queue::trouble(base::Error why) {
  up_ = false;
  session_.post_home([this, error = std::move(why)] { session_.trouble(error); });
}

void Queue::failed(Connection&, base::Error why) {
  trouble(why.with("connection {}", cid_));
}

void Queue::channel_ready(base::Watch& watch) {
  auto& self = *static_cast<Queue*>(watch.context);
  self.channel_->event().consume();
  while (vhca::Cq* cq = self.channel_->next_event()) cq->ack_events(1);
}

bool Queue::poll() {
  bool did = connection_ && connection_->poll();
  if (fencing_ && connection_ && connection_->drained()) {
    fenced();
    did = true;
  }
  if (up_ && !held_.empty()) did |= send_held();
  if (!ending_.empty()) did |= end_refused();
  if (!waiters_.empty()) did |= serve_waiters();
  return did;
}

bool Queue::arm() {
  if (connection_) connection_->arm();
  return !poll();
}

ClientStatistics Queue::statistics() const {
  ClientStatistics statistics = statistics_;
  statistics.messages_received = received_count();
  statistics.permits = permits_ ? permits_->size() : 0;
  statistics.permits_free = permits_ ? permits_->free_count() : 0;
  return statistics;
}

}  // namespace braid::trs::client
