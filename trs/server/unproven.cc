// ServerImpl: clients that have not proved a key yet, at a server that asks for one.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "trs/server/server_impl.h"

namespace braid::trs::server {

using base::Errc;
using base::make_error;

namespace {

/// With more the oldest goes, of the address that has most.
constexpr size_t kUnprovenMax = 64;
/// Those that end included, whose connections are being drained.
constexpr size_t kUnprovenEndingMax = 128;

}  // namespace

/// As with half-open sessions: a flood from one address drives out itself, and not who is far away
/// and needs some of its round trips to prove a key.
static Path* unproven_victim(const std::vector<Path*>& live) {
  std::map<std::string, size_t> counts;
  for (const Path* path : live) ++counts[path->peer_address()];
  const auto rank = [&](const Path* path) {
    return std::pair(counts[path->peer_address()], UINT64_MAX - path->number());
  };
  return *std::max_element(live.begin(), live.end(),
                           [&](const Path* a, const Path* b) { return rank(a) < rank(b); });
}

std::vector<Path*> ServerImpl::unproven() const {
  std::vector<Path*> all;
  for (const auto& session : sessions_) session->add_unproven(all);
  return all;
}

/// Rejects who cannot even begin to prove anything. What joins a path has its proof with it.
bool ServerImpl::shows_proof(wire::ConnReq& asked, Session* session,
                             vhca::ConnectRequest& request) {
  const bool braid = asked.braid_magic == wire::kBraidMagic;
  if (!braid || (asked.braid_features & wire::kFeatureAuthentication) == 0) {
    count_refused_key(refusal::kNoKey);
    reject(request, ENOKEY,
           braid ? "it shows no key, and this server lets in only clients with one"
                 : "it is no Braid (a Linux client knows no keys), and this server lets in only "
                   "clients with a key");
    return false;
  }
  if (asked.cid == 0) return true;
  if (session != nullptr && session->joined_path(asked) != nullptr) return true;
  count_refused_key(refusal::kUnprovenConnection);
  reject(request, EKEYREJECTED,
         fmt::format("connection {} without a proof that it is of an authenticated path",
                     uint16_t{asked.cid}));
  return false;
}

void ServerImpl::take_unproven(size_t endpoint, const wire::ConnReq& asked, Session* session,
                               Admission::Kind kind,
                               std::unique_ptr<vhca::ConnectRequest> request) {
  std::vector<Path*> others = unproven();
  if (others.size() >= kUnprovenEndingMax) {
    count_refused_key(refusal::kTooManyUnproven);
    return reject(*request, EBUSY, "too many clients that have not proved a key yet");
  }
  std::erase_if(others, [](const Path* path) { return !path->live(); });
  if (others.size() >= kUnprovenMax) {
    unproven_victim(others)->end_unproven(refusal::kTooManyUnproven,
                                          "too many others have not proved a key");
  }
  auto pd = device(endpoint).alloc_pd();
  if (!pd.ok()) return reject(*request, ENOMEM, pd.error().message());
  if (kind != Admission::Kind::kPath) {
    session = &add_session(std::make_unique<Session>(*this, asked, request->peer_text(), true));
  }
  Path& path = session->add_path(endpoint, std::move(*pd), asked, request->peer_text());
  path.join(asked, std::move(request));
}

int ServerImpl::admit_proven(Path& path, const KeyPtr& key) {
  const wire::ConnReq& asked = path.asked();
  Session& own = path.session();
  Session* const known = newest(asked.paths_uuid);
  if (known != nullptr && known->key()->name() != key->name()) {
    count_refused_key(refusal::kOthersSession);
    return EACCES;
  }
  const Admission admission = judge(asked, known, path.peer_text());
  if (admission.kind == Admission::Kind::kReject) return admission.sys_errno;
  if (admission.kind == Admission::Kind::kPath) {
    // What it wanted to join may have ended, and been replaced, since it came.
    if (known != &own) return ENXIO;
    if (Path* const former = own.live_path(asked.sess_uuid))
      former->close("its client made it anew");
    own.adopt(path);
    return 0;
  }
  if (own.proven()) return ENXIO;
  if (!make_half_open_room(asked.cid_num, &own)) return EBUSY;
  if (admission.kind == Admission::Kind::kReplace) known->close("its client came back");
  own.set_proven(key);
  const auto is_it = [&](const auto& each) { return each.get() == &own; };
  const auto at = std::find_if(sessions_.begin(), sessions_.end(), is_it);
  std::rotate(at, at + 1, sessions_.end());
  return 0;
}

base::Result<size_t> ServerImpl::set_keys(std::shared_ptr<const KeyRing> keys) {
  if (keys == nullptr || keys_ == nullptr) {
    return make_error(Errc::kInvalid, "{}",
                      keys == nullptr ? "a server that asks for keys does not stop to"
                                      : "this server was started without keys: its clients have "
                                        "proved nothing");
  }
  keys_ = std::move(keys);
  for (Path* const path : unproven()) {
    path->end_unproven(refusal::kRevoked, "the keys have changed meanwhile");
  }
  size_t ended = 0;
  for (size_t i = 0; i < sessions_.size(); ++i) {
    Session& session = *sessions_[i];
    if (!session.proven() || !session.live()) continue;
    const KeyPtr now = keys_->find(session.key_name());
    if (now != nullptr && now->same_secret(*session.key())) continue;
    count_refused_key(refusal::kRevoked);
    ++ended;
    session.close(fmt::format("key \"{}\" is not valid any more", session.key_name()));
  }
  return ended;
}

}  // namespace braid::trs::server
