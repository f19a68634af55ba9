#include "trs/server/path.h"

#include "trs/server/server_impl.h"
#include "trs/server/session.h"

namespace braid::trs::server {

using base::Errc;

namespace {

bool sends_invalidations(const vhca::Device& device) {
  constexpr unsigned kAny =
      IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  return (device.query().device_cap_flags & kAny) != 0;
}

}  // namespace

Path::Path(Session& session, size_t endpoint, std::unique_ptr<vhca::Pd> pd,
           const wire::ConnReq& request, std::string peer_text, bool proof_due)
    : session_(session),
      endpoint_(endpoint),
      home_(session.server().home()),
      log_(home_.log().child("trs-path")),
      state_(ServerPathState::kConnecting, log_),
      number_(session.server().next_path_number()),
      peer_text_(std::move(peer_text)),
      peer_address_(address_of(peer_text_)),
      asked_(request),
      uuid_(request.sess_uuid),
      cid_num_(request.cid_num),
      invalidates_(sends_invalidations(session.server().device(endpoint))),
      proven_(!proof_due),
      unproven_shares_(proof_due ? session.server().turn_shares(peer_address_) : nullptr),
      pd_(std::move(pd)),
      lent_(session.lent_share(endpoint)),
      guard_(session.guard()),
      queues_(request.cid_num),
      half_open_timer_(&half_open, this),
      changed_(home_) {
  home_.schedule_after(half_open_timer_, proof_due ? kUnprovenNs : kHalfOpenNs);
}

Path::~Path() {
  // A client that stands still in the middle of a copy must not hold up this reactor.
  if (landing_) landing_->release(*pd_);
  if (chunks_mr_ != nullptr) pd_->dereg_mr(std::move(chunks_mr_), session_.chunks());
}

std::shared_ptr<TurnShare> Path::turn_share(const Worker& worker) const {
  if (proven_) return session_.turn_share(worker);
  return {unproven_shares_, &unproven_shares_[worker.index()]};
}

KnownPath Path::known(uint16_t cid) const {
  KnownPath known;
  known.recon_cnt = asked_.recon_cnt;
  known.cid_num = cid_num_;
  known.state = state_.state();
  known.cid_taken = cid < queues_.size() && queues_[cid] != nullptr;
  return known;
}

void Path::join(const wire::ConnReq& asked, std::unique_ptr<vhca::ConnectRequest> request) {
  const uint16_t cid = asked.cid;
  ServerImpl& server = session_.server();
  const ServerOptions& options = server.options();
  const bool proves = handshake_ || !proven_;
  wire::ConnRsp answer;
  answer.queue_depth = static_cast<uint16_t>(options.queue_depth);
  answer.max_io_size = options.max_io_bytes;
  answer.max_hdr_size = server.chunk_bytes() - options.max_io_bytes;
  if (session_.braid_peer()) {
    answer.braid_magic = wire::kBraidMagic;
    answer.braid_features = server.features() | (proves ? wire::kFeatureAuthentication : 0);
  }
  if (handshake_) {
    answer.braid_proof = handshake_->secret().joined(asked, answer);
  } else if (!proven_) {
    wire::Nonce nonce;
    home_.host().random(std::as_writable_bytes(std::span(nonce)));
    handshake_.emplace(server.keys(), asked, answer, nonce);
  }
  queues_[cid] = std::make_unique<Queue>(*this, session_.worker_of(cid), cid);
  queues_[cid]->accept(std::move(request), answer);
}

std::vector<ServedStatistics> Path::statistics() const {
  std::vector<ServedStatistics> all(queues_.size());
  for (size_t cid = 0; cid < queues_.size(); ++cid) {
    if (queues_[cid]) all[cid] = queues_[cid]->statistics();
  }
  return all;
}

void Path::queue_accepted(base::Status status) {
  if (!status.ok()) {
    tell_shortage(status.error());
    trouble(status.error());
    return;
  }
  ++accepted_;
  changed_.notify_all();
}

void Path::queue_opened() {
  --opens_due_;
  changed_.notify_all();
}

void Path::message_received(std::span<const std::byte> message) {
  if (!live()) return;
  if (!proven_) return authenticate(message);
  if (!info_came_) return info_requested(message);
  auto fence = wire::parse_fence(message, wire::MessageType::kFencePath);
  if (!fence.ok()) return breach("malformed control message", fence.error().message());
  if (!session_.sequenced() || !connected() || fence->epoch != session_.epoch() ||
      fence->sess_uuid == uuid_) {
    return breach("control message out of order", "asks to end a path where it may not");
  }
  session_.fence(*fence, *this);
}

void Path::info_requested(std::span<const std::byte> message) {
  if (handshake_) {
    if (!check_info_proof(message)) {
      return breach("info request without proof", "info request without a proof of the key");
    }
    message = message.first(sizeof(wire::InfoReq));
  }
  auto info = wire::parse_info_req(message);
  if (!info.ok()) {
    breach("malformed info request", info.error().message());
    return;
  }
  info_came_ = true;
  const uint32_t depth = session_.queue_depth();
  const uint32_t admin = session_.has(wire::kFeatureAdminPermits) ? info->admin_permits : 1;
  if (admin == 0 || admin >= depth) {
    breach("impossible number of admin permits",
           fmt::format("info request for {} admin permits of {}: must be 1 to {}", admin, depth,
                       depth - 1));
    return;
  }
  info->admin_permits = static_cast<uint8_t>(admin);
  home_.cancel(half_open_timer_);
  client_due_ = false;
  bring_up_task_ = bring_up(std::move(*info));
  bring_up_task_.start();
}

/// From the info request to its answer.
base::Task<void> Path::bring_up(wire::ParsedInfoReq info) {
  // What was left at the user by a former incarnation must have ended before anything newer begins,
  // and what was left on the wire by this path's former connections.
  ServerImpl& server = session_.server();
  while (bringing_up() && (server.has_predecessor(session_) || session_.has_older(*this))) {
    co_await server.session_changed().wait();
  }
  // The predecessor may take as long as its disk; the client's own connections may not.
  client_due_ = accepted_ < cid_num_;
  if (bringing_up() && client_due_) home_.schedule_after(half_open_timer_, kHalfOpenNs);
  while (bringing_up() && accepted_ < cid_num_) co_await changed_.wait();
  home_.cancel(half_open_timer_);
  client_due_ = false;
  if (!bringing_up()) co_return;
  base::Status status = server.check_room(*this);
  if (status.ok()) status = session_.begin(info);
  if (status.ok()) status = co_await register_all();
  if (!bringing_up()) co_return;
  if (!status.ok()) {
    tell_shortage(status.error());
    close(status.error().message());
    co_return;
  }
  if (session_.has(wire::kFeatureAnswerSlots) && info.answers_address != 0) {
    answers_ = wire::ChunkRegion{info.answers_address, info.answers_key};
  }
  // Each queue must know before the client may: it would take the first request for a breach.
  for (auto& queue : queues_) {
    ++opens_due_;
    queue->open();
  }
  while (bringing_up() && opens_due_ > 0) co_await changed_.wait();
  if (bringing_up()) answer_info();
}

std::span<std::byte> Path::landing(uint32_t chunk) {
  return landing_ ? landing_->chunk(chunk) : session_.chunk(chunk);
}

/// One region, or one for each window.
std::span<const std::byte> Path::compose_info() {
  const uint32_t chunk_bytes = session_.server().chunk_bytes();
  const uint32_t depth = session_.queue_depth();
  const uint32_t regions = guard_ == ChunkGuard::kWindows ? depth : 1;
  wire::InfoRsp head;
  head.sg_cnt = static_cast<uint16_t>(regions);
  if (session_.sequenced()) head.braid_epoch = session_.epoch();
  const auto add = [this](std::span<const std::byte> bytes) {
    told_.insert(told_.end(), bytes.begin(), bytes.end());
  };
  add(wire::bytes_of(head));
  for (uint32_t i = 0; i < regions; ++i) {
    wire::SgDescriptor region;
    region.address = reinterpret_cast<uint64_t>(landing(i).data());
    region.key = regions > 1 ? window(i).key : landing_ ? landing_->rkey() : chunks_mr_->rkey;
    region.length = depth / regions * chunk_bytes;
    add(wire::bytes_of(region));
  }
  if (handshake_) {
    const wire::Proof proof = handshake_->secret().told(*info_, told_);
    add(std::as_bytes(std::span(proof)));
  }
  return told_;
}

void Path::answer_info() {
  state_.set(ServerPathState::kConnected, "info exchange done");
  const std::span<const std::byte> message = compose_info();
  uint32_t lkey = 0;
  if (message.size() > Connection::kInlineBytes) {
    auto registered = pd_->reg_mr(told_.data(), told_.size(), IBV_ACCESS_LOCAL_WRITE);
    if (!registered.ok()) {
      tell_shortage(registered.error());
      return close(registered.error().message());
    }
    told_mr_ = std::move(*registered);
    lkey = told_mr_->lkey;
  }
  if (!queues_[0]->send_message(message, lkey)) {
    close("connection 0 was lost in the info exchange");
    return;
  }
  // A kernel peer has one heartbeat, on connection 0, and warns of others.
  if (session_.braid_peer()) {
    const auto others =
        session_.has(wire::kFeatureOneThread) ? Watching::kWhileBusy : Watching::kAlways;
    for (auto& queue : queues_) queue->watch_peer(queue->cid() == 0 ? Watching::kAlways : others);
  } else {
    queues_[0]->watch_peer(Watching::kWholePath);
  }
  session_.path_connected(*this);
}

void Path::send_fenced(const wire::Uuid& path, uint16_t recon_cnt) {
  wire::FenceMsg answer;
  answer.type = static_cast<uint16_t>(wire::MessageType::kPathFenced);
  answer.epoch = session_.epoch();
  answer.recon_cnt = recon_cnt;
  answer.sess_uuid = path;
  if (connected() && !queues_[0]->send_message(wire::bytes_of(answer))) {
    close("connection 0 takes no more messages");
  }
}

/// Why a client cannot be served is the operator's to mend, and nothing that the client did.
void Path::tell_shortage(const base::Error& why) {
  if (!live() || why.code() != Errc::kNoMemory) return;
  session_.server().complain(peer_text_,
                             fmt::format("{} gets no path for now: {}", peer_text_, why.message()));
}

void Path::trouble(const base::Error& why) {
  if (!live()) return;
  if (why.code() == Errc::kProtocol) return breach("message out of order", why.message());
  close(why.message());
}

/// Ends the whole session: a client that breaks the protocol by one path is not believed by others.
/// Who has not proved to be of the session ends nothing of it.
void Path::breach(const char* reason, const std::string& detail) {
  if (!live()) return;
  if (!proven_) {
    session_.server().count_breach(reason);
    session_.server().complain(peer_text_, fmt::format("{}: {}", peer_text_, detail));
    return close(detail);
  }
  ServerImpl& server = session_.server();
  server.count_breach(reason);
  server.complain(peer_text_,
                  fmt::format("session '{}' of {}: {}", session_.name(), peer_text_, detail));
  session_.breach(detail);
}

void Path::close(const std::string& why) {
  if (!live()) return;
  const bool was_connected = connected();
  state_.set(ServerPathState::kClosing, why);
  session_.server().say_of(
      peer_text_, proven_ && !session_.evicted() ? base::LogLevel::kInfo : base::LogLevel::kDebug,
      "path of session '{}' from {} ends: {}", session_.name(), peer_text_, why);
  home_.cancel(half_open_timer_);
  changed_.notify_all();
  for (auto& queue : queues_) {
    if (!queue) continue;
    ++quiet_due_;
    queue->close();
  }
  if (on_worker_) ++quiet_due_;
  if (quiet_due_ == 0) {
    quiet_due_ = 1;
    post_home([this] { queue_quiet(); });
  }
  session_.lent().changed()->notify_all();
  session_.path_lost(was_connected, why);
}

void Path::give_up_draining() {
  for (auto& queue : queues_) {
    if (queue) queue->give_up_draining();
  }
}

void Path::queue_quiet() {
  if (--quiet_due_ > 0) return;
  state_.set(ServerPathState::kClosed, "no connection left");
  session_.path_ended(*this);
}

void Path::half_open(base::Timer& timer) {
  auto& self = *static_cast<Path*>(timer.context);
  if (self.refused_) return self.close("it was refused");
  if (!self.proven_) {
    return self.end_unproven(refusal::kNoProofInTime, fmt::format("no proof of a key within {} s",
                                                                  kUnprovenNs / base::kSecond));
  }
  self.close(fmt::format("half open for {} s", kHalfOpenNs / base::kSecond));
}

uint64_t Path::received_count() const {
  uint64_t sum = 0;
  for (const auto& queue : queues_) sum += queue ? queue->received_count() : 0;
  return sum;
}

}  // namespace braid::trs::server
