// Mapping and unmapping: session, remote device, kernel device; undone from the last when one
// fails.
#include <algorithm>

#include "cli/node_state.h"

namespace braid::cli {

using base::Errc;
using base::Error;
using base::make_error;
using base::Result;
using base::Status;
using base::Task;
using nlohmann::json;

namespace {

constexpr size_t kNameMax = 32;

Status check_name(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
  if (name.empty() || name.size() > kNameMax || !plain)
    return make_error(
        Errc::kInvalid,
        "device name \"{}\": want 1 to {} letters, digits, '.', '_' or '-'; see --name", name,
        kNameMax);
  return {};
}

/// The export's last word, with what a name may not hold replaced.
std::string default_name(const std::string& export_name) {
  std::string name = export_name.substr(export_name.rfind('/') + 1).substr(0, kNameMax);
  for (char& c : name)
    if (!check_name(std::string(1, c)).ok()) c = '_';
  return name.empty() ? "disk" : name;
}

Result<bnbd::wire::AccessMode> parse_access(const std::string& text) {
  using bnbd::wire::AccessMode;
  if (text == "rw") return AccessMode::kReadWrite;
  if (text == "ro") return AccessMode::kReadOnly;
  if (text == "migration") return AccessMode::kMigration;
  return make_error(Errc::kInvalid, "access \"{}\": want rw, ro or migration", text);
}

Result<bnbd::KernelDeviceKind> parse_front_end(const std::string& text) {
  using bnbd::KernelDeviceKind;
  if (text == "auto") return KernelDeviceKind::kAuto;
  if (text == "nbd") return KernelDeviceKind::kNbd;
  if (text == "fuse") return KernelDeviceKind::kFuse;
  return make_error(Errc::kInvalid, "front end \"{}\": want auto, nbd or fuse", text);
}

/// A string member of the parameters; `fallback` if it is missing, kInvalid if it is no string.
Result<std::string> text_param(const json& params, const char* key, const char* fallback) {
  const auto found = params.find(key);
  if (found == params.end()) return std::string(fallback);
  if (!found->is_string())
    return make_error(Errc::kInvalid, "parameter \"{}\" must be a string", key);
  return found->get<std::string>();
}

/// A truth member of the parameters; false if it is missing, kInvalid if it is no truth value.
Result<bool> bool_param(const json& params, const char* key) {
  const auto found = params.find(key);
  if (found == params.end()) return false;
  if (!found->is_boolean())
    return make_error(Errc::kInvalid, "parameter \"{}\" must be true or false", key);
  return found->get<bool>();
}

}  // namespace

MappedDevice* NodeState::device_named(const std::string& name) {
  for (MappedDevice& device : devices_)
    if (device.name == name) return &device;
  return nullptr;
}

/// The device, for the caller alone until give_back() or forget(); null if there is none.
Task<MappedDevice*> NodeState::claim(std::string name) {
  for (;;) {
    MappedDevice* const device = device_named(name);
    if (device == nullptr || !device->busy) {
      if (device != nullptr) device->busy = true;
      co_return device;
    }
    co_await devices_changed_.wait();
  }
}

void NodeState::give_back(MappedDevice& device) {
  device.busy = false;
  devices_changed_.notify_all();
}

/// The session to a server, opened by the first who wants it. Who got it has to leave() it.
Task<Result<SharedSession*>> NodeState::join(vhca::Address server) {
  const std::string key = address_text(server);
  auto found = std::find_if(sessions_.begin(), sessions_.end(),
                            [&](const SharedSession& session) { return session.key == key; });
  if (found == sessions_.end()) found = sessions_.emplace(sessions_.end(), reactor_, key);
  SharedSession& shared = *found;
  ++shared.devices;
  co_await shared.turns.take();
  Status opened;
  if (shared.session == nullptr) {
    bnbd::RemoteSessionOptions options;
    options.transport.session_name = fmt::format("{}.{}", host_.host_name(), options_.name);
    options.transport.server = server;
    options.transport.reactors = {&reactor_};
    auto session = co_await bnbd::RemoteSession::open(hca_, std::move(options));
    if (session.ok()) {
      shared.session = std::move(*session);
    } else {
      opened = session.error().with("server {}", key);
    }
  }
  shared.turns.give_back();
  if (opened.ok()) co_return &shared;
  co_await leave(shared);
  co_return opened.error();
}

Task<void> NodeState::leave(SharedSession& shared) {
  co_await shared.turns.take();
  if (--shared.devices == 0 && shared.session != nullptr) {
    co_await shared.session->close();
    shared.session.reset();
  }
  shared.turns.give_back();
  // Somebody may have joined meanwhile, and opens it anew.
  if (shared.devices > 0) co_return;
  sessions_.remove_if([&](const SharedSession& other) { return &other == &shared; });
}

/// Once: what it holds fails, and what comes later.
Task<void> NodeState::close_remote(MappedDevice& device) {
  if (std::exchange(device.remote_closed, true)) co_return;
  co_await device.remote->close();
}

Task<void> NodeState::forget(MappedDevice& device) {
  if (device.remote) {
    co_await close_remote(device);
    device.remote.reset();
  }
  if (device.session != nullptr) co_await leave(*device.session);
  devices_.remove_if([&](const MappedDevice& other) { return &other == &device; });
  devices_changed_.notify_all();
}

Task<Result<json>> NodeState::map(json params) {
  BRAID_CO_TRY(const std::string target_text, text_param(params, "target", ""));
  BRAID_CO_TRY(Target target, parse_target(target_text));
  BRAID_CO_TRY(std::string name, text_param(params, "name", ""));
  if (name.empty()) name = default_name(target.export_name);
  BRAID_CO_CHECK(check_name(name));
  BRAID_CO_TRY(const std::string access, text_param(params, "access", "rw"));
  BRAID_CO_TRY(const bnbd::wire::AccessMode mode, parse_access(access));
  BRAID_CO_TRY(const std::string front_end, text_param(params, "front_end", "auto"));
  BRAID_CO_TRY(const bnbd::KernelDeviceKind kind, parse_front_end(front_end));

  BRAID_CO_TRY(const std::string limit, text_param(params, "give_up_after", "never"));
  BRAID_CO_TRY(const uint64_t give_up_after_ns, parse_duration(limit));
  // The name may have to be looked up, which blocks.
  auto resolved = std::make_shared<Result<vhca::Address>>(target.server);
  std::function<void()> look_up = [resolved, server = target.server] {
    *resolved = resolve(server);
  };
  co_await reactor_.offload(look_up);
  if (!resolved->ok()) co_return resolved->error();
  target.server = **resolved;

  if (stopping_) co_return make_error(Errc::kCanceled, "this node is being stopped");
  if (const MappedDevice* other = device_named(name))
    co_return make_error(Errc::kExists, "a device named \"{}\" {}, from {}; see --name", name,
                         other->kernel ? "is mapped already" : "is being mapped", other->target);
  MappedDevice& device = devices_.emplace_back();
  device.name = std::move(name);
  device.target = fmt::format("{}/{}", address_text(target.server), target.export_name);
  bnbd::RemoteDeviceOptions options;
  options.name = target.export_name;
  options.mode = mode;
  options.give_up_after_ns = give_up_after_ns;
  const Status mapped = co_await map_claimed(device, target.server, std::move(options), kind);
  if (!mapped.ok()) {
    co_await forget(device);
    co_return mapped.error();
  }
  give_back(device);
  co_return device_status(device);
}

Task<Status> NodeState::map_claimed(MappedDevice& device, vhca::Address server,
                                    bnbd::RemoteDeviceOptions options,
                                    bnbd::KernelDeviceKind kind) {
  BRAID_CO_TRY(device.session, co_await join(server));
  BRAID_CO_TRY(device.remote, co_await device.session->session->open_device(std::move(options)));
  bnbd::KernelDeviceOptions kernel_options;
  kernel_options.kind = kind;
  kernel_options.name = device.name;
  auto kernel = co_await bnbd::attach(reactor_, *device.remote, std::move(kernel_options));
  if (!kernel.ok()) co_return kernel.error().with("giving \"{}\" to the kernel", device.name);
  device.kernel = std::move(*kernel);
  reactor_.log().info("mapped {} as {} ({})", device.target, device.kernel->path(),
                      device.kernel->kind_text());
  co_return Status();
}

Task<Result<json>> NodeState::unmap(json params) {
  BRAID_CO_TRY(const std::string name, text_param(params, "name", ""));
  BRAID_CO_TRY(const bool force, bool_param(params, "force"));
  MappedDevice* const device = co_await claim(name);
  if (device == nullptr) co_return make_error(Errc::kNotFound, "no mapped device \"{}\"", name);
  const json gone{
      {"name", device->name}, {"device", device->kernel->path()}, {"target", device->target}};
  const Status unmapped = co_await unmap_claimed(*device, force);
  if (unmapped.ok()) co_return gone;
  give_back(*device);
  co_return unmapped.error();
}

/// The device is gone if it went well, and the caller's still if not.
Task<Status> NodeState::unmap_claimed(MappedDevice& device, bool force) {
  // What is held for want of a path would be waited for: with force it fails now.
  const bool held = device.remote->state() != bnbd::RemoteState::kOpen;
  if (held && !force)
    co_return make_error(Errc::kBusy,
                         "\"{}\" is not open at its server ({}); --force gives its I/O up",
                         device.name, device.remote->explain());
  if (held) co_await close_remote(device);
  auto detached = co_await device.kernel->detach(force);
  if (!detached.ok())
    co_return detached.error().with("unmapping \"{}\" ({})", device.name, device.kernel->path());
  reactor_.log().info("unmapped {} ({})", device.target, device.kernel->path());
  device.kernel.reset();
  co_await forget(device);
  co_return Status();
}

Task<Status> NodeState::stop(bool force) {
  stopping_ = true;
  std::vector<std::string> names;
  for (const MappedDevice& device : devices_) names.push_back(device.name);
  Status outcome;
  for (const std::string& name : names) {
    MappedDevice* const device = co_await claim(name);
    if (device == nullptr) continue;
    const Status unmapped = co_await unmap_claimed(*device, force);
    if (unmapped.ok()) continue;
    give_back(*device);
    if (outcome.ok()) outcome = unmapped;
  }
  if (!devices_.empty() && !force) {
    stopping_ = false;
    co_return make_error(Errc::kBusy, "{}", outcome.error().message());
  }
  if (server_) {
    const Status stopped = co_await server_->stop();
    if (!stopped.ok()) co_return stopped;
    server_.reset();
  }
  co_return outcome;
}

}  // namespace braid::cli
