// Lane: life cycle. Making the connection is in connect.cc, the data path in submit.cc.
#include "trs/client/lane.h"

#include <algorithm>

#include "trs/client/path.h"
#include "trs/client/queue.h"
#include "trs/client/session.h"

namespace braid::trs::client {

using base::Errc;
using base::make_error;

Lane::Lane(Queue& queue, Path& of_path, LaneStatistics& counts)
    : statistics(counts),
      path(of_path),
      queue_(queue),
      device_(of_path.device_index()),
      heartbeat_(queue.reactor(), queue.session().heartbeat_options(), *this) {}

Lane::~Lane() = default;

void Lane::go_up(std::shared_ptr<const PathMap> map) {
  if (!connection_ || fencing_ || !connection_->open()) return;  // lost meanwhile
  map_ = std::move(map);
  chunk_keys_.resize(map_->chunks.size());
  for (size_t i = 0; i < chunk_keys_.size(); ++i) chunk_keys_[i] = map_->chunks[i].key;
  unanswered_since_ns_ = 0;
  up_ = true;
}

void Lane::come_down() {
  up_ = false;
  queue_.lane_down(*this);
}

void Lane::watch_peer(Watching watching) {
  if (!connection_ || fencing_ || !connection_->open()) return;
  watching_ = watching;
  heartbeat_.start();
}

/// A kernel peer asks by a connection that carries nothing else: what comes is answered there.
Heartbeat::Signs Lane::listen() {
  connection_->poll();
  if (watching_ == Watching::kWholePath) return {path.received_count(), 0, path.received_count()};
  return {statistics.received.get(), connection_->arrived_bytes(), connection_->posted()};
}

Traffic Lane::traffic() const {
  if (watching_ == Watching::kWholePath) return Traffic::kSome;
  if (!in_flight.empty()) return Traffic::kAwaited;
  // A wire that is lost by itself is watched all the time, as is one by which a long message may
  // have begun to come: its sender has to hear that we live.
  if (!connection_->shares_fate()) return Traffic::kSome;
  if (watching_ == Watching::kWhileBusy) return Traffic::kNone;
  return connection_->silent_ns() < Heartbeat::kIdleAfterNs ? Traffic::kSome : Traffic::kIdle;
}

void Lane::send_heartbeat() {
  if (!connection_->open() || !connection_->can_send()) return;
  connection_->ask_heartbeat(encode_imm({ImmType::kHeartbeat, 0}));
}

void Lane::peer_silent(uint64_t silent_ns) {
  trouble(make_error(Errc::kTimedOut, "connection {}: no sign of life from the server for {} ms",
                     queue_.cid(), silent_ns / base::kMillisecond));
}

void Lane::begin_fence() {
  come_down();
  heartbeat_.stop();
  if (connecting_) {
    connect_task_ = {};
    connection_.reset();
    ConnectOutcome outcome;
    outcome.status = make_error(Errc::kCanceled, "the attempt was given up");
    end_connect(std::move(outcome));
  }
  fencing_ = true;
  queue_.wake();
  if (connection_) {
    connection_->fence();
  } else {
    fenced();
  }
}

/// The connection is drained: what is in flight can be sent again, or ends.
void Lane::fenced() {
  fencing_ = false;
  poisoned_ = false;
  connection_.reset();
  queue_.lane_fenced(*this);
  path.post_home([&of = path] { of.lane_fenced(); });
}

void Lane::trouble(base::Error why) {
  come_down();
  path.post_home([&of = path, error = std::move(why)] { of.trouble(error); });
}

void Lane::breach(base::Error why) {
  poisoned_ = true;
  trouble(std::move(why));
}

void Lane::woken(Connection&) {
  queue_.wake();
}

void Lane::failed(Connection&, base::Error why) {
  trouble(why.with("connection {}", queue_.cid()));
}

bool Lane::poll() {
  if (!connection_ || connection_->asleep()) return false;
  const bool did = connection_->poll() > 0;
  if (fencing_ && connection_->drained()) {
    fenced();
    return true;
  }
  if (!did) connection_->falls_asleep();
  return did;
}

bool Lane::rests() const {
  return !connection_ || connection_->asleep();
}

bool Lane::dozes() const {
  return connection_ && connection_->dozes();
}

void Lane::arm() {
  if (connection_) connection_->arm();
}

uint64_t Lane::latency_ns(uint64_t now_ns) const {
  return unanswered_since_ns_ == 0 ? latency_ns_
                                   : std::max(latency_ns_, now_ns - unanswered_since_ns_);
}

void Lane::count_answer(uint64_t ns) {
  unanswered_since_ns_ = 0;
  statistics.count_latency(ns);
  latency_ns_ = latency_ns_ == 0 ? ns : latency_ns_ - latency_ns_ / 8 + ns / 8;
}

void Lane::received_imm(Connection& connection, uint32_t value, uint32_t bytes) {
  statistics.received.add(1);
  if (poisoned_) return;
  const Imm imm = decode_imm(value);
  switch (imm.type) {
    case ImmType::kAnswer:
    case ImmType::kAnswerInvalidated:
      queue_.answered(*this, decode_answer(imm.payload), bytes);
      return;
    case ImmType::kHeartbeat:
      if (connection.open() && connection.can_send()) {
        connection.answer_heartbeat(encode_imm({ImmType::kHeartbeatAck, 0}));
      }
      connection.heard_heartbeat();
      return;
    case ImmType::kHeartbeatAck:
      connection.heard_heartbeat();
      return;  // counted, which is all it is for
    case ImmType::kNotice:
      // Connection 0, whose reactor is the home reactor.
      if (queue_.cid() == 0 && imm.payload == 0 && path.notice_received()) return;
      return breach(make_error(Errc::kProtocol,
                               "connection {}: notice {:#010x} where none may come", queue_.cid(),
                               value));
    case ImmType::kRequest:
      break;
  }
  breach(make_error(Errc::kProtocol, "connection {}: immediate {:#010x} is none for a client",
                    queue_.cid(), value));
}

/// A server that gives its chunks new keys answers so.
void Lane::received_answer(Connection&, uint32_t value, std::span<const std::byte> message) {
  statistics.received.add(1);
  if (poisoned_) return;
  const Imm imm = decode_imm(value);
  if (imm.type != ImmType::kAnswer && imm.type != ImmType::kAnswerInvalidated) {
    return breach(make_error(Errc::kProtocol,
                             "connection {}: immediate {:#010x} with a new key is no answer",
                             queue_.cid(), value));
  }
  const AnswerImm answer = decode_answer(imm.payload);
  auto key = wire::parse_rkey_rsp(message, answer.request_id);
  if (!key.ok()) return breach(key.error().with("connection {}", queue_.cid()));
  // Before the answer is: its permit may be used again at once.
  if (answer.request_id < chunk_keys_.size()) chunk_keys_[answer.request_id] = *key;
  queue_.answered(*this, answer, 0);
}

void Lane::received_message(Connection&, std::span<const std::byte> message) {
  statistics.received.add(1);
  path.message_received(message);  // connection 0, whose reactor is the home reactor
}

}  // namespace braid::trs::client
