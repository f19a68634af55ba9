// What operators ask for besides mapping: take devices from clients, back from the server, and
// other sizes, which the kernel's devices follow.
#include "cli/key_file.h"
#include "cli/node_params.h"
#include "cli/node_state.h"

namespace braid::cli {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;
using base::Task;
using nlohmann::json;

namespace {

constexpr uint64_t kRemapLookNs = 5 * base::kMillisecond;

}  // namespace

Task<Result<json>> NodeState::remap(json params) {
  BRAID_CO_TRY(const std::string name, text_param(params, "name", ""));
  const DevicePtr device = device_named(name);
  if (device == nullptr) co_return make_error(Errc::kNotFound, "no mapped device \"{}\"", name);
  if (device->phase != DevicePhase::kMapped)
    co_return make_error(Errc::kBusy, "\"{}\" {}", name, phase_text(*device));
  ++device->calls;
  const Status mapped = co_await remap_with_path(device);
  --device->calls;
  device->changed.notify_all();
  if (!mapped.ok()) co_return mapped.error().with("\"{}\"", name);
  co_return device_status(*device);
}

/// A device that waits for its path is opened as soon as there is one, so whoever asks while a path
/// is being made waits for that, rather than being told of what is over a moment later.
Task<Status> NodeState::remap_with_path(DevicePtr device) {
  bnbd::RemoteDevice& remote = *device->remote;
  const uint64_t until_ns = reactor_.now_ns() + options_.path_patience_ns;
  // Whoever had it meanwhile may have written to it.
  if (device->filters) device->filters->forget();
  Status asked = co_await remote.remap();
  while (asked.code() == Errc::kDisconnected) {
    do {
      const bool given_up = device->phase != DevicePhase::kMapped || reactor_.now_ns() >= until_ns;
      if (given_up) co_return make_error(Errc::kDisconnected, "{}", remote.explain());
      co_await reactor_.sleep_ns(kRemapLookNs);
    } while (remote.state() == bnbd::RemoteState::kPathDown);
    if (remote.state() == bnbd::RemoteState::kOpen) co_return Status();
    // What its operator has closed since is not ours to take.
    if (remote.state() == bnbd::RemoteState::kRevoked)
      co_return make_error(Errc::kCanceled, "{}", remote.explain());
    asked = co_await remote.remap();  // its next attempt may be a second away
  }
  co_return asked;
}

Status NodeState::check_serves() const {
  if (server_ && !server_stopping_) return {};
  return make_error(Errc::kInvalid, "node \"{}\" serves nothing", options_.name);
}

Result<json> NodeState::close_exports(const json& params) {
  BRAID_CHECK(check_serves());
  bnbd::ForceClose what;
  BRAID_TRY(what.export_name, text_param(params, "export", ""));
  BRAID_TRY(what.session, text_param(params, "session", ""));
  BRAID_TRY(const bnbd::ForceClosed closed, server_->force_close(what));
  return json{{"closed", closed.devices},
              {"sessions_ended", closed.sessions},
              {"sessions_kept", closed.kept},
              {"sessions", session_list()}};
}

Task<Result<json>> NodeState::resize_export(json params) {
  BRAID_CO_CHECK(check_serves());
  BRAID_CO_TRY(const std::string name, text_param(params, "export", ""));
  BRAID_CO_TRY(const std::string size_text_given, text_param(params, "size", ""));
  BRAID_CO_TRY(const uint64_t size_bytes, parse_size(size_text_given));
  BRAID_CO_TRY(const bool force, bool_param(params, "force"));
  ++server_users_;
  auto resized = co_await server_->resize(name, size_bytes, force);
  --server_users_;
  server_gone_.notify_all();
  if (!resized.ok()) co_return resized.error();
  co_return json{{"export", name}, {"size_bytes", *resized}};
}

/// The clients whose key is gone, or is another one now, lose their sessions.
Task<Result<json>> NodeState::reload_keys() {
  BRAID_CO_CHECK(check_serves());
  const std::string& path = options_.serve->keys_file;
  if (path.empty())
    co_return make_error(Errc::kInvalid, "node \"{}\" was started without --keys", options_.name);
  using Keys = Result<std::shared_ptr<const trs::KeyRing>>;
  const auto read = std::make_shared<Keys>(std::shared_ptr<const trs::KeyRing>());
  std::function<void()> work = [read, path, read_file = options_.read_keys] {
    *read = read_file(path);
  };
  const uint64_t number = ++key_reloads_;
  ++server_users_;
  const Status in_time = co_await read_in_time(path, std::move(work));
  --server_users_;
  server_gone_.notify_all();
  if (!in_time.ok()) co_return in_time.error();
  if (!read->ok()) co_return read->error();
  BRAID_CO_CHECK(check_serves());
  // What was read before must not bring back a key that is gone.
  if (number < keys_set_by_)
    co_return make_error(Errc::kBusy,
                         "another reload, which began later, was done before this one");
  keys_set_by_ = number;
  const std::vector<std::string> names = (**read)->names();
  BRAID_CO_TRY(const size_t ended, server_->set_keys(**read));
  reactor_.log().info("{} keys read from \"{}\"; {} sessions ended", names.size(), path, ended);
  co_return json{{"file", path}, {"keys", names}, {"sessions_ended", ended}};
}

void NodeState::watch_size(const DevicePtr& device) {
  const std::weak_ptr<MappedDevice> weak = device;
  device->remote->watch([this, weak] {
    const DevicePtr changed = weak.lock();
    if (!changed) return;
    if (changed->filters) changed->filters->size_changed();
    reactor_.spawn(follow_size(changed));
  });
  reactor_.spawn(follow_size(device));  // it may have changed while the kernel got it
}

/// One at a time; what changes meanwhile is followed in the next round.
Task<void> NodeState::follow_size(DevicePtr device) {
  if (device->following) co_return;
  device->following = true;
  while (device->phase == DevicePhase::kMapped && device->kernel &&
         device->remote->info().size_bytes != device->kernel_bytes) {
    const uint64_t size_bytes = device->remote->info().size_bytes;
    Status followed;
    if (device->filters) followed = co_await device->filters->follow_size();
    if (followed.ok()) followed = co_await device->kernel->follow_size();
    device->kernel_bytes = size_bytes;
    device->size_trouble = followed.ok() ? "" : followed.error().message();
    if (followed.ok())
      reactor_.log().info("{} has {} bytes now", device->path, size_bytes);
    else
      reactor_.log().warning("{}: {}", device->path, device->size_trouble);
  }
  device->following = false;
  device->changed.notify_all();
}

}  // namespace braid::cli
