// Session: its paths, as its user sees and changes them.
#include <algorithm>

#include "trs/client/session.h"

namespace braid::trs::client {

using base::Errc;
using base::make_error;

Path* Session::find(size_t id) const {
  Path* const path = id < paths_.size() ? paths_[id].get() : nullptr;
  return path != nullptr && !path->removing() ? path : nullptr;
}

/// In turn, those that are disconnected left out; null: all are.
Path* Session::next_path() {
  for (size_t i = 0; i < paths_.size(); ++i) {
    Path* const path = paths_[next_path_++ % paths_.size()].get();
    if (path != nullptr && !path->disabled()) return path;
  }
  return nullptr;
}

/// That an attempt may choose.
size_t Session::usable_paths() const {
  return static_cast<size_t>(std::count_if(
      paths_.begin(), paths_.end(), [](const auto& path) { return path && !path->disabled(); }));
}

base::Result<size_t> Session::add_path(const PathOptions& path) {
  if (path.device >= domain_.devices()) {
    return make_error(Errc::kInvalid, "a path to {} by device {}: there are {}", path.server.ip,
                      path.device, domain_.devices());
  }
  if (closing_) return make_error(Errc::kCanceled, "the session is being closed");
  if (state() == SessionState::kLost) return *why_;
  PathOptions options = path;
  if (options.server.port == 0) options.server.port = wire::kDefaultPort;
  paths_.push_back(std::make_unique<Path>(*this, paths_.size(), options));
  if (alive_incarnation_) paths_.back()->start_keeping();
  wake();
  return paths_.back()->number();
}

base::Task<base::Status> Session::remove_path(size_t id) {
  const std::shared_ptr<base::Signal> changed = changed_;
  Path* const path = find(id);
  if (path == nullptr) co_return make_error(Errc::kNotFound, "there is no path {}", id);
  const auto others = [&] {
    return std::any_of(paths_.begin(), paths_.end(), [&](const auto& other) {
      return other && other.get() != path && !other->disabled();
    });
  };
  if (!others()) {
    co_return make_error(Errc::kInvalid, "path {} is the session's last: close the session", id);
  }
  path->set_removing();
  path->set_disabled(true);
  // keep() takes its requests to others; the end of an incarnation takes all back.
  const auto in_use = [&] {
    return beginning_ == path || ending_ || (alive_incarnation_ && !path->idle());
  };
  while (!closing_ && in_use()) co_await changed->wait();
  path->stop_keeping();
  co_await path->fenced();
  if (closing_) co_return make_error(Errc::kCanceled, "the session is being closed");
  path->mark_down(make_error(Errc::kCanceled, "removed"));
  co_await path->remove();
  paths_[id].reset();
  co_return base::Status();
}

base::Status Session::disconnect_path(size_t id) {
  Path* const path = find(id);
  if (path == nullptr) return make_error(Errc::kNotFound, "there is no path {}", id);
  path->set_disabled(true);
  return {};
}

base::Status Session::reconnect_path(size_t id) {
  Path* const path = find(id);
  if (path == nullptr) return make_error(Errc::kNotFound, "there is no path {}", id);
  if (state() == SessionState::kLost) return *why_;
  if (path->connected()) path->lose(make_error(Errc::kCanceled, "to be made anew"));
  path->set_disabled(false);
  at_once_ = true;
  return {};
}

size_t Session::link_down(std::span<const vhca::Device* const> adapter, uint8_t port) {
  const auto goes_by_it = [&](const Path& path) {
    const vhca::Device* const device = &domain_.device(path.device_index());
    return std::find(adapter.begin(), adapter.end(), device) != adapter.end() &&
           (path.port() == port || path.port() == 0);
  };
  std::vector<Path*> lost;
  bool another = false;
  for (const auto& path : paths_) {
    if (!path || !path->connected()) continue;
    if (goes_by_it(*path)) {
      lost.push_back(path.get());
    } else {
      another = true;
    }
  }
  if (!another) return 0;
  for (Path* const path : lost) {
    path->lose(make_error(Errc::kDisconnected, "the link of {} port {} is down",
                          domain_.device(path->device_index()).info().name, port));
  }
  return lost.size();
}

std::vector<PathStatus> Session::paths() const {
  std::vector<PathStatus> all;
  for (const auto& path : paths_) {
    if (path) all.push_back(path->status());
  }
  return all;
}

void Session::set_policy(PathPolicy policy) {
  options_.policy = policy;
  for (const auto& queue : queues_) queue->set_policy(policy);
}

}  // namespace braid::trs::client
