#include "trs/server/session.h"

#include <algorithm>

#include "trs/server/server_impl.h"

namespace braid::trs::server {

namespace {

uint32_t features_shared(const wire::ConnReq& request, uint32_t own) {
  if (request.braid_magic != wire::kBraidMagic) return 0;
  return wire::usable_features(request.braid_features & own);
}

/// Never 0, nor 0 in the bits that a connect request carries.
uint32_t random_epoch(base::Host& host) {
  uint32_t epoch = 0;
  while ((epoch & wire::kJoinedEpochMask) == 0) {
    host.random(std::as_writable_bytes(std::span(&epoch, 1)));
  }
  return epoch;
}

// Draining takes microseconds, if the client does not stand in the middle of a copy.
constexpr uint64_t kDrainNs = 100 * base::kMillisecond;

}  // namespace

Session::Session(ServerImpl& server, const wire::ConnReq& request, std::string peer_text,
                 bool proof_due)
    : server_(server),
      home_(server.home()),
      peer_text_(std::move(peer_text)),
      paths_uuid_(request.paths_uuid),
      cid_num_(request.cid_num),
      braid_peer_(request.braid_magic == wire::kBraidMagic),
      features_(features_shared(request, server.features())),
      lends_(has(wire::kFeatureLentPermits) && cid_num_ > 2),
      spread_(server.next_spread()),
      epoch_(random_epoch(home_.host())),
      first_epoch_(epoch_),
      recon_cnt_(request.recon_cnt),
      proven_(!proof_due),
      codec_(server.options().queue_depth),
      lent_(home_),
      turn_shares_(server.turn_shares(client())),
      undrained_timer_(&undrained, this) {}

Session::~Session() = default;

uint32_t Session::queue_depth() const {
  return server_.options().queue_depth;
}
uint32_t Session::max_io_bytes() const {
  return server_.options().max_io_bytes;
}

size_t Session::paths() const {
  return static_cast<size_t>(std::count_if(paths_.begin(), paths_.end(), [](const auto& path) {
    return path->live() && path->proven();
  }));
}

size_t Session::connections() const {
  const auto proven = [](const auto& path) { return path->proven(); };
  return static_cast<size_t>(std::count_if(paths_.begin(), paths_.end(), proven)) * cid_num_;
}

std::string Session::client() const {
  return key_ ? "key " + key_->name() : peer_address_;
}

std::vector<std::string> Session::path_peers() const {
  std::vector<std::string> peers;
  for (const auto& path : paths_) {
    if (path->live() && path->proven()) peers.push_back(path->peer_text());
  }
  return peers;
}

std::vector<ChunkGuard> Session::path_guards() const {
  std::vector<ChunkGuard> guards;
  for (const auto& path : paths_) {
    if (path->live() && path->proven()) guards.push_back(path->guard());
  }
  return guards;
}

std::vector<std::vector<ServedStatistics>> Session::path_statistics() const {
  std::vector<std::vector<ServedStatistics>> all;
  for (const auto& path : paths_) {
    if (path->live() && path->proven()) all.push_back(path->statistics());
  }
  return all;
}

/// A window belongs to one queue pair, so which one uses a chunk must be known before it does.
/// Whether the path's device can is seen, and told, when its windows are made.
ChunkGuard Session::guard() const {
  const ChunkGuard asked = server_.options().guard;
  if (asked != ChunkGuard::kWindows) return asked;
  const bool can = has(wire::kFeatureCountedKeys) && !lends_;
  return can ? ChunkGuard::kWindows : ChunkGuard::kCopy;
}

LentShare& Session::lent_share(size_t endpoint) {
  LentQuota& quota = server_.lent_quota(endpoint);
  for (const auto& share : lent_shares_)
    if (&share->quota() == &quota) return *share;
  return *lent_shares_.emplace_back(std::make_unique<LentShare>(quota));
}

KnownSession Session::known(const wire::ConnReq& request) const {
  KnownSession known;
  known.live = live();
  known.open = state_ == State::kOpen;
  known.sequenced = sequenced();
  known.epoch = epoch_ & wire::kJoinedEpochMask;
  known.recon_cnt = recon_cnt_;
  known.cid_num = cid_num_;
  for (const auto& path : paths_) {
    if (!path->proven()) continue;
    ++known.paths;
    if (path->uuid() == request.sess_uuid) known.path = path->known(request.cid);
  }
  return known;
}

Path& Session::add_path(size_t endpoint, std::unique_ptr<vhca::Pd> pd, const wire::ConnReq& request,
                        std::string peer_text) {
  const bool proof_due = server_.keys() != nullptr;
  if (!proof_due) recon_cnt_ = request.recon_cnt;
  paths_.push_back(std::make_unique<Path>(*this, endpoint, std::move(pd), request,
                                          std::move(peer_text), proof_due));
  return *paths_.back();
}

void Session::set_proven(KeyPtr key) {
  proven_ = true;
  key_ = std::move(key);
  turn_shares_ = server_.turn_shares(client());
}

void Session::adopt(Path& path) {
  recon_cnt_ = path.recon_cnt();
  const auto is_it = [&](const auto& each) { return each.get() == &path; };
  const auto at = std::find_if(paths_.begin(), paths_.end(), is_it);
  std::rotate(at, at + 1, paths_.end());
}

Path* Session::joined_path(wire::ConnReq& request) {
  const auto found = std::find_if(paths_.begin(), paths_.end(),
                                  [&](const auto& path) { return path->proves_join(request); });
  return found != paths_.end() ? found->get() : nullptr;
}

Path* Session::live_path(const wire::Uuid& uuid) {
  for (auto it = paths_.rbegin(); it != paths_.rend(); ++it) {
    if ((*it)->uuid() == uuid && (*it)->live() && (*it)->proven()) return it->get();
  }
  return nullptr;
}

void Session::add_unproven(std::vector<Path*>& all) const {
  for (const auto& path : paths_) {
    if (!path->proven()) all.push_back(path.get());
  }
}

std::span<std::byte> Session::chunk(uint32_t index) {
  const size_t chunk_bytes = server_.chunk_bytes();
  return {chunks_->data() + index * chunk_bytes, chunk_bytes};
}

std::optional<uint16_t> Session::owner_of(uint32_t index) const {
  if (lends_ || !has(wire::kFeaturePinnedPermits)) return std::nullopt;
  return static_cast<uint16_t>(index < admin_permits_ ? 0 : 1 + index % (cid_num_ - 1u));
}

Worker& Session::worker_of(uint16_t cid) {
  if (cid == 0 || !has(wire::kFeaturePinnedPermits)) return server_.worker(0);
  return server_.worker(spread_ + cid);
}

base::Status Session::begin(const wire::ParsedInfoReq& info) {
  if (state_ != State::kBeginning) return {};
  admin_permits_ = info.admin_permits;
  name_ = info.session_name;
  BRAID_CHECK(make_chunks());
  if (const auto former = server_.take_kept_answers(*this)) take_over(*former);
  state_ = State::kOpen;
  // Before the messages to the queues, which carry what the user set up to their threads.
  user_knows_ = true;
  server_.count_opened();
  server_.user().session_opened(*this);
  return {};
}

base::Status Session::make_chunks() {
  const uint32_t depth = queue_depth();
  const size_t size_bytes = size_t{depth} * server_.chunk_bytes();
  BRAID_TRY(chunks_, home_.host().create_segment(size_bytes, "trs chunks"));
  const uint16_t slices = has(wire::kFeaturePinnedPermits) ? cid_num_ : 1;
  for (uint16_t cid = 0; cid < slices; ++cid) {
    slices_.push_back(std::make_unique<Slice>(*this, worker_of(cid)));
  }
  requests_.emplace(depth);
  headers_ = std::make_unique_for_overwrite<std::byte[]>(size_t{depth} * wire::kUserHeaderBytesMax);
  // One that is lent may have its first request by two connections at once.
  for (uint32_t i = 0; lends_ && i < depth; ++i) make_request(i);
  return {};
}

Request& Session::make_request(uint32_t index) {
  Request& request = requests_->make(index);
  request.header = {headers_.get() + size_t{index} * wire::kUserHeaderBytesMax,
                    wire::kUserHeaderBytesMax};
  request.index = index;
  request.epoch = first_epoch_;
  request.session = this;
  // A lent one finds its slice when its first request comes.
  request.slice = slices_[owner_of(index).value_or(0)].get();
  request.lent = lends_;
  request.reactor = &request.slice->worker().reactor();
  return request;
}

void Session::take_over(const KeptSession& former) {
  former_epoch_ = former.epoch;
  epoch_ = wire::next_epoch(former.epoch);
  first_epoch_ = former.first_epoch;
  for (uint32_t i = 0; i < queue_depth(); ++i) {
    if (Request* const request = made_request(i)) request->epoch = first_epoch_;
  }
  if (home_.host().mutant("kept-forgotten")) return;
  for (const KeptAnswer& answer : former.answers) {
    Request& request = request_of(answer.chunk);
    request.kept = true;
    request.epoch = answer.epoch;
    request.sequence = answer.sequence + (home_.host().mutant("kept-too-much") ? 1 : 0);
    request.cid = answer.cid;
    request.direction = answer.direction;
    request.data = chunk(answer.chunk).first(answer.data_bytes);
    request.status = answer.status;
    request.repeats = answer.repeats;
    request.has_answer_words = answer.has_words;
    request.answer_words = answer.words;
  }
}

KeptSession Session::kept_answers() const {
  const uint32_t epoch = told_ || former_epoch_ == 0 ? epoch_ : former_epoch_;
  KeptSession kept{paths_uuid_, client(), key_name(), cid_num_, first_epoch_, epoch, {}};
  if (breached_ || !requests_ || !has(wire::kFeatureKeptAnswers)) return kept;
  for (uint32_t i = 0; i < queue_depth(); ++i) {
    if (!requests_->has(i)) continue;
    const Request& request = (*requests_)[i];
    if (request.sequence == 0) continue;
    KeptAnswer& answer = kept.answers.emplace_back();
    answer.chunk = i;
    answer.cid = request.cid;
    answer.epoch = request.epoch;
    answer.sequence = request.sequence;
    answer.direction = request.direction;
    answer.data_bytes = static_cast<uint32_t>(request.data.size());
    answer.status = request.status;
    answer.repeats = request.repeats;
    answer.has_words = request.has_answer_words;
    answer.words = request.answer_words;
  }
  return kept;
}

bool Session::has_older(const Path& path) const {
  for (const auto& other : paths_) {
    if (other.get() == &path) return false;
    if (other->uuid() == path.uuid() && other->proven()) return true;
  }
  return false;
}

void Session::fence(const wire::FenceMsg& asked, Path& asker) {
  if (home_.host().mutant("fence-answered-early")) {
    return asker.send_fenced(asked.sess_uuid, asked.recon_cnt);
  }
  // A path waits once for another one: who asks again, in whatever life, is told once.
  std::erase_if(fences_, [&](const PendingFence& fence) {
    return fence.path == asked.sess_uuid && fence.asker == asker.uuid();
  });
  fences_.push_back({asked.sess_uuid, asked.recon_cnt, asker.uuid(), asker.recon_cnt()});
  Path* const live = live_path(asked.sess_uuid);
  if (live != nullptr && live->is_of(asked.recon_cnt)) live->close("its client has given it up");
  answer_fences();
}

void Session::answer_fences() {
  const auto there = [this](const PendingFence& fence) {
    return std::any_of(paths_.begin(), paths_.end(), [&](const auto& path) {
      return path->uuid() == fence.path && path->is_of(fence.recon_cnt) && path->proven();
    });
  };
  std::erase_if(fences_, [&](const PendingFence& fence) {
    Path* const asker = live_path(fence.asker);
    const bool waits = asker != nullptr && asker->recon_cnt() == fence.asker_recon_cnt;
    if (waits && there(fence)) return false;
    if (waits) asker->send_fenced(fence.path, fence.recon_cnt);
    return true;
  });
}

void Session::path_connected(Path& path) {
  told_ = true;
  server_.say_of(path.peer_text(), base::LogLevel::kInfo,
                 "session '{}' of {} open by {} paths: {} connections each", name_,
                 path.peer_text(), paths(), cid_num_);
  if (notice_raised_) path.send_notice();
}

void Session::raise_notice() {
  if (notice_raised_ || !takes_notices() || state_ != State::kOpen) return;
  notice_raised_ = true;
  send_notice();
}

/// By one path. Should it be lost, path_lost() sends the notice by another.
void Session::send_notice() {
  const auto up = std::find_if(paths_.begin(), paths_.end(),
                               [](const auto& path) { return path->connected(); });
  if (up != paths_.end()) (*up)->send_notice();
}

/// A session has no life without a connected path; the first that is not there yet has it waiting.
void Session::path_lost(bool was_connected, const std::string& why) {
  const bool others =
      std::any_of(paths_.begin(), paths_.end(), [](const auto& path) { return path->connected(); });
  // Nobody can tell whether it had brought the notice.
  if (others && notice_raised_) send_notice();
  if (others) return;
  if (was_connected || paths() == 0) close(why);
}

/// The path may be in the middle of a call, so it goes in the next turn.
void Session::path_ended(Path& path) {
  post_home([this, ended = &path] {
    std::erase_if(paths_, [ended](const auto& each) { return each.get() == ended; });
    answer_fences();
    server_.session_changed().notify_all();
    end_if_quiet();
  });
}

void Session::close(const std::string& why) {
  if (state_ == State::kClosing || state_ == State::kEnded) return;
  state_ = State::kClosing;
  server_.say_of(peer_text_, proven_ && !evicted_ ? base::LogLevel::kInfo : base::LogLevel::kDebug,
                 "session '{}' of {} ends: {}", name_, peer_text_, why);
  for (size_t i = 0; i < paths_.size(); ++i) paths_[i]->close(why);
  for (const auto& slice : slices_) {
    ++quiet_due_;
    slice->close();
  }
  home_.schedule_after(undrained_timer_, kDrainNs);
  end_if_quiet();
}

/// A client may stand in a copy as long as it likes. It keeps the memory (Path::~Path), which is of
/// this session only, so that what it still writes harms nobody; the session does not wait for it.
/// A path whose session lives on does: PathFenced says that nothing of it lands any more.
void Session::undrained(base::Timer& timer) {
  auto& self = *static_cast<Session*>(timer.context);
  if (!self.paths_.empty()) self.left_behind_.emplace_back(self.chunks_);
  for (const auto& path : self.paths_) {
    self.left_behind_.emplace_back(path->landing_memory());
    path->give_up_draining();
  }
}

void Session::breach(const std::string& detail) {
  breached_ = true;
  close(detail);
}

bool Session::end(const std::string& why) {
  if (!live()) return false;
  close(why);  // its paths end in later turns, and it after them
  return true;
}

void Session::slice_quiet() {
  --quiet_due_;
  end_if_quiet();
}

void Session::end_if_quiet() {
  if (state_ != State::kClosing || quiet_due_ > 0 || !paths_.empty()) return;
  state_ = State::kEnded;
  if (user_knows_) server_.user().session_closed(*this);
  server_.session_ended(*this);
}

std::string Session::holdup() const {
  uint64_t at_user = 0;
  for (const auto& slice : slices_) at_user += slice->at_user();
  if (at_user == 0) {
    const bool registers = std::any_of(paths_.begin(), paths_.end(),
                                       [](const auto& path) { return path->registering(); });
    return fmt::format("session '{}' of {}: its {}", name_, peer_text_,
                       registers ? "memory is being registered" : "connections are not drained");
  }
  return fmt::format("session '{}' of {}: {} requests have not ended at their device", name_,
                     peer_text_, at_user);
}

}  // namespace braid::trs::server
