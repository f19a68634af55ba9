// Unmapping, and the end of a node. Each device goes by itself: one that hangs holds up nobody, and
// an unmap by force reaches an unmap that is under way.
#include <algorithm>

#include "cli/node_params.h"
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

// With a device that was not there yet nothing can be lost: for CLOSE to be answered.
constexpr uint64_t kMappingPatienceNs = base::kSecond;

}  // namespace

DevicePtr NodeState::device_named(const std::string& name) const {
  for (const DevicePtr& device : devices_)
    if (device->name == name) return device;
  return nullptr;
}

void NodeState::set_phase(MappedDevice& device, DevicePhase phase) {
  device.phase = phase;
  device.since_ns = reactor_.now_ns();
  device.changed.notify_all();
}

std::string NodeState::phase_text(const MappedDevice& device) const {
  const uint64_t for_s = (reactor_.now_ns() - device.since_ns) / base::kSecond;
  switch (device.phase) {
    case DevicePhase::kMapping:
      return fmt::format("is being mapped, for {} s now", for_s);
    case DevicePhase::kMapped:
      return "is mapped";
    case DevicePhase::kUnmapping:
      return fmt::format("is being unmapped{}, for {} s now", device.force ? " by force" : "",
                         for_s);
    case DevicePhase::kGone:
      break;
  }
  return "is gone";
}

Task<Result<json>> NodeState::unmap(json params, CallerGone gone) {
  BRAID_CO_TRY(const std::string name, text_param(params, "name", ""));
  BRAID_CO_TRY(const bool force, bool_param(params, "force"));
  if (gone && gone()) co_return Error(Errc::kCanceled, "the caller has gone");
  const DevicePtr device = device_named(name);
  const WantedPtr wanted = wanted_named(name);
  if (wanted) {
    wanted->given_up = true;
    wanted_changed_.notify_all();
    if (device == nullptr) {
      co_return json{
          {"name", name}, {"device", nullptr}, {"target", wanted->what.target}, {"lost", ""}};
    }
  }
  if (device == nullptr) co_return make_error(Errc::kNotFound, "no mapped device \"{}\"", name);
  if (device->phase == DevicePhase::kMapping && !force && !wanted)
    co_return make_error(Errc::kBusy, "\"{}\" {}; --force gives it up", name, phase_text(*device));
  if (device->phase == DevicePhase::kUnmapping && !force)
    co_return make_error(Errc::kBusy, "\"{}\" {}{}; --force gives up what is not written back yet",
                         name, phase_text(*device),
                         device->remote ? " (" + device->remote->explain() + ")" : "");
  json was{{"name", device->name}, {"device", device->path}, {"target", device->target}};
  if (device->phase == DevicePhase::kMapping) {
    give_up_mapping(device);
    while (device->phase == DevicePhase::kMapping) co_await device->changed.wait();
    was["lost"] = "";
    co_return was;
  }
  if (device->phase == DevicePhase::kMapped) {
    BRAID_CO_CHECK(co_await take_away(device, force));
    was["lost"] = device->lost;
    co_return was;
  }
  insist(device);
  while (device->phase == DevicePhase::kUnmapping) co_await device->changed.wait();
  BRAID_CO_CHECK(device->outcome);
  was["lost"] = device->lost;
  co_return was;
}

/// How, without force. What is held for want of a path would be waited for.
Result<bnbd::DetachMode> NodeState::may_unmap(const MappedDevice& device) const {
  if (device.closing || device.remote->state() == bnbd::RemoteState::kOpen)
    return bnbd::DetachMode::kPolite;
  const bnbd::RemoteDeviceStatus remote = device.remote->status();
  const uint64_t held = device.filters ? device.filters->holding() : 0;
  const uint64_t waiting = remote.in_progress + remote.waiting + held;
  if (waiting == 0) return bnbd::DetachMode::kIfClean;
  return make_error(Errc::kBusy,
                    "\"{}\" cannot be written back without its server, and {} requests wait for it "
                    "({}); --force gives them up",
                    device.name, waiting, remote.explanation);
}

