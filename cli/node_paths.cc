// Sessions and their paths: which device a path goes by, who shares a session, and what operators
// do with paths (`braid path`).
#include <algorithm>

#include "base/linux_processor.h"
#include "cli/node_params.h"
#include "cli/node_state.h"
#include "cli/path_status.h"

namespace braid::cli {

using base::Errc;
using base::Error;
using base::make_error;
using base::Result;
using base::Status;
using base::Task;
using nlohmann::json;

namespace {

constexpr uint64_t kLookNs = 5 * base::kMillisecond;
// `map` goes on without a path that has not answered by then; `path add` gives it up.
constexpr uint64_t kMapPatienceNs = base::kSecond;
constexpr uint64_t kAddPatienceNs = 6 * base::kSecond;
constexpr uint64_t kWatchNs = 250 * base::kMillisecond;

bool is_settled(const trs::PathStatus& status) {
  return status.connected || status.unknown_there || status.reconnects_failed > 0;
}

std::optional<trs::PathStatus> status_of(const SharedSession& shared, size_t id) {
  if (!shared.session) return std::nullopt;
  for (const trs::PathStatus& status : shared.session->paths())
    if (status.id == id) return status;
  return std::nullopt;
}

SharedPath* find_same(SharedSession& shared, const PathSpec& spec) {
  const auto found = std::find_if(shared.paths.begin(), shared.paths.end(),
                                  [&](const SharedPath& path) { return path.spec == spec; });
  return found == shared.paths.end() ? nullptr : &*found;
}

bool has_one_of(SharedSession& shared, const Paths& paths) {
  return std::any_of(paths.begin(), paths.end(), [&](const PathSpec& spec) {
    const SharedPath* const same = find_same(shared, spec);
    return same != nullptr && !same->stranger;
  });
}

std::string known_paths(const SharedSession& shared) {
  std::string text;
  for (const SharedPath& path : shared.paths)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", path.id, path_text(path.spec));
  return text;
}

Error another_server(const SharedSession& shared, const PathSpec& spec) {
  return make_error(Errc::kStale,
                    "path {}: another server listens there than at {}, it does not know the "
                    "session; all paths of a session lead to one server",
                    path_text(spec), shared.server);
}

/// Of two sessions to one server.
const char* difference(const SessionKind& one, const SessionKind& other) {
  if (one == other) return "keys";
  return one.reactors == other.reactors ? "guards of reads" : "numbers of reactors";
}

Result<trs::PathPolicy> parse_policy(const std::string& text) {
  using trs::PathPolicy;
  for (const PathPolicy policy :
       {PathPolicy::kRoundRobin, PathPolicy::kMinInflight, PathPolicy::kMinLatency})
    if (text == to_string(policy)) return policy;
  return make_error(Errc::kInvalid,
                    "path policy \"{}\": want round-robin, min-inflight or min-latency", text);
}

}  // namespace

/// With those of the paths that the session does not have yet. Another key is another session, and
/// so is another kind.
Task<Result<SessionPtr>> NodeState::join_session(std::vector<PathSpec> paths, trs::KeyPtr key,
                                                 SessionKind kind) {
  const auto found = std::find_if(sessions_.begin(), sessions_.end(), [&](const SessionPtr& one) {
    const bool lost = one->session && one->session->state() == trs::SessionState::kLost;
    return !lost && has_one_of(*one, paths) && one->proves(key) && one->kind == kind;
  });
  if (found == sessions_.end())
    co_return co_await open_session(std::move(paths), std::move(key), kind);
  const SessionPtr joined = *found;
  ++joined->users;
  if (!joined->session && joined->opened.ok()) co_await joined->tried.wait();
  // Else whoever tried has put it out of the list.
  if (!joined->opened.ok()) co_return joined->opened.error();
  Status joins = co_await leads_there(joined, paths);
  if (joins.ok()) joins = co_await add_missing(joined, std::move(paths));
  if (joins.ok()) co_return joined;
  co_await leave_session(joined);
  co_return joins.error();
}

/// That one of the paths is known to lead to the session's server: the name of a disk means another
/// disk at another one. Of a session without any path that is up it is found out later, by the
/// identity of each device.
Task<Status> NodeState::leads_there(SessionPtr shared, std::vector<PathSpec> paths) {
  std::string down;
  for (const PathSpec& spec : paths) {
    const SharedPath* const same = find_same(*shared, spec);
    if (same == nullptr) continue;
    const size_t id = same->id;
    BRAID_CO_CHECK(co_await fits(shared, id, kMapPatienceNs));
    const std::optional<trs::PathStatus> status = status_of(*shared, id);
    if (status && status->connected) co_return Status();
    down += fmt::format("{}{} ({})", down.empty() ? "" : ", ", path_text(spec),
                        !status               ? "removed"
                        : status->why.empty() ? "no answer"
                                              : status->why);
  }
  if (shared->session->state() != trs::SessionState::kConnected) co_return Status();
  co_return make_error(Errc::kDisconnected,
                       "no answer at {}; the session to {} has that path and is up by others: "
                       "name one of those, if the disk is to come from there",
                       down, shared->server);
}

Status NodeState::options_for(const std::vector<PathSpec>& paths, SessionKind kind,
                              bnbd::RemoteSessionOptions& options, vhca::Device*& first) {
  options.transport.session_name = fmt::format("{}.{}", host_.host_name(), options_.name);
  options.transport.server = paths.front().server;
  options.transport.processor = &base::linux_processor;
  BRAID_TRY(options.transport.reactors, reactors_(kind.reactors));
  options.guard_reads = kind.guard_reads;
  BRAID_TRY(first, hcas_.for_path(paths.front()));
  for (size_t i = 1; i < paths.size(); ++i) {
    bnbd::RemotePath further;
    further.server = paths[i].server;
    BRAID_TRY(further.device, hcas_.for_path(paths[i]));
    options.paths.push_back(further);
  }
  return {};
}

Task<Result<SessionPtr>> NodeState::open_session(std::vector<PathSpec> paths, trs::KeyPtr key,
                                                 SessionKind kind) {
  bnbd::RemoteSessionOptions options;
  vhca::Device* device = nullptr;
  BRAID_CO_CHECK(options_for(paths, kind, options, device));
  options.transport.key = key;
  const auto shared = std::make_shared<SharedSession>(address_text(paths.front().server),
                                                      std::move(key), kind, reactor_);
  for (const PathSpec& path : paths) shared->paths.push_back({path, shared->paths.size()});
  shared->number = ++sessions_numbered_;
  shared->users = 1;
  sessions_.push_back(shared);
  auto session = co_await bnbd::RemoteSession::open(*device, std::move(options));
  if (session.ok()) {
    shared->session = std::move(*session);
  } else {
    shared->opened = session.error();
    sessions_.remove(shared);
  }
  shared->tried.notify_all();
  if (!session.ok()) co_return session.error();
  Status fit;
  for (size_t id = 0; id < paths.size() && fit.ok() && paths.size() > 1; ++id) {
    fit = co_await fits(shared, id, kMapPatienceNs);
    if (!fit.ok()) (void)co_await remove_path(shared, id);  // others may have joined meanwhile
  }
  watch(shared);
  if (fit.ok()) co_return shared;
  co_await leave_session(shared);
  co_return fit.error();
}

Task<void> NodeState::leave_session(SessionPtr session) {
  if (--session->users > 0) co_return;
  sessions_.remove(session);  // who comes now opens one of its own
  if (!session->session) co_return;
  co_await session->session->close();
  session->session.reset();
}

/// Waits until a path is up or is known not to come up now. An error if another server is there;
/// a path that is only down is none: it is tried again and again, and watched.
Task<Status> NodeState::fits(SessionPtr shared, size_t id, uint64_t patience_ns) {
  const uint64_t until_ns = reactor_.now_ns() + patience_ns;
  for (;;) {
    const std::optional<trs::PathStatus> status = status_of(*shared, id);
    if (!status || status->connected) co_return Status();
    if (status->unknown_there) {
      for (const SharedPath& path : shared->paths)
        if (path.id == id) co_return another_server(*shared, path.spec);
    }
    if (is_settled(*status) || reactor_.now_ns() >= until_ns) co_return Status();
    co_await reactor_.sleep_ns(kLookNs);
  }
}

/// As long as the session has several paths: one that turns out to lead to another server is taken
/// down for good, as the session would move there when its other paths are lost.
void NodeState::watch(const SessionPtr& shared) {
  if (shared->watched || shared->paths.size() < 2) return;
  shared->watched = true;
  reactor_.spawn(watch_paths(shared));
}

Task<void> NodeState::watch_paths(std::weak_ptr<SharedSession> session) {
  for (;;) {
    co_await reactor_.sleep_ns(kWatchNs);
    const SessionPtr shared = session.lock();
    if (!shared || !shared->session) co_return;
    for (SharedPath& path : shared->paths) look_for_stranger(*shared, path);
    shared->watched = shared->paths.size() > 1;
    if (!shared->watched) co_return;
  }
}

void NodeState::look_for_stranger(SharedSession& shared, SharedPath& path) {
  const std::optional<trs::PathStatus> status = status_of(shared, path.id);
  if (!status || path.stranger) return;
  const bool up = shared.session->state() == trs::SessionState::kConnected;
  if (!status->unknown_there || !up) {
    path.stranger_since_ns = 0;
    return;
  }
  if (path.stranger_since_ns == 0) path.stranger_since_ns = reactor_.now_ns();
  if (reactor_.now_ns() - path.stranger_since_ns < options_.stranger_after_ns) return;
  reactor_.log().warning("session to {}: path {} to {} is taken down: another server is there",
                         shared.server, path.id, address_text(status->server));
  path.stranger = shared.session->disconnect_path(path.id).ok();
}

/// One more path; its id. What fails leaves no path.
Task<Result<size_t>> NodeState::add_path(SessionPtr shared, PathSpec path, bool must_connect) {
  if (const SharedPath* const same = find_same(*shared, path))
    co_return make_error(Errc::kExists, "the session to {} has the path {} already, as path {}",
                         shared->server, path_text(path), same->id);
  if (shared->paths.size() >= kPathsMax)
    co_return make_error(Errc::kNoMemory, "the session to {} has {} paths; that is the most",
                         shared->server, shared->paths.size());
  bnbd::RemotePath way;
  way.server = path.server;
  BRAID_CO_TRY(way.device, hcas_.for_path(path));
  BRAID_CO_TRY(const size_t id, shared->session->add_path(way));
  shared->paths.push_back({path, id});
  watch(shared);
  Status fit = co_await fits(shared, id, must_connect ? kAddPatienceNs : kMapPatienceNs);
  const std::optional<trs::PathStatus> status = status_of(*shared, id);
  const bool session_up = shared->session->state() == trs::SessionState::kConnected;
  if (fit.ok() && must_connect && session_up && status && !status->connected)
    fit = make_error(Errc::kDisconnected, "path {}: {}; it was not added", path_text(path),
                     status->why.empty() ? "no answer" : status->why);
  if (fit.ok()) co_return id;
  (void)co_await remove_path(shared, id);
  co_return fit.error();
}

Task<Status> NodeState::add_missing(SessionPtr shared, std::vector<PathSpec> paths) {
  for (const PathSpec& path : paths) {
    if (const SharedPath* const same = find_same(*shared, path)) {
      if (same->stranger) co_return another_server(*shared, path);
      continue;
    }
    const auto added = co_await add_path(shared, path, /*must_connect=*/false);
    if (!added.ok() && added.code() != Errc::kExists) co_return added.error();
  }
  co_return Status();
}

Task<Status> NodeState::remove_path(SessionPtr shared, size_t id) {
  Status removed = co_await shared->session->remove_path(id);
  if (removed.ok()) std::erase_if(shared->paths, [id](const auto& path) { return path.id == id; });
  co_return removed;
}

/// By a device's name, path or target, or by an address of the server.
Result<SessionPtr> NodeState::session_named(const std::string& name) const {
  for (const DevicePtr& device : devices_) {
    const bool fit = device->name == name || device->path == name || device->target == name;
    if (fit && device->session && device->session->session) return device->session;
  }
  auto path = parse_path(name);
  std::string there;
  SessionPtr found;
  for (const SessionPtr& shared : sessions_) {
    // One that is lost goes with its last device; another may lead there by now.
    if (!shared->session || shared->session->state() == trs::SessionState::kLost) continue;
    const bool fit =
        path.ok() &&
        std::any_of(shared->paths.begin(), shared->paths.end(), [&](const SharedPath& one) {
          return one.spec.server.ip == path->server.ip && one.spec.server.port == path->server.port;
        });
    if ((fit || shared->server == name) && found)
      return make_error(Errc::kInvalid,
                        "several sessions lead to \"{}\", by different {}: name a device of the "
                        "one that is meant",
                        name, difference(found->kind, shared->kind));
    if (fit || shared->server == name) found = shared;
    there += (there.empty() ? "" : ", ") + shared->server;
  }
  if (found) return found;
  return make_error(Errc::kNotFound, "no session \"{}\"; there {}: {}", name,
                    there.empty() ? "are" : "is", there.empty() ? "none" : there);
}

Result<size_t> NodeState::path_named(const SharedSession& shared, const std::string& name) {
  std::vector<size_t> found;
  auto spec = parse_path(name);
  for (const SharedPath& path : shared.paths) {
    if (name == std::to_string(path.id)) return path.id;
    const bool same = spec.ok() && spec->server.ip == path.spec.server.ip &&
                      spec->server.port == path.spec.server.port &&
                      (spec->source.empty() || spec->source == path.spec.source);
    if (same) found.push_back(path.id);
  }
  if (found.size() == 1) return found.front();
  return make_error(found.empty() ? Errc::kNotFound : Errc::kInvalid,
                    "the session to {} has {} path \"{}\"; it has {}", shared.server,
                    found.empty() ? "no" : "more than one", name, known_paths(shared));
}

Task<Result<json>> NodeState::path_call(json params) {
  BRAID_CO_TRY(const std::string session, text_param(params, "session", ""));
  if (stopping_) co_return make_error(Errc::kCanceled, "node \"{}\" is ending", options_.name);
  BRAID_CO_TRY(const SessionPtr shared, session_named(session));
  ++shared->users;  // it stays while this lasts, and the node with it
  ++path_calls_;
  const Status done = co_await change_path(shared, params);
  json answer;
  if (done.ok()) answer = session_with_devices(*shared);
  co_await leave_session(shared);
  --path_calls_;
  path_call_ended_.notify_all();
  if (!done.ok()) co_return done.error();
  co_return answer;
}

Task<Status> NodeState::change_path(SessionPtr shared, json params) {
  BRAID_CO_TRY(const std::string action, text_param(params, "action", ""));
  BRAID_CO_TRY(const std::string name, text_param(params, "path", ""));
  BRAID_CO_TRY(const bool force, bool_param(params, "force"));
  if (action == "policy") {
    BRAID_CO_TRY(const trs::PathPolicy policy, parse_policy(name));
    shared->session->set_path_policy(policy);
    co_return Status();
  }
  if (action == "add") {
    BRAID_CO_TRY(const PathSpec path, parse_path(name));
    BRAID_CO_TRY(const std::vector<PathSpec> found, co_await addresses_of(path));
    if (found.size() > 1) co_return several_addresses(path, found);
    const auto added = co_await add_path(shared, found.front(), /*must_connect=*/true);
    if (!added.ok()) co_return added.error();
    co_return Status();
  }
  BRAID_CO_TRY(const size_t id, path_named(*shared, name));
  if (action == "reconnect") {
    for (SharedPath& path : shared->paths)
      if (path.id == id) path.stranger = false, path.stranger_since_ns = 0;
    co_return shared->session->reconnect_path(id);
  }
  const bool removes = action == "remove";
  if (!removes && action != "disconnect")
    co_return make_error(Errc::kNotSupported,
                         "unknown action \"{}\": want add, remove, disconnect, reconnect or policy",
                         action);
  BRAID_CO_CHECK(may_lose(*shared, id, removes, force));
  if (removes) co_return co_await remove_path(shared, id);
  co_return shared->session->disconnect_path(id);
}

/// Whether the session has another path / another that carries requests.
Status NodeState::may_lose(const SharedSession& shared, size_t id, bool for_good, bool force) {
  bool others = false, others_up = false, up = false;
  for (const trs::PathStatus& status : shared.session->paths()) {
    if (status.id == id) {
      up = status.connected;
      continue;
    }
    others = others || !status.disconnected_by_operator;
    others_up = others_up || status.connected;
  }
  if (for_good && !others)
    return make_error(
        Errc::kInvalid, "path {} is the last one of the session to {}{}: unmap its devices instead",
        id, shared.server, shared.paths.size() > 1 ? " that is not disconnected" : "");
  if (!up || others_up || force) return {};
  return make_error(Errc::kBusy,
                    "path {} is the only one of the session to {} that is connected: without it "
                    "all I/O waits; --force does it all the same",
                    id, shared.server);
}

}  // namespace braid::cli
