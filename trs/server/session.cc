#include "trs/server/session.h"

#include "trs/server/server_impl.h"

namespace braid::trs::server {

using base::Errc;

namespace {

// A client that has all it needs sends its info request at once; this is for those who died.
constexpr uint64_t kHalfOpenNs = 10 * base::kSecond;

}  // namespace

Session::Session(ServerImpl& server, std::unique_ptr<vhca::Pd> pd, const wire::ConnReq& request,
                 std::string peer_text)
    : server_(server),
      home_(server.home()),
      log_(home_.log().child("trs-session")),
      path_(ServerPathState::kConnecting, log_),
      peer_text_(std::move(peer_text)),
      sess_uuid_(request.sess_uuid),
      paths_uuid_(request.paths_uuid),
      recon_cnt_(request.recon_cnt),
      cid_num_(request.cid_num),
      braid_peer_(request.braid_magic == wire::kBraidMagic),
      pinned_(braid_peer_ && (request.braid_features & wire::kFeaturePinnedPermits) != 0),
      tells_admin_(braid_peer_ && (request.braid_features & wire::kFeatureAdminPermits) != 0),
      codec_(server.options().queue_depth),
      pd_(std::move(pd)),
      lent_(kLentMax),
      queues_(request.cid_num),
      half_open_timer_(&half_open, this),
      changed_(home_) {
  home_.schedule_after(half_open_timer_, kHalfOpenNs);
}

Session::~Session() {
  // A client that stands still in the middle of a copy must not hold up this reactor.
  if (chunks_mr_ != nullptr) {
    pd_->dereg_mr(std::move(chunks_mr_), std::shared_ptr<base::Segment>(std::move(chunks_)));
  }
}

uint32_t Session::queue_depth() const {
  return server_.options().queue_depth;
}
uint32_t Session::max_io_bytes() const {
  return server_.options().max_io_bytes;
}

KnownPath Session::known_path(uint16_t cid) const {
  KnownPath known;
  known.sess_uuid = sess_uuid_;
  known.recon_cnt = recon_cnt_;
  known.cid_num = cid_num_;
  known.state = path_.state();
  known.cid_taken = cid < queues_.size() && queues_[cid] != nullptr;
  return known;
}

std::span<std::byte> Session::chunk(uint32_t index) {
  const size_t chunk_bytes = server_.chunk_bytes();
  return {chunks_->data() + index * chunk_bytes, chunk_bytes};
}

std::optional<uint16_t> Session::owner_of(uint32_t index) const {
  if (!pinned_) return std::nullopt;
  return static_cast<uint16_t>(index < admin_permits_ ? 0 : 1 + index % (cid_num_ - 1u));
}

void Session::join(uint16_t cid, std::unique_ptr<vhca::ConnectRequest> request) {
  const ServerOptions& options = server_.options();
  wire::ConnRsp answer;
  answer.queue_depth = static_cast<uint16_t>(options.queue_depth);
  answer.max_io_size = options.max_io_bytes;
  answer.max_hdr_size = server_.chunk_bytes() - options.max_io_bytes;
  answer.braid_magic = wire::kBraidMagic;
  answer.braid_features = wire::kFeatures;
  // Without the promise that each chunk keeps to one connection, one thread must have them all.
  Worker& worker = server_.worker(pinned_ ? cid : 0);
  queues_[cid] = std::make_unique<Queue>(*this, worker, cid);
  queues_[cid]->accept(std::move(request), answer);
}

void Session::queue_accepted(base::Status status) {
  if (!status.ok()) {
    trouble(status.error());
    return;
  }
  ++accepted_;
  changed_.notify_all();
}

void Session::queue_opened() {
  --opens_due_;
  changed_.notify_all();
}

void Session::info_requested(std::span<const std::byte> message) {
  auto info = wire::parse_info_req(message);
  if (!info.ok()) {
    breach("malformed info request", info.error().message());
    return;
  }
  if (!bringing_up()) return;
  if (tells_admin_) admin_permits_ = info->admin_permits;
  if (admin_permits_ == 0 || admin_permits_ >= queue_depth()) {
    breach("impossible number of admin permits",
           fmt::format("info request for {} admin permits of {}: must be 1 to {}", admin_permits_,
                       queue_depth(), queue_depth() - 1));
    return;
  }
  name_ = info->session_name;
  home_.cancel(half_open_timer_);
  bring_up_task_ = bring_up();
  bring_up_task_.start();
}

/// From the info request to its answer.
base::Task<void> Session::bring_up() {
  // What the former path left at the user must have ended before anything newer begins.
  while (bringing_up() && server_.has_predecessor(*this)) {
    co_await server_.session_changed().wait();
  }
  // The predecessor may take as long as its disk; the client's own connections may not.
  if (bringing_up()) home_.schedule_after(half_open_timer_, kHalfOpenNs);
  while (bringing_up() && accepted_ < cid_num_) co_await changed_.wait();
  home_.cancel(half_open_timer_);
  if (!bringing_up()) co_return;
  base::Status status = make_chunks();
  if (!status.ok()) {
    close(status.error().message());
    co_return;
  }
  // Before the messages to the queues, which carry what the user set up to their threads.
  user_knows_ = true;
  server_.count_opened();
  server_.user().session_opened(*this);
  // Each queue must know before the client may: it would take the first request for a breach.
  for (auto& queue : queues_) {
    ++opens_due_;
    queue->open();
  }
  while (bringing_up() && opens_due_ > 0) co_await changed_.wait();
  if (!bringing_up()) co_return;

  path_.set(ServerPathState::kConnected, "info exchange done");
  struct Answer {
    wire::InfoRsp head;
    wire::SgDescriptor region;
  } answer;
  answer.head.sg_cnt = uint16_t{1};
  answer.region.address = reinterpret_cast<uint64_t>(chunks_->data());
  answer.region.key = chunks_mr_->rkey;
  answer.region.length = server_.options().queue_depth * server_.chunk_bytes();
  if (!queues_[0]->send_message(wire::bytes_of(answer))) {
    close("connection 0 was lost in the info exchange");
    co_return;
  }
  // A kernel peer has one heartbeat, on connection 0, and warns of others.
  for (auto& queue : queues_) {
    if (braid_peer_ || queue->cid() == 0) queue->watch_peer(!braid_peer_);
  }
  log_.info("session '{}' of {} opened: {} connections", name_, peer_text_, cid_num_);
}

base::Status Session::make_chunks() {
  const uint32_t depth = queue_depth();
  const size_t size_bytes = size_t{depth} * server_.chunk_bytes();
  BRAID_TRY(chunks_, home_.host().create_segment(size_bytes, "trs chunks"));
  BRAID_TRY(chunks_mr_, pd_->reg_mr(chunks_->data(), size_bytes,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  for (const LentMemory* memory : server_.lent()) {
    if (memory != nullptr && !lent_[memory->slot()]) BRAID_CHECK(borrow(*memory));
  }
  requests_ = std::make_unique<Request[]>(depth);
  for (uint32_t i = 0; i < depth; ++i) requests_[i].index = i;
  return {};
}

void Session::trouble(const base::Error& why) {
  if (!bringing_up() && !opened()) return;
  if (why.code() == Errc::kProtocol) return breach("message out of order", why.message());
  close(why.message());
}

void Session::breach(const char* reason, const std::string& detail) {
  if (!bringing_up() && !opened()) return;
  server_.count_breach(reason);
  server_.complain(fmt::format("session '{}' of {}: {}", name_, peer_text_, detail));
  close(detail);
}

std::string Session::holdup() const {
  uint64_t at_user = 0;
  for (const auto& queue : queues_) at_user += queue ? queue->at_user() : 0;
  if (at_user == 0) {
    return fmt::format("session '{}' of {}: its connections are not drained", name_, peer_text_);
  }
  return fmt::format("session '{}' of {}: {} requests have not ended at their device", name_,
                     peer_text_, at_user);
}

void Session::close(const std::string& why) {
  if (!bringing_up() && !opened()) return;
  path_.set(ServerPathState::kClosing, why);
  log_.info("session '{}' of {} ends: {}", name_, peer_text_, why);
  home_.cancel(half_open_timer_);
  changed_.notify_all();
  for (auto& queue : queues_) {
    if (!queue) continue;
    ++quiet_due_;
    queue->close();
  }
  if (quiet_due_ == 0) {
    quiet_due_ = 1;
    post_home([this] { queue_quiet(); });
  }
}

void Session::queue_quiet() {
  if (--quiet_due_ > 0) return;
  path_.set(ServerPathState::kClosed, "no request and no connection left");
  if (user_knows_) server_.user().session_closed(*this);
  server_.session_ended(*this);
}

void Session::half_open(base::Timer& timer) {
  auto& self = *static_cast<Session*>(timer.context);
  self.close(fmt::format("half open for {} s", kHalfOpenNs / base::kSecond));
}

uint64_t Session::received_count() const {
  uint64_t sum = 0;
  for (const auto& queue : queues_) sum += queue ? queue->received_count() : 0;
  return sum;
}

}  // namespace braid::trs::server
