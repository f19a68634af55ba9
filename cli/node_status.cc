// What a node is and does, as JSON: `braid list`, `show` and `why` print it.
#include "cli/node_params.h"
#include "cli/node_state.h"
#include "cli/path_status.h"
#include "cli/session_status.h"

#include <fmt/ranges.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>

namespace braid::cli {

using base::Result;
using base::Task;
using nlohmann::json;

namespace {

json to_json(const bnbd::LatencyHistogram& h) {
  const auto us = [](uint64_t ns) { return static_cast<double>(ns) / 1000; };
  return {{"count", h.count()},
          {"p50_us", us(h.percentile_ns(50))},
          {"p99_us", us(h.percentile_ns(99))},
          {"p99_9_us", us(h.percentile_ns(99.9))},
          {"max_us", us(h.max_ns())}};
}

json to_json(const bnbd::BlockInfo& info) {
  return {{"identity", info.identity},
          {"incarnation", fmt::format("{:016x}", info.incarnation)},
          {"logical_block_bytes", info.logical_block_bytes},
          {"physical_block_bytes", info.physical_block_bytes},
          {"max_io_bytes", info.max_io_bytes},
          {"max_discard_bytes", info.max_discard_bytes},
          {"max_write_zeroes_bytes", info.max_write_zeroes_bytes},
          {"max_secure_erase_bytes", info.max_secure_erase_bytes},
          {"discard_granularity_bytes", info.discard_granularity_bytes},
          {"discard_alignment_bytes", info.discard_alignment_bytes},
          {"queue_depth", info.queue_depth},
          {"read_only", info.read_only},
          {"write_cache", info.write_cache},
          {"fua", info.fua}};
}

std::string remote_state_text(const bnbd::RemoteDeviceStatus& remote) {
  return std::string(to_string(remote.state)) + (remote.gave_up ? " (gave up)" : "");
}

std::string phase_word(DevicePhase phase) {
  switch (phase) {
    case DevicePhase::kMapping:
      return "mapping";
    case DevicePhase::kMapped:
      return "mapped";
    case DevicePhase::kUnmapping:
      return "unmapping";
    case DevicePhase::kGone:
      break;
  }
  return "gone";
}

json reactor_status(const trs::ClientStatistics& s) {
  return {{"reads", s.reads},
          {"writes", s.writes},
          {"in_flight", s.in_flight},
          {"permits", s.permits},
          {"permits_free", s.permits_free},
          {"permits_lent", s.permits_lent},
          {"permits_borrowed", s.permits_borrowed}};
}

bool all_paths_up(const bnbd::RemoteSession& session) {
  const std::vector<trs::PathStatus> paths = session.paths();
  return std::all_of(paths.begin(), paths.end(), [](const auto& path) { return path.connected; });
}

std::string holders_text(const std::vector<bnbd::HolderStatus>& holders) {
  std::string text;
  for (const bnbd::HolderStatus& holder : holders)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", holder.session, holder.mode);
  return text.empty() ? "nobody" : text;
}

json export_status(const bnbd::ExportStatus& exported, const std::string& server) {
  json holders = json::array();
  for (const bnbd::HolderStatus& holder : exported.holders)
    holders.push_back(fmt::format("{} at {} ({}): {} reads, {} writes", holder.session, holder.peer,
                                  holder.mode, holder.statistics.reads, holder.statistics.writes));
  const std::string open_by = holders_text(exported.holders);
  return {{"name", exported.name},
          {"kind", exported.kind},
          {"size_bytes", exported.info.size_bytes},
          {"server", server},
          {"state", exported.holders.empty() ? "free" : "open"},
          {"open_by", open_by},
          {"holders", holders},
          {"limits", to_json(exported.info)},
          {"kernel_cache", exported.cached},
          {"statistics", block_statistics(exported.statistics)},
          {"why", {exported.holders.empty() ? "nobody has it open" : "open by " + open_by}}};
}

std::vector<std::string> filter_texts(const std::vector<bnbd::FilterSpec>& specs) {
  std::vector<std::string> texts;
  for (const bnbd::FilterSpec& spec : specs) texts.push_back(to_string(spec));
  return texts;
}

/// Of each filter what its kind counts.
json filter_status(const bnbd::Filter& filter) {
  const bnbd::FilterCounters s = filter.counters();
  json status{{"filter", filter.text()}, {"requests", s.requests}};
  switch (filter.kind()) {
    case bnbd::FilterKind::kDelay:
      status.update({{"delayed", s.held}, {"delayed_ns", s.held_ns}, {"holding", s.holding}});
      break;
    case bnbd::FilterKind::kRate:
      status.update({{"throttled", s.held}, {"throttled_ns", s.held_ns}, {"holding", s.holding}});
      break;
    case bnbd::FilterKind::kError:
      status["failed"] = s.failed;
      break;
    case bnbd::FilterKind::kChecksum:
      status.update({{"failed", s.failed},
                     {"blocks_verified", s.verified},
                     {"blocks_mismatched", s.mismatches},
                     {"blocks_unknown", s.unknown},
                     {"blocks_changing", s.changing},
                     {"blocks_partial", s.partial},
                     {"blocks_learned", s.learned},
                     {"memory_bytes", s.memory_bytes}});
      break;
  }
  return status;
}

json filter_statistics(const bnbd::FilterStack* filters) {
  json all = json::array();
  if (filters == nullptr) return all;
  for (const auto& filter : filters->filters()) all.push_back(filter_status(*filter));
  return all;
}

}  // namespace

json NodeState::session_status(const SharedSession& shared) const {
  const bnbd::RemoteSession& session = *shared.session;
  const trs::ClientStatistics s = session.statistics();
  const trs::SessionLimits& limits = session.limits();
  json paths = json::array();
  for (const trs::PathStatus& status : session.paths()) {
    PathSpec spec;
    spec.server = status.server;
    bool stranger = false;
    for (const SharedPath& path : shared.paths) {
      if (path.id != status.id) continue;
      spec = path.spec;
      stranger = path.stranger;
    }
    paths.push_back(path_status(status, spec));
    if (stranger) paths.back()["state"] = "taken down: another server is there";
    if (hcas_.soft() && spec.source.empty())
      paths.back()["device"] = hca_to(address_text(spec.server));
  }
  json by_reactor = json::array();
  for (const trs::ClientStatistics& one : session.statistics_by_reactor())
    by_reactor.push_back(reactor_status(one));
  return {{"server", session.server_text()},
          {"state", to_string(session.state())},
          {"queue_depth", limits.queue_depth},
          {"max_io_bytes", limits.max_io_bytes},
          {"peer", limits.braid_peer ? "Braid" : "another RTRS implementation"},
          {"news", news_text(limits.braid_peer, limits.notices)},
          {"not_held", not_held_by_server(limits, shared.kind.guard_reads)},
          {"key", shared.key ? json(shared.key->name()) : json(nullptr)},
          {"in_flight", s.in_flight},
          {"held", s.held},
          {"resent", s.resent},
          {"reconnects", s.reconnects},
          {"reconnects_failed", s.reconnects_failed},
          {"by_reactor", by_reactor},
          {"path_policy", to_string(session.path_policy())},
          {"paths", paths}};
}

json NodeState::session_with_devices(const SharedSession& shared) const {
  json devices = json::array();
  for (const DevicePtr& device : devices_)
    if (device->session.get() == &shared) devices.push_back(device->name);
  json session = session_status(shared);
  session["devices"] = std::move(devices);
  return session;
}

/// Of a device that has no remote device yet, or none any more.
json NodeState::unready_status(const MappedDevice& device) const {
  return {{"name", device.name},
          {"device", device.path.empty() ? json(nullptr) : json(device.path)},
          {"target", device.target},
          {"access", "-"},
          {"state", phase_word(device.phase)},
          {"size_bytes", 0U},
          {"front_end", nullptr},
          {"reactors", device.kind.reactors},
          {"guard_reads", device.kind.guard_reads},
          {"filters", filter_texts(device.filter_specs)},
          {"why", {fmt::format("'{}' {}", device.name, phase_text(device))}}};
}

json NodeState::device_status(const MappedDevice& device) const {
  if (!device.remote) return unready_status(device);
  const bnbd::RemoteDeviceStatus remote = device.remote->status();
  const bool mapped = device.phase == DevicePhase::kMapped;
  json why = json::array({remote.explanation});
  if (!mapped) why.push_back(fmt::format("'{}' {}", device.name, phase_text(device)));
  if (const bnbd::RemoteSession& session = *device.session->session;
      session.state() == trs::SessionState::kConnected && !all_paths_up(session))
    why.push_back(session.explain());
  for (const std::string& note : notes()) why.push_back(note);
  if (device.kind.reactors > options_.processors)
    why.push_back(fmt::format(
        "it has {} reactors, and this node may use {} processor{}: they take "
        "turns",
        device.kind.reactors, options_.processors, options_.processors == 1 ? "" : "s"));
  if (!device.size_trouble.empty()) why.push_back(device.size_trouble);
  if (device.filters)
    for (const std::string& text : device.filters->explain()) why.push_back(text);
  json kernel = nullptr;
  if (device.kernel) {
    const uint64_t patience_ns = device.kernel->waits_at_most_ns();
    if (patience_ns != base::kNever && remote.state != bnbd::RemoteState::kOpen)
      why.push_back(
          fmt::format("the kernel fails I/O that has waited for {}, and all I/O from then on: map "
                      "it anew then, or with --front-end fuse, which waits for as long as it takes",
                      duration_text(patience_ns)));
    const bnbd::KernelDeviceStatistics s = device.kernel->statistics();
    kernel = {{"requests", s.requests}, {"refused", s.refused},     {"errors", s.errors},
              {"starved", s.starved},   {"in_flight", s.in_flight}, {"lent_reads", s.lent_reads}};
    if (!device.kernel->alive())
      why.push_back(
          "the kernel has cut the device off (an administrator aborted it): unmap it and map it "
          "again");
  }
  return {{"name", device.name},
          {"device", device.kernel ? json(device.kernel->path()) : json(nullptr)},
          {"target", device.target},
          {"access", remote.mode},
          {"state", mapped ? remote_state_text(remote) : phase_word(device.phase)},
          {"give_up_after", duration_text(remote.give_up_after_ns)},
          {"lost_after", duration_text(remote.lost_after_ns)},
          {"kernel_gives_up_after",
           device.kernel ? json(duration_text(device.kernel->waits_at_most_ns())) : json(nullptr)},
          {"size_bytes", remote.info.size_bytes},
          {"front_end", device.kernel ? json(device.kernel->kind_text()) : json(nullptr)},
          {"reactors", device.kind.reactors},
          {"guard_reads", device.kind.guard_reads},
          {"filters", filter_texts(device.filter_specs)},
          {"hca", hca_of(*device.session)},
          {"why", why},
          {"limits", to_json(remote.info)},
          {"session", session_status(*device.session)},
          {"io_process", io_process_texts()},
          {"kernel", kernel},
          {"statistics", block_statistics(remote.statistics)},
          {"filter_statistics", filter_statistics(device.filters.get())},
          {"requests",
           {{"in_progress", remote.in_progress},
            {"waiting", remote.waiting},
            {"sent", remote.requests_sent},
            {"sent_by_reactor", remote.requests_by_reactor},
            {"reopened", remote.reopened},
            {"losses", remote.losses},
            {"flushes_failed", remote.flushes_failed}}},
          {"latency",
           {{"read", to_json(device.remote->latency(bnbd::LatencyKind::kRead))},
            {"write", to_json(device.remote->latency(bnbd::LatencyKind::kWrite))},
            {"other", to_json(device.remote->latency(bnbd::LatencyKind::kOther))}}}};
}

std::vector<std::string> NodeState::io_process_texts() const {
  std::vector<std::string> texts;
  for (const bnbd::IoProcessStep& step : io_process_)
    texts.push_back(fmt::format("{}: {}{}", step.name, step.done ? "" : "NOT done: ", step.detail));
  return texts;
}

std::vector<std::string> NodeState::notes() const {
  std::vector<std::string> notes;
  for (const bnbd::IoProcessStep& step : io_process_)
    if (!step.done)
      notes.push_back(fmt::format("it may hang when memory is short; not done: {}: {}", step.name,
                                  step.detail));
  return notes;
}

json NodeState::session_list() const {
  json list = json::array();
  for (const bnbd::SessionStatus& session : server_->session_statuses())
    list.push_back(client_session(session));
  return list;
}

json NodeState::server_status() const {
  if (!server_) return nullptr;
  const ServeOptions& serve = *options_.serve;
  std::string what = serve.root;
  const auto add = [&](const std::vector<SyntheticExport>& exports, const char* kind,
                       const char* how) {
    for (const SyntheticExport& one : exports)
      what += fmt::format("{}{} \"{}\" of {}{}", what.empty() ? "" : " and ", kind, one.name,
                          size_text(one.size_bytes), how);
  };
  add(serve.memory, "memory", serve.huge_pages ? " in huge pages" : "");
  add(serve.null, "null", "");
  const bnbd::ExportServerStatistics s = server_->statistics();
  const trs::ServerStatistics transport = server_->transport_statistics();
  json sessions = json::array();
  for (const trs::ServerSession* session : server_->sessions())
    sessions.push_back(fmt::format("{} from {}", session->name(), session->peer_text()));
  json endpoints = json::array();
  for (const vhca::Address& address : server_->addresses())
    endpoints.push_back(address_text(address));
  return {{"listen", address_text(server_->address())},
          {"endpoints", endpoints},
          {"root", serve.root},
          {"what", what},
          {"hca", hcas_.text()},
          {"read_only", serve.read_only},
          {"chunk_guard", std::string(to_string(serve.chunk_guard))},
          {"sessions", sessions},
          {"session_list", session_list()},
          {"force_closed", s.force_closed},
          {"sessions_ended", s.sessions_ended},
          {"resized", s.resized},
          {"sessions_opened", transport.sessions_opened},
          {"keys_file", serve.keys_file.empty() ? json(nullptr) : json(serve.keys_file)},
          {"connects_refused", transport.connects_refused},
          {"polls", transport.polls},
          {"unproven", transport.unproven},
          {"keys_refused", transport.keys_refused},
          {"breaches", transport.breaches},
          {"opened", s.opened},
          {"closed", s.closed},
          {"opens_refused", s.opens_refused},
          {"requests_refused", s.requests_refused},
          {"reactors", s.requests.size()},
          {"requests_by_reactor", s.requests},
          {"requests_handed_over", s.handed_over}};
}

/// The devices by which a session's paths go.
std::string NodeState::hca_of(const SharedSession& shared) const {
  if (hcas_.soft()) return hca_to(shared.server);
  if (!shared.session) return hcas_.text();
  std::vector<std::string> names;
  for (const trs::PathStatus& path : shared.session->paths())
    if (std::find(names.begin(), names.end(), path.device) == names.end())
      names.push_back(path.device);
  return fmt::format("RDMA device{} {}", names.size() > 1 ? "s" : "", fmt::join(names, ", "));
}

/// Of the software HCA's two wires the one that this server's address takes.
std::string NodeState::hca_to(const std::string& server) const {
  auto address = parse_address(server);
  const bool local = address.ok() && host_.is_local_address(address->ip);
  return local && !options_.tcp_within_host ? "software HCA, shared memory inside this host"
                                            : "software HCA, TCP";
}

/// All but the lists of what it has.
json NodeState::about() const {
  return {{"node", options_.name},
          {"role", options_.role},
          {"pid", getpid()},
          {"version", BRAID_VERSION},
          {"hca", hcas_.text()},
          {"metrics", metrics_url_.empty() ? json(nullptr) : json(metrics_url_)},
          {"server", server_status()},
          {"nbd", nbd_status()},
          {"heap_used_bytes", mallinfo2().uordblks},
          {"io_process", io_process_texts()},
          {"notes", notes()}};
}

Task<Result<json>> NodeState::status(json params) {
  BRAID_CO_TRY(const std::string only, text_param(params, "only", ""));
  // A turn goes on with I/O behind each few of them.
  constexpr size_t kPerTurn = 8;
  size_t told = 0;
  json devices = json::array();
  for (const LocalExport& local : locals_) devices.push_back(local_status(local));
  // Of one moment: they come and go between two turns.
  std::vector<json> wanted;
  for (const WantedPtr& one : wanted_)
    if (device_named(one->what.name) == nullptr) wanted.push_back(wanted_status(*one));
  const std::vector<DevicePtr> mapped(devices_.begin(), devices_.end());
  for (const DevicePtr& device : mapped) {
    const bool meant =
        only.empty() || device->name == only || device->path == only || device->target == only;
    if (!meant) continue;
    if (++told % kPerTurn == 0) co_await reactor_.sleep_ns(0);
    if (device->phase != DevicePhase::kGone) devices.push_back(device_status(*device));
  }
  for (json& one : wanted) devices.push_back(std::move(one));
  json sessions = json::array();
  const std::vector<SessionPtr> shared_sessions(sessions_.begin(), sessions_.end());
  for (const SessionPtr& shared : shared_sessions) {
    if (!shared->session) continue;
    if (++told % kPerTurn == 0) co_await reactor_.sleep_ns(0);
    if (shared->session) sessions.push_back(session_with_devices(*shared));
  }
  json exports = json::array();
  const std::string listen = server_ ? address_text(server_->address()) : "";
  const std::vector<bnbd::ExportStatus> exported =
      server_ ? server_->exports() : std::vector<bnbd::ExportStatus>();
  for (const bnbd::ExportStatus& one : exported) {
    if (!only.empty() && one.name != only) continue;
    if (++told % kPerTurn == 0) co_await reactor_.sleep_ns(0);
    exports.push_back(export_status(one, listen));
  }
  json all = about();
  all["devices"] = std::move(devices);
  all["sessions"] = std::move(sessions);
  all["exports"] = std::move(exports);
  co_return all;
}

}  // namespace braid::cli