Task<Status> NodeState::take_away(DevicePtr device, bool force) {
  auto mode = bnbd::DetachMode::kForce;
  if (!force) {
    BRAID_CO_TRY(mode, may_unmap(*device));
  }
  device->force = false;
  set_phase(*device, DevicePhase::kUnmapping);
  while (device->following) co_await device->changed.wait();
  if (force) insist(device);
  Result<bnbd::Detached> detached = bnbd::Detached();
  for (;;) {  // again if force was asked for meanwhile
    if (device->force) mode = bnbd::DetachMode::kForce;
    detached = co_await device->kernel->detach(mode);
    if (detached.ok() || !device->force || mode == bnbd::DetachMode::kForce) break;
  }
  reactor_.cancel(device->patience);
  if (!detached.ok()) {
    Error why = detached.error();
    if (mode == bnbd::DetachMode::kIfClean && why.code() != Errc::kBusy)
      why = Error(Errc::kBusy, fmt::format("{}, and its server is away ({}); --force gives it up",
                                           why.message(), device->remote->explain()));
    device->outcome = why.with("unmapping \"{}\" ({})", device->name, device->path);
    set_phase(*device, DevicePhase::kMapped);
    co_return device->outcome;
  }
  device->lost = std::move(detached->lost);
  reactor_.log().info("unmapped {} ({})", device->target, device->path);
  device->kernel.reset();
  device->outcome = Status();
  co_await dismantle(device);
  co_return Status();
}

Task<void> NodeState::take_away_apart(DevicePtr device, bool force) {
  const Status taken = co_await take_away(device, force);
  if (!taken.ok()) device->outcome = taken;
}

/// Makes an unmap under way one by force. What is held for want of a path fails at once; with a
/// path, write-back goes on while the server answers: KernelDeviceOptions::force_flush_timeout_ns
/// without an answer are its end, and force_patience_ns that of all requests.
void NodeState::insist(const DevicePtr& device) {
  if (device->force || !device->remote) return;
  device->force = true;
  if (device->filters) reactor_.spawn(let_filters_go(device));
  have_patience(*device);
  lose_patience(device);
}

void NodeState::have_patience(MappedDevice& device) {
  device.patience_ends_ns = reactor_.now_ns() + options_.force_patience_ns;
  if (device.kernel) device.answered = device.kernel->statistics().answered();
}

void NodeState::patience_tick(base::Timer& timer) {
  auto& device = *static_cast<MappedDevice*>(timer.context);
  auto& node = *static_cast<NodeState*>(device.node);
  const DevicePtr shared = node.device_named(device.name);
  if (!shared) return;
  const bool wanted = shared->phase == DevicePhase::kMapping && !shared->closing;
  if (!wanted) return node.lose_patience(shared);
  if (!node.given_up(*shared).ok()) return node.give_up_mapping(shared);
  node.reactor_.schedule_after(shared->patience, kPatienceTickNs);
}

/// The server may be what holds the mapping up: nothing waits for it any more.
void NodeState::give_up_mapping(const DevicePtr& device) {
  device->force = true;
  if (!device->remote || device->closing) return;
  reactor_.cancel(device->patience);
  device->patience_ends_ns = reactor_.now_ns() + kMappingPatienceNs;
  begin_close(device);
  lose_patience(device);
}

/// Now and again while a device is unmapped by force, or its mapping is given up: the path may be
/// lost meanwhile. The path is dropped only when no other device needs it: a server whose disk
/// hangs may refuse the next one.
void NodeState::lose_patience(const DevicePtr& device) {
  if (device->remote->state() != bnbd::RemoteState::kOpen) return begin_close(device);
  const bool answers =
      device->kernel && device->kernel->statistics().answered() != device->answered;
  if (answers && !device->closing) have_patience(*device);
  if (reactor_.now_ns() >= device->patience_ends_ns) {
    if (!device->closing)
      reactor_.log().warning("{}: {} requests were not answered within {} s: they are given up",
                             device->target, device->remote->status().in_progress,
                             options_.force_patience_ns / base::kSecond);
    begin_close(device);
    const bool needed = std::any_of(devices_.begin(), devices_.end(), [&](const DevicePtr& other) {
      return other->session == device->session && !other->closing;
    });
    if (!needed) return device->session->session->drop_path("its last device is given up");
  }
  reactor_.schedule_after(device->patience, kPatienceTickNs);
}

