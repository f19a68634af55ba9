// Half-open sessions: their client has connected, and has not asked for what opens them, or not
// made all its connections. Anybody can leave those behind, so they take no place of a session that
// is open: they have a bound of their own, and whoever has most of them loses the oldest.
#include <algorithm>
#include <map>

#include "base/ip_network.h"
#include "trs/server/server_impl.h"

namespace braid::trs::server {

using base::Errc;
using base::make_error;

namespace {

constexpr size_t kHalfOpenMax = 64;
/// Those that end included, whose connections are being drained.
constexpr size_t kHalfOpenEndingMax = 128;

/// What others are sure to find free, whoever comes from one address.
constexpr size_t share_of_address(size_t all) {
  return all - all / 4;
}

}  // namespace

std::string address_of(const std::string& peer_text) {
  const bool brackets = peer_text.starts_with('[');
  const size_t end = brackets ? peer_text.find(']') : peer_text.rfind(':');
  return base::network_of(peer_text.substr(brackets ? 1 : 0, brackets ? end - 1 : end));
}

size_t Session::connections_from(const std::string& address) const {
  size_t sum = 0;
  for (const auto& path : paths_) {
    if (path->proven() && path->peer_address() == address) sum += cid_num_;
  }
  return sum;
}

bool Session::settled() const {
  if (user_knows_) return true;
  return live() && std::none_of(paths_.begin(), paths_.end(),
                                [](const auto& path) { return path->waits_for_client(); });
}

void Session::evict() {
  evicted_ = true;
  close("it is half open, and others need its place");
}

/// What is left beside the settled sessions and what ended ones left behind, without those of one
/// client if it is given.
Room ServerImpl::room_from(const std::string& address, const wire::Uuid* but_of) const {
  size_t sessions = 0, sessions_there = 0, connections = 0, connections_there = 0;
  for (const auto& each : sessions_) {
    if (!each->proven() || !each->settled()) continue;
    if (but_of != nullptr && each->paths_uuid() == *but_of) continue;
    ++sessions;
    if (each->peer_address() == address) ++sessions_there;
    connections += each->connections();
    connections_there += each->connections_from(address);
  }
  for (const LeftBehind& each : left_behind_) {
    if (each.memory.expired()) continue;
    ++sessions;
    if (each.address == address) ++sessions_there;
  }
  const auto left = [](size_t all, size_t taken) { return all - std::min(all, taken); };
  const size_t all = options_.connections_max;
  Room room;
  room.session = sessions < options_.sessions_max;
  room.session_of_address = sessions_there < share_of_address(options_.sessions_max);
  room.connections = left(all, connections);
  room.of_address = left(share_of_address(all), connections_there);
  room.of_client = all / 2;
  return room;
}

/// There was room when it connected, but others may have been faster.
base::Status ServerImpl::check_room(Path& path) const {
  const Session& session = path.session();
  if (session.opened()) return {};  // its further paths count from their connect
  const Room room = room_from(path.peer_address(), &session.paths_uuid());
  const size_t needs = session.connections();
  const bool fits = room.session && room.session_of_address && needs <= room.connections &&
                    needs <= room.of_address;
  if (fits) return {};
  return make_error(Errc::kBusy, "the server's sessions were taken by others meanwhile");
}

/// Of the address that has most, so that many who come from one place drive out each other.
Session* ServerImpl::half_open_victim(const Session* but) const {
  std::map<std::string, size_t> counts;
  for (const auto& each : sessions_) {
    if (each.get() != but && each->half_open()) ++counts[each->peer_address()];
  }
  Session* victim = nullptr;
  size_t most = 0;
  for (const auto& each : sessions_) {  // the oldest first
    if (each.get() == but || !each->half_open()) continue;
    const size_t count = counts[each->peer_address()];
    if (count <= most) continue;
    most = count;
    victim = each.get();
  }
  return victim;
}

/// For one that is about to be half open with so many connections. False: too many have not ended.
bool ServerImpl::make_half_open_room(size_t connections, const Session* but) {
  size_t all = 0, live = 0;
  for (const auto& each : sessions_) {
    if (each.get() == but || !each->proven() || each->settled()) continue;
    ++all;
    if (!each->half_open()) continue;
    ++live;
    connections += each->connections();
  }
  if (all >= kHalfOpenEndingMax) return false;
  while (live >= kHalfOpenMax || (live > 0 && connections > options_.connections_max / 2)) {
    Session* const victim = half_open_victim(but);
    complain(victim->peer_text(),
             fmt::format("{} left a session half open: it goes, others need its place",
                         victim->peer_text()));
    ++statistics_.half_open_evicted;
    --live;
    connections -= victim->connections();
    victim->evict();
  }
  return true;
}

}  // namespace braid::trs::server
