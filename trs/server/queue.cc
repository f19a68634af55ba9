// Queue: life cycle and polling. Requests and answers are in answer.cc.
#include "trs/server/queue.h"

#include "trs/server/path.h"
#include "trs/server/server_impl.h"
#include "trs/server/session.h"
#include "trs/server/worker.h"

namespace braid::trs::server {

using base::Errc;
using base::make_error;

namespace {

// Receives beyond one per chunk: heartbeats, and a batch not posted again yet.
constexpr uint32_t kSpareReceives = 16;
// Answers leave so many sends: where all else waits for the client, it hears for 16 times 300 ms
// that we live. A completion may stand for a quarter of all sends: it comes before these are all
// that is left.
constexpr uint32_t kSendsBesideAnswers = kSendsBesideRequests / 2;
// Towards a client that is not Braid: 2.1 s and 15 s with its retries, as its heartbeats are slow.
constexpr uint8_t kPatientAckTimeout = 19;

const HeartbeatOptions& heartbeat_towards(Session& session) {
  const ServerOptions& options = session.server().options();
  return session.braid_peer() ? options.heartbeat : options.patient_heartbeat;
}

}  // namespace

Queue::Queue(Path& path, Worker& worker, uint16_t cid)
    : path_(path),
      session_(path.session()),
      worker_(worker),
      cid_(cid),
      heartbeat_(worker.reactor(), heartbeat_towards(session_), *this) {}

Queue::~Queue() = default;

uint64_t Queue::number() const {
  return path_.number() << 16 | cid_;
}

template <typename Function>
void Queue::run_here(Function function) {
  worker_.reactor().post(
      [alive = std::weak_ptr<char>(alive_), run = std::move(function)]() mutable {
        if (!alive.expired()) run();
      });
}

void Queue::accept(std::unique_ptr<vhca::ConnectRequest> request, const wire::ConnRsp& answer) {
  answer_ = answer;
  accepting_ = true;
  // std::function wants to be copied.
  auto holder = std::make_shared<std::unique_ptr<vhca::ConnectRequest>>(std::move(request));
  run_here([this, holder] {
    if (closing_) return;
    accept_task_ = run_accept(std::move(*holder));
    accept_task_.start();
  });
}

base::Task<void> Queue::run_accept(std::unique_ptr<vhca::ConnectRequest> request) {
  base::Status status = co_await try_accept(*request);
  accepting_ = false;
  if (!status.ok()) connection_.reset();
  path_.post_home(
      [this, result = std::move(status)]() mutable { path_.queue_accepted(std::move(result)); });
}

base::Task<base::Status> Queue::try_accept(vhca::ConnectRequest& request) {
  const uint32_t depth = session_.queue_depth();
  ConnectionOptions options;
  options.send_depth = depth + depth / 2 + kSendsBesideRequests;
  if (path_.guard() == ChunkGuard::kWindows) {
    reserve_ = depth;
    options.send_depth = 4 * depth + kSendsBesideRequests;
  }
  options.receive_depth = depth + kSpareReceives;
  options.control_bytes = cid_ == 0 ? wire::kControlBytesMax : 0;
  auto channel = worker_.channel(path_.endpoint());
  if (!channel.ok()) co_return channel.error();
  options.channel = (*channel)->channel.get();
  channel_ = std::move(*channel);
  options.td = &worker_.td(path_.endpoint());
  vhca::Device& device = session_.server().device(path_.endpoint());
  auto created = Connection::create(device, path_.pd(), worker_.reactor(), options, *this);
  if (!created.ok()) co_return created.error();
  connection_ = std::move(created).value();
  const std::vector<uint32_t> messages = setup_messages();
  base::Status posted = connection_->post_receives(messages);
  if (!posted.ok()) co_return posted;

  vhca::ConnectParameters parameters;
  parameters.private_data = wire::bytes_of(answer_);
  if (!session_.braid_peer()) parameters.ack_timeout = kPatientAckTimeout;
  auto accepted = co_await request.accept(worker_.reactor(), connection_->qp(), parameters);
  if (!accepted.ok()) co_return accepted.error();
  connection_->attach(std::move(*accepted), [this] {
    const auto why = make_error(Errc::kDisconnected, "the client ended connection {}", cid_);
    path_.post_home([this, why] { path_.trouble(why); });
  });
  take_turns();
  co_return base::Status();
}

/// Lengths of what comes by connection 0 before anything else.
std::vector<uint32_t> Queue::setup_messages() const {
  if (cid_ != 0) return {};
  if ((answer_.braid_features & wire::kFeatureAuthentication) == 0) return {sizeof(wire::InfoReq)};
  return {sizeof(wire::AuthBegin), sizeof(wire::AuthProof), wire::kProvenInfoReqBytes};
}

void Queue::open() {
  run_here([this] {
    if (closing_ || path_.guard() != ChunkGuard::kWindows || !bind_windows()) opened();
  });
}

void Queue::take_turns() {
  const std::shared_ptr<TurnShare> share = path_.turn_share(worker_);
  worker_.join(*this, share);
  connection_->share_wire_budget({share, &share->wire});
}

void Queue::opened() {
  open_ = !closing_;
  path_.post_home([this] { path_.queue_opened(); });
}

/// Whether so many sends may be posted, beside those that requests may ask for.
bool Queue::room(uint32_t sends) const {
  return connection_->can_send(sends + reserve_);
}

bool Queue::room_for_answer() const {
  return room(kAnswerSends + kSendsBesideAnswers);
}

void Queue::watch_peer(Watching watching) {
  run_here([this, watching] {
    if (closing_ || !connection_ || !connection_->open()) return;
    watching_ = watching;
    heartbeat_.start();
  });
}

/// A kernel peer asks by a connection that carries nothing else: what comes is answered there.
Heartbeat::Signs Queue::listen() {
  connection_->poll();
  if (watching_ == Watching::kWholePath) return {path_.received_count(), 0, path_.received_count()};
  return {received_count(), connection_->arrived_bytes(), connection_->posted()};
}

Traffic Queue::traffic() const {
  if (watching_ == Watching::kWholePath) return Traffic::kSome;
  if (!running_.empty() || !waiting_.empty() || !long_.empty()) return Traffic::kSome;
  // A wire that is lost by itself is watched all the time, as is one by which a long message may
  // have begun to come: its sender has to hear that we live.
  if (!connection_->shares_fate()) return Traffic::kSome;
  if (watching_ == Watching::kWhileBusy) return Traffic::kNone;
  return connection_->silent_ns() < Heartbeat::kIdleAfterNs ? Traffic::kSome : Traffic::kIdle;
}

void Queue::send_heartbeat() {
  if (!connection_->open() || !room(1)) return;
  connection_->ask_heartbeat(encode_imm({ImmType::kHeartbeat, 0}));
}

void Queue::peer_silent(uint64_t silent_ns) {
  const auto why =
      make_error(Errc::kTimedOut, "connection {}: no sign of life from the client for {} ms", cid_,
                 silent_ns / base::kMillisecond);
  path_.post_home([this, why] { path_.trouble(why); });
}

void Queue::close() {
  run_here([this] { begin_close(); });
}

void Queue::begin_close() {
  closing_ = true;
  worker_.woken(*this);
  heartbeat_.stop();
  open_ = false;
  if (accepting_) {
    accept_task_ = {};
    connection_.reset();
  }
  forget_requests();
  while (!leaving_.empty()) leaving_.pop_front();
  if (connection_) connection_->fence();
  report_quiet();
}

/// What is at the user stays there, and its answer waits to be asked for by another path.
void Queue::forget_requests() {
  while (Request* const request = waiting_.pop_front()) Slice::let_go(*request);
  while (!long_.empty()) Slice::let_go(let_long_go());
  while (Request* const request = running_.pop_front()) {
    request->queue = nullptr;
    if (!request->memory) request->memory = path_.landing_memory();
  }
  if (session_.sequenced() || !session_.has_requests()) return;  // has no deferred ones
  for (uint32_t i = 0; i < session_.queue_depth(); ++i) {
    if (session_.owner_of(i).value_or(cid_) != cid_) continue;  // another thread's
    Request* const request = session_.made_request(i);
    if (request != nullptr && request->deferred_to == this) request->deferred_to = nullptr;
  }
}

void Queue::give_up_draining() {
  run_here([this] {
    given_up_ = true;
    report_quiet();
  });
}

/// Lets go of the connection as soon as it is drained, so that the client is told.
void Queue::report_quiet() {
  if (!closing_ || quiet_) return;
  if (connection_) {
    if (!connection_->drained() && !given_up_) return;
    connection_.reset();
    worker_.leave(*this);
  }
  quiet_ = true;
  path_.post_home([this] { path_.queue_quiet(); });
}

size_t Queue::poll(size_t most) {
  if (!connection_) return 0;
  const size_t did = connection_->poll(most);
  if (closing_) {
    report_quiet();
    return did;
  }
  while (!waiting_.empty() && room_for_answer() && !closing_) {
    send_waiting(*waiting_.pop_front());
  }
  if (notice_due_) send_due_notice();
  return did;
}

void Queue::send_waiting(Request& request) {
  // Its client may not listen here any more, and have asked again by another path.
  if (request.deferred_to != nullptr) return Slice::let_go(request);
  send_answer(request);
}

void Queue::arm() {
  if (connection_) connection_->arm();
}

void Queue::woken(Connection&) {
  worker_.woken(*this);
}

/// Its data waits for its turn.
void Queue::keep_long(Request& request) {
  request.queue = this;
  if (long_.empty()) worker_.data_waits(*this);
  long_.push_back(request);
}

Request& Queue::let_long_go() {
  Request& first = *long_.pop_front();
  if (long_.empty()) worker_.data_waits_no_more(*this);
  return first;
}

void Queue::failed(Connection&, base::Error why) {
  path_.post_home([this, error = why.with("connection {}", cid_)] { path_.trouble(error); });
}

void Queue::violation(const char* reason, std::string detail) {
  open_ = false;
  path_.post_home([this, reason, text = fmt::format("connection {}: {}", cid_, detail)] {
    path_.breach(reason, text);
  });
}

bool Queue::send_message(std::span<const std::byte> message, uint32_t lkey) {
  if (!connection_ || !connection_->open() || !room(1)) return false;
  vhca::Sge piece = {reinterpret_cast<uint64_t>(message.data()),
                     static_cast<uint32_t>(message.size()), lkey};
  vhca::SendWr wr{};
  wr.opcode = IBV_WR_SEND;
  if (lkey == 0) wr.send_flags = IBV_SEND_INLINE;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  return connection_->post(wr);
}

void Queue::send_notice() {
  notice_due_ = true;
  send_due_notice();
}

void Queue::send_due_notice() {
  if (closing_ || !connection_ || !connection_->open() || !room(1)) return;
  notice_due_ = false;
  connection_->post_imm(encode_imm({ImmType::kNotice, 0}));  // else the path is lost
}

void Queue::received_message(Connection&, std::span<const std::byte> message) {
  received_.store(received_count() + 1, std::memory_order_relaxed);
  if (!closing_) path_.message_received(message);
}

}  // namespace braid::trs::server