void NodeState::begin_close(const DevicePtr& device) {
  if (std::exchange(device->closing, true)) return;
  reactor_.spawn(close_remote(device));
}

Task<void> NodeState::let_filters_go(DevicePtr device) {
  ++device->calls;
  co_await device->filters->let_go();
  --device->calls;
  device->changed.notify_all();
}

/// What filters hold goes to the remote device first, which ends it.
Task<void> NodeState::close_remote(DevicePtr device) {
  if (device->filters) co_await device->filters->let_go();
  co_await device->remote->close();
  if (device->filters) co_await device->filters->drained();
  device->closed = true;
  device->changed.notify_all();
}

/// What is left when the kernel has no device, or has not got one.
Task<void> NodeState::dismantle(DevicePtr device) {
  if (device->remote) {
    begin_close(device);
    while (!device->closed || device->calls > 0) co_await device->changed.wait();
    reactor_.cancel(device->patience);
    device->filters.reset();
    device->remote.reset();
  }
  if (device->session) co_await leave_session(device->session);
  device->session.reset();
  devices_.remove(device);
  set_phase(*device, DevicePhase::kGone);
}

Task<Status> NodeState::stop_server() {
  while (server_stopping_) co_await server_gone_.wait();
  if (!server_) co_return Status();
  server_stopping_ = true;
  while (server_users_ > 0) co_await server_gone_.wait();
  const Status stopped = co_await server_->stop();
  if (stopped.ok()) server_.reset();
  server_stopping_ = false;
  server_gone_.notify_all();
  co_return stopped;
}

Task<Status> NodeState::stop(bool force) {
  stopping_ = true;
  stopping_by_force_ = stopping_by_force_ || force;
  wanting_over_ = true;
  wanted_changed_.notify_all();
  if (nbd_) nbd_->set_ending(true);
  const std::list<DevicePtr> devices = devices_;
  const auto begin = [&](const DevicePtr& device) {
    device->outcome = Status();
    if (device->phase == DevicePhase::kMapped)
      reactor_.spawn(take_away_apart(device, force));
    else if (device->phase == DevicePhase::kUnmapping && force)
      insist(device);
  };
  for (const DevicePtr& device : devices) begin(device);
  std::string left;
  Status outcome;
  for (const DevicePtr& device : devices) {
    if (device->phase == DevicePhase::kMapping) {
      while (device->phase == DevicePhase::kMapping) co_await device->changed.wait();
      begin(device);
    }
    while (device->phase == DevicePhase::kUnmapping) co_await device->changed.wait();
    if (device->outcome.ok()) continue;
    outcome = device->outcome;
    left += (left.empty() ? "" : "; ") + outcome.error().message();
  }
  if (!left.empty() && !stopping_by_force_) {
    stopping_ = false;
    if (nbd_) nbd_->set_ending(false);
    co_return Error(Errc::kBusy, left);
  }
  // The kernel keeps a device that could not even be taken away by force until its last user
  // closes it; for us it ends here.
  for (const DevicePtr& device : devices) {
    while (device->phase == DevicePhase::kUnmapping) co_await device->changed.wait();
    if (device->phase != DevicePhase::kMapped) continue;
    set_phase(*device, DevicePhase::kUnmapping);
    device->kernel.reset();
    co_await dismantle(device);
  }
  while (!wanted_.empty()) co_await wanted_changed_.wait();
  co_await stop_nbd(force);
  while (path_calls_ > 0) co_await path_call_ended_.wait();
  BRAID_CO_CHECK(co_await stop_server());
  if (left.empty()) co_return Status();
  co_return Error(outcome.code(), left);
}

}  // namespace braid::cli
