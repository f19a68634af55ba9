// What a node counts: gathered on its reactor a few devices at a time, so that requests wait for
// tens of microseconds (disks that wait for a server, which come first, all at once: a few for each
// of them); text and JSON are made of it elsewhere.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/metrics/sample.h"
#include "cli/node_state.h"

namespace braid::cli {

using base::Result;
using base::Task;
using nlohmann::json;

namespace {

constexpr size_t kDevicesPerTurn = 4;
constexpr const char* kRemote = "remote";

std::string device_state(const MappedDevice& device) {
  if (device.phase == DevicePhase::kMapped && device.remote)
    return std::string(to_string(device.remote->state()));
  return device.phase == DevicePhase::kMapping ? "mapping" : "unmapping";
}

DeviceSample sample_device(const MappedDevice& device) {
  DeviceSample sample;
  sample.name = device.name;
  sample.path = device.path;
  sample.target = device.target;
  sample.backend = kRemote;
  sample.state = device_state(device);
  if (device.session) {
    sample.server = device.session->server;
    sample.session = device.session->number;
  }
  if (device.kernel) {
    sample.kernel = true;
    sample.kernel_alive = device.kernel->alive();
    sample.of_kernel = device.kernel->statistics();
  }
  if (device.filters)
    for (const auto& filter : device.filters->filters())
      sample.filters.push_back(
          {std::string(to_string(filter->kind())), filter->text(), filter->counters()});
  if (!device.remote) return sample;
  const bnbd::RemoteDeviceStatus status = device.remote->status();
  sample.gave_up = status.gave_up;
  sample.size_bytes = status.info.size_bytes;
  sample.in_progress = status.in_progress;
  sample.waiting = status.waiting;
  sample.sent = status.requests_sent;
  sample.reopened = status.reopened;
  sample.losses = status.losses;
  sample.flushes_failed = status.flushes_failed;
  sample.io = status.statistics;
  for (size_t kind = 0; kind < bnbd::kLatencyKinds; ++kind)
    sample.latency[kind] = sample_of(device.remote->latency(static_cast<bnbd::LatencyKind>(kind)));
  return sample;
}

DeviceSample sample_waiting(const WantedDevice& wanted) {
  DeviceSample sample;
  sample.name = wanted.what.name;
  sample.target = wanted.what.target;
  sample.backend = kRemote;
  sample.state = "waiting";
  return sample;
}

DeviceSample sample_local(const LocalExport& local) {
  DeviceSample sample;
  sample.name = local.name;
  sample.path = local.front->path();
  sample.target = local.target;
  sample.backend = local.backend;
  sample.state = "open";
  sample.kernel = sample.kernel_alive = true;
  sample.of_kernel = local.front->statistics();
  sample.size_bytes = local.device->info().size_bytes;
  sample.in_progress = sample.of_kernel.in_flight;
  sample.io = local.device->statistics();
  for (size_t kind = 0; kind < bnbd::kLatencyKinds; ++kind)
    sample.latency[kind] = sample_of(local.front->latency(static_cast<bnbd::LatencyKind>(kind)));
  return sample;
}

/// Of kPathStates.
std::string path_state(const trs::PathStatus& status, bool stranger) {
  if (status.connected) return "connected";
  if (stranger || status.disconnected_by_operator) return "down";
  if (status.state == "connecting") return "connecting";
  return status.state.starts_with("connecting") || status.state == "reconnecting" ? "reconnecting"
                                                                                  : "down";
}

const char* peer_word(bool braid) {
  return braid ? "Braid" : "Linux";
}

ExportSample sample_export(const bnbd::ExportStatus& status) {
  ExportSample sample;
  sample.name = status.name;
  sample.kind = status.kind;
  sample.size_bytes = status.info.size_bytes;
  sample.io = status.statistics;
  for (const bnbd::HolderStatus& holder : status.holders) {
    uint64_t& count = holder.mode == "ro"   ? sample.holders.ro
                      : holder.mode == "rw" ? sample.holders.rw
                                            : sample.holders.migration;
    ++count;
  }
  return sample;
}

ClientSample sample_client(const bnbd::SessionStatus& status) {
  ClientSample sample;
  sample.number = status.number;
  sample.name = status.name;
  sample.peer = status.peer;
  sample.kind = peer_word(status.braid_peer);
  sample.devices = status.devices.size();
  for (const bnbd::SessionStatus::Device& device : status.devices)
    sample.in_flight += device.in_flight;
  for (size_t i = 0; i < status.path_peers.size() && i < status.path_statistics.size(); ++i)
    sample.paths.push_back({status.path_peers[i], status.path_statistics[i]});
  return sample;
}

}  // namespace

SessionSample NodeState::sample_session(const SharedSession& shared) const {
  const bnbd::RemoteSession& session = *shared.session;
  SessionSample sample;
  sample.number = shared.number;
  sample.server = shared.server;
  sample.peer = peer_word(session.limits().braid_peer);
  sample.state = to_string(session.state());
  sample.queue_depth = session.limits().queue_depth;
  sample.all = session.statistics();
  sample.reactors = session.statistics_by_reactor();
  for (const trs::PathStatus& status : session.paths()) {
    PathSample path;
    path.id = status.id;
    path.path = address_text(status.server);
    path.hca = status.device;
    bool stranger = false;
    for (const SharedPath& known : shared.paths) {
      if (known.id != status.id) continue;
      path.path = path_text(known.spec);
      stranger = known.stranger;
      if (hcas_.soft() && known.spec.source.empty())
        path.hca = hca_to(address_text(known.spec.server));
    }
    path.state = path_state(status, stranger);
    path.reconnects = status.reconnects;
    path.reconnects_failed = status.reconnects_failed;
    path.failed_over = status.failed_over;
    path.connections = status.connections;
    sample.paths.push_back(std::move(path));
  }
  return sample;
}

/// All but the devices.
void NodeState::sample_rest(NodeSample& sample) const {
  if (nbd_) sample.nbd = {.serves = true, .door = nbd_->status()};
  for (const SessionPtr& shared : sessions_)
    if (shared->session) sample.sessions.push_back(sample_session(*shared));
  if (!server_) return;
  sample.server.serves = true;
  sample.server.exports = server_->statistics();
  sample.server.transport = server_->transport_statistics();
  for (const bnbd::ExportStatus& status : server_->exports())
    sample.exports.push_back(sample_export(status));
  for (const bnbd::SessionStatus& status : server_->session_statuses())
    sample.clients.push_back(sample_client(status));
}

/// Of one that is of this process, is mapped, or is to be; nothing if there is none of that name.
std::optional<DeviceSample> NodeState::sample_named(const std::string& name) const {
  if (const LocalExport* const local = local_named(name)) return sample_local(*local);
  if (const DevicePtr device = device_named(name)) return sample_device(*device);
  if (const WantedPtr wanted = wanted_named(name)) return sample_waiting(*wanted);
  return std::nullopt;
}

/// What is of this process or wanted is told of by its name, with the first part: each attempt at
/// what is wanted comes and goes as another device, and a sample without it would let an alert
/// begin to wait anew.
Task<NodeSample> NodeState::sample(SampleRange range) {
  NodeSample sample;
  sample.node = options_.name;
  sample.role = options_.role;
  sample.version = BRAID_VERSION;
  sample.hca = hcas_.text();
  sample.at_ns = reactor_.now_ns();
  if (range.from == 0) sample_rest(sample);
  std::set<std::string> named;
  for (const LocalExport& local : locals_) named.insert(local.name);
  for (const WantedPtr& wanted : wanted_)
    if (!wanted->given_up) named.insert(wanted->what.name);
  // A copy: devices come and go between two turns.
  std::vector<DevicePtr> devices;
  for (const DevicePtr& device : devices_)
    if (!named.contains(device->name)) devices.push_back(device);
  if (range.from != 0) named.clear();
  const uint64_t begin = std::min<uint64_t>(range.from, devices.size());
  const uint64_t end = begin + std::min<uint64_t>(range.at_most, devices.size() - begin);
  if (end < devices.size()) sample.more_from = end;
  sample.devices.reserve(named.size() + end - begin);
  size_t told = 0;
  for (const std::string& name : named) {
    if (++told % kDevicesPerTurn == 0) co_await reactor_.sleep_ns(0);
    if (auto one = sample_named(name)) sample.devices.push_back(std::move(*one));
  }
  for (uint64_t i = begin; i < end; ++i) {
    if (++told % kDevicesPerTurn == 0) co_await reactor_.sleep_ns(0);
    if (devices[i]->phase != DevicePhase::kGone)
      sample.devices.push_back(sample_device(*devices[i]));
  }
  co_return sample;
}

Task<void> NodeState::sample_for(json params, std::function<void(Result<json>)> answer) {
  SampleRange range;
  range.at_most = kDevicesPerSample;
  if (const auto from = params.find("from"); from != params.end()) {
    if (!from->is_number_unsigned()) {
      answer(base::make_error(base::Errc::kInvalid, "\"from\" must be the number of a device"));
      co_return;
    }
    range.from = from->get<uint64_t>();
  }
  NodeSample sampled = co_await sample(range);
  auto shared = std::make_shared<NodeSample>(std::move(sampled));
  std::function<void()> work = [shared, answer = std::move(answer)] {
    shared->process = sample_process();
    answer(to_json_of(*shared));
  };
  co_await reactor_.offload(std::move(work));
}

}  // namespace braid::cli
