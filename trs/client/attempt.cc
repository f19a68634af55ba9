// Path: one attempt to make it: its connections one by one, then the info exchange.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trs/client/path.h"
#include "trs/client/session.h"

namespace braid::trs::client {

using base::Errc;
using base::make_error;

namespace {

constexpr uint64_t kProbeEveryNs = base::kSecond;

}  // namespace

base::Task<base::Status> Path::attempt(bool begins) {
  if (state_.is(ClientPathState::kReconnecting)) {
    state_.set(ClientPathState::kConnecting, "next attempt");
  }
  handshake_.reset();
  proof_.reset();
  asked_.reset();
  info_.reset();
  const uint64_t deadline_ns = home_.host().now_ns() + session_.attempt_timeout_ns();
  base::Status status = co_await make_connections(begins, deadline_ns);
  if (!status.ok()) co_return status;
  status = co_await exchange_info(deadline_ns);
  if (!status.ok()) co_return status;
  if (begins) {
    session_.set_incarnation(*map_);
  } else if (map_->epoch != session_.epoch() || map_->sequenced != session_.sequenced()) {
    co_return make_error(Errc::kProtocol, "the server has the path join another incarnation");
  }
  map_->lineage = session_.lineage();
  session_.queue_of(0).resume(number_, map_);  // admin requests work from here on
  watch_peer();
  co_return status;
}

base::Task<base::Status> Path::make_connections(bool begins, uint64_t deadline_ns) {
  const uint32_t joins = begins ? 0 : session_.epoch();
  recon_cnt_ = session_.next_attempt();
  const auto lanes = static_cast<uint16_t>(session_.queues());
  for (uint16_t cid = 0; cid < lanes; ++cid) {
    ConnectOutcome outcome = co_await connect_lane(cid, joins, deadline_ns);
    const bool forgotten = outcome.rejected_errno == ENXIO && cid == 0;
    if (forgotten && !begins && !session_.sequenced())
      session_.server_forgot(outcome.status.error());
    if (forgotten && begins && session_.known_to_server() && !lost_) {
      // It was restarted, or has forgotten us. No other path could be meant, so begin anew.
      session_.set_known_to_server(false);
      outcome = co_await connect_lane(cid, joins, deadline_ns);
    }
    unknown_there_ = joins != 0 && outcome.rejected_errno == ENXIO;
    if (!outcome.status.ok()) co_return outcome.status;
    if (lost_) co_return *why_;
    if (cid == 0) {
      granted_ = outcome.granted;
      port_ = outcome.port;
      base::Status status;
      if (session_.key() != nullptr) status = co_await prove(deadline_ns);
      if (status.ok()) status = session_.accept_limits(granted_, begins);
      if (status.ok()) {
        const SessionLimits limits = session_.limits();
        const PermitPlan plan{limits.queue_depth, limits.admin_permits};
        status = session_.queue_of(0).prepare(options_.device, plan);
      }
      if (!status.ok()) co_return status;
      continue;
    }
    base::Status joined = check_joined(outcome);
    if (!joined.ok()) co_return joined;
    outcome.granted.braid_proof = {};
    if (std::memcmp(&outcome.granted, &granted_, sizeof(granted_)) != 0) {
      co_return make_error(Errc::kProtocol, "the server grants connection {} other limits", cid);
    }
  }
  session_.set_known_to_server(true);
  co_return base::Status();
}

/// Both ends have the key, or the attempt is over.
base::Task<base::Status> Path::prove(uint64_t deadline_ns) {
  const bool asks = granted_.braid_magic == wire::kBraidMagic &&
                    (granted_.braid_features & wire::kFeatureAuthentication) != 0;
  if (!asks) {
    co_return make_error(
        Errc::kPermission,
        "the server asks for no key, though we have key \"{}\": it has none, or it "
        "is another server; without a key we would take it as it is",
        session_.key()->name());
  }
  wire::Nonce nonce;
  home_.host().random(std::as_writable_bytes(std::span(nonce)));
  handshake_.emplace(session_.key(), request_, granted_, nonce);
  if (!session_.queue_of(0).send_message(number_, wire::bytes_of(handshake_->begin()))) {
    co_return make_error(Errc::kDisconnected, "connection 0 was lost before the proof of the key");
  }
  co_return co_await await_answer(proof_, deadline_ns,
                                  "the server did not answer to the proof of our key");
}

void Path::take_proof(std::span<const std::byte> message) {
  auto next = handshake_->received(message);
  if (!next.ok()) {
    const int rejected = handshake_->rejected_errno();
    if (rejected == EKEYREJECTED) {
      proof_ = make_error(Errc::kPermission,
                          "the server refused our key \"{}\": it knows none by this name, or "
                          "another one",
                          session_.key()->name());
    } else if (rejected == EACCES) {
      proof_ = make_error(Errc::kPermission,
                          "the server refused key \"{}\": the session is another key's",
                          session_.key()->name());
    } else {
      proof_ =
          rejected != 0 ? make_error(Errc::kRefused, "{}", reject_text(rejected)) : next.error();
    }
  } else if (!*next) {
    proof_ = base::Status();
  } else if (!session_.queue_of(0).send_message(number_, wire::bytes_of(**next))) {
    proof_ = make_error(Errc::kDisconnected, "connection 0 was lost in the proof of the key");
  }
  session_.wake();
}

/// The server has proved by this connection too.
base::Status Path::check_joined(const ConnectOutcome& outcome) const {
  if (!handshake_) return {};
  wire::ConnRsp granted = outcome.granted;
  granted.braid_proof = {};
  const wire::Uuid due = handshake_->secret().joined(request_, granted);
  if (same_bytes(due.bytes, outcome.granted.braid_proof.bytes)) return {};
  return make_error(Errc::kPermission,
                    "connection {} was answered by somebody who does not have key \"{}\"",
                    uint16_t{request_.cid}, session_.key()->name());
}

base::Task<ConnectOutcome> Path::connect_lane(uint16_t cid, uint32_t joins, uint64_t deadline_ns) {
  wire::ConnReq request;
  request.cid = cid;
  request.cid_num = static_cast<uint16_t>(session_.queues());
  request.recon_cnt = recon_cnt_;
  request.sess_uuid = uuid_;
  request.paths_uuid = session_.uuid();
  request.flags = session_.known_to_server() ? uint8_t{0} : wire::kFirstConn;
  request.braid_magic = wire::kBraidMagic;
  request.braid_features = session_.features();
  wire::set_joined_epoch(request, joins);
  request_ = request;
  if (cid != 0 && handshake_) request.sess_uuid = handshake_->secret().join(request);
  const uint64_t now_ns = home_.host().now_ns();
  const uint64_t timeout_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 1;
  outcome_.reset();
  PermitPlan plan;
  if (cid > 0) plan = session_.permit_plan(granted_);
  session_.queue_of(cid).connect(number_, request, plan, timeout_ns);
  while (!outcome_) co_await session_.changed()->wait();
  ConnectOutcome outcome = std::move(*outcome_);
  co_return outcome;
}

base::Task<base::Status> Path::exchange_info(uint64_t deadline_ns) {
  asked_ = session_.info_request(granted_, options_.device);
  const auto request = wire::bytes_of(*asked_);
  std::vector<std::byte> message(request.begin(), request.end());
  if (handshake_) {
    const wire::Proof proof = handshake_->secret().info(*asked_);
    const auto bytes = std::as_bytes(std::span(proof));
    message.insert(message.end(), bytes.begin(), bytes.end());
  }
  if (!session_.queue_of(0).send_message(number_, message)) {
    co_return make_error(Errc::kDisconnected, "connection 0 was lost before the info exchange");
  }
  co_return co_await await_info(deadline_ns);
}

/// A server may have much memory to register: a Braid server is given longer than others, and
/// asked meanwhile, below its program, whether it is there.
base::Task<base::Status> Path::await_info(uint64_t deadline_ns) {
  const bool braid_peer = granted_.braid_magic == wire::kBraidMagic;
  const uint64_t last_ns =
      braid_peer ? std::max(deadline_ns, home_.host().now_ns() + session_.bring_up_timeout_ns())
                 : deadline_ns;
  bool told = false;
  for (;;) {
    const uint64_t now_ns = home_.host().now_ns();
    if (now_ns >= deadline_ns && now_ns < last_ns && !std::exchange(told, true)) {
      session_.still_waits(
          make_error(Errc::kTimedOut,
                     "the server is there, and has not answered the info request of {} yet: it may "
                     "register much memory, or be busy with requests of the former path",
                     text()));
    }
    const uint64_t until_ns = std::min(now_ns + kProbeEveryNs, last_ns);
    base::Status status =
        co_await await_answer(info_, until_ns,
                              "the server did not answer the info request (it may still be busy "
                              "with requests of the former path)");
    if (info_ || lost_ || home_.host().now_ns() >= last_ns) co_return status;
    if (last_ns > deadline_ns && !session_.queue_of(0).probe(number_)) {
      co_return make_error(Errc::kDisconnected, "connection 0 was lost in the info exchange");
    }
  }
}

base::Task<base::Status> Path::await_answer(const std::optional<base::Status>& answer,
                                            uint64_t deadline_ns, const char* late) {
  base::Timer timer([](base::Timer& t) { static_cast<base::Signal*>(t.context)->notify_all(); },
                    session_.changed().get());
  home_.schedule(timer, deadline_ns);
  while (!answer && !lost_) {
    if (home_.host().now_ns() >= deadline_ns) co_return make_error(Errc::kTimedOut, "{}", late);
    co_await session_.changed()->wait();
  }
  if (lost_) co_return *why_;
  co_return *answer;
}

void Path::take_info(std::span<const std::byte> message) {
  if (handshake_) {
    const size_t told_bytes = message.size() - std::min(message.size(), wire::kProofBytes);
    const auto told = message.first(told_bytes);
    wire::Proof proof{};
    std::memcpy(proof.data(), message.data() + told_bytes, message.size() - told_bytes);
    if (!same_bytes(proof, handshake_->secret().told(*asked_, told))) {
      info_ = make_error(Errc::kPermission, "info answer without a proof of key \"{}\"",
                         session_.key()->name());
      session_.wake();
      return;
    }
    message = told;
  }
  const uint32_t chunk_bytes = granted_.max_io_size + granted_.max_hdr_size;
  map_ = std::make_shared<PathMap>(granted_.queue_depth);
  map_->braid_peer = granted_.braid_magic == wire::kBraidMagic;
  const uint32_t shared = session_.shared_features(granted_);
  map_->sequenced = (shared & wire::kFeatureSequenced) != 0;
  map_->answer_slots = (shared & wire::kFeatureAnswerSlots) != 0;
  map_->notices = (shared & wire::kFeatureNotices) != 0;
  map_->keeps_answers = (shared & wire::kFeatureKeptAnswers) != 0;
  map_->one_thread = (shared & wire::kFeatureOneThread) != 0;
  map_->lends = session_.permit_plan(granted_).lends;
  size_t regions = 0;
  auto epoch = wire::parse_info_rsp(message, chunk_bytes, map_->chunks, &regions);
  map_->counted_keys = (shared & wire::kFeatureCountedKeys) != 0 && regions == map_->chunks.size();
  info_ = epoch.ok() ? base::Status() : base::Status(epoch.error());
  if (epoch.ok() && map_->sequenced) {
    map_->epoch = *epoch;
    if ((*epoch & wire::kJoinedEpochMask) == 0) {
      info_ = make_error(Errc::kProtocol, "info answer with epoch {:#x}", *epoch);
    }
  }
  session_.wake();
}

/// A kernel peer has one heartbeat, on connection 0, and warns of others.
void Path::watch_peer() {
  if (!map_->braid_peer) return session_.queue_of(0).watch_peer(number_, Watching::kWholePath);
  const auto others = map_->one_thread ? Watching::kWhileBusy : Watching::kAlways;
  const auto lanes = static_cast<uint16_t>(session_.queues());
  for (uint16_t cid = 0; cid < lanes; ++cid) {
    session_.queue_of(cid).watch_peer(number_, cid == 0 ? Watching::kAlways : others);
  }
}

}  // namespace braid::trs::client
