// Mapping: session, remote device, kernel device; undone from the last when one fails.
#include <algorithm>
#include <optional>

#include "cli/key_file.h"
#include "cli/map_words.h"
#include "cli/nbd_arguments.h"
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

constexpr unsigned kLookUpsMax = 2;
constexpr unsigned kKeyReadsMax = 4;
constexpr uint64_t kTurnLookNs = 5 * base::kMillisecond;

Status check_name(const std::string& name) {
  const Status allowed = bnbd::check_device_name(name);
  if (allowed.ok()) return {};
  return make_error(allowed.code(), "{}; see --name", allowed.error().message());
}

Result<bnbd::KernelDeviceKind> parse_front_end(const std::string& text) {
  using bnbd::KernelDeviceKind;
  if (text == "auto") return KernelDeviceKind::kAuto;
  if (text == "nbd") return KernelDeviceKind::kNbd;
  if (text == "fuse") return KernelDeviceKind::kFuse;
  if (text == "nbd-server") return KernelDeviceKind::kNbdServer;
  return make_error(Errc::kInvalid, "front end \"{}\": want auto, nbd or fuse", text);
}

}  // namespace

Task<Result<json>> NodeState::map(json params, CallerGone gone) {
  BRAID_CO_TRY(const std::string target_text, text_param(params, "target", ""));
  BRAID_CO_TRY(Target target, parse_target(target_text));
  BRAID_CO_TRY(std::string name, text_param(params, "name", ""));
  if (name.empty()) name = default_device_name(target.export_name);
  BRAID_CO_CHECK(check_name(name));
  BRAID_CO_TRY(const std::string access, text_param(params, "access", "rw"));
  BRAID_CO_TRY(const std::string front_end, text_param(params, "front_end", "auto"));
  BRAID_CO_TRY(const bnbd::KernelDeviceKind kernel_kind, parse_front_end(front_end));
  if (kernel_kind == bnbd::KernelDeviceKind::kNbdServer && !nbd_)
    co_return make_error(Errc::kInvalid, "node \"{}\" is no NBD server; see braid nbd",
                         options_.name);
  BRAID_CO_TRY(const std::string limit, text_param(params, "give_up_after", "never"));
  BRAID_CO_TRY(const std::string loss, text_param(params, "lost_after", "never"));
  bnbd::RemoteDeviceOptions options;
  options.name = target.export_name;
  BRAID_CO_TRY(options.mode, parse_access(access));
  BRAID_CO_TRY(options.give_up_after_ns, parse_duration(limit));
  BRAID_CO_TRY(options.lost_after_ns, parse_duration(loss));
  SessionKind kind;
  BRAID_CO_TRY(kind.reactors, count_param(params, "reactors", options_.map_reactors, kReactorsMax));
  BRAID_CO_TRY(kind.guard_reads, bool_param(params, "guard_reads"));
  BRAID_CO_TRY(const std::vector<std::string> filters, texts_param(params, "filters"));
  BRAID_CO_TRY(std::vector<bnbd::FilterSpec> filter_specs, parse_filters(filters, options.mode));
  BRAID_CO_CHECK(may_map(name));
  BRAID_CO_TRY(std::vector<Paths> ways, co_await ways_to(target.paths));
  BRAID_CO_TRY(std::string key_file, text_param(params, "key", options_.key_file.c_str()));
  BRAID_CO_TRY(trs::KeyPtr key, co_await key_for(std::move(key_file)));
  BRAID_CO_CHECK(may_map(name));  // time has passed

  const auto device = std::make_shared<MappedDevice>(reactor_, &NodeState::patience_tick, this);
  device->name = name;
  device->export_name = target.export_name;
  device->target = fmt::format("{}/{}", paths_text(target.paths), target.export_name);
  device->key = std::move(key);
  device->kind = kind;
  device->filter_specs = std::move(filter_specs);
  device->since_ns = reactor_.now_ns();
  device->mapper_gone = std::move(gone);
  devices_.push_back(device);
  const Status given =
      co_await give_to_kernel(device, std::move(ways), std::move(options), kernel_kind);
  if (!given.ok()) {
    co_await take_back(device, given.error());
    co_return given.error();
  }
  reactor_.cancel(device->patience);
  set_phase(*device, DevicePhase::kMapped);
  watch_size(device);
  reactor_.log().info("mapped {} as {} ({})", device->target, device->path,
                      device->kernel->kind_text());
  co_return device_status(*device);
}

Status NodeState::may_map(const std::string& name) const {
  if (stopping_)
    return make_error(Errc::kCanceled, "cannot map \"{}\": node \"{}\" is ending", name,
                      options_.name);
  if (const LocalExport* const local = local_named(name))
    return make_error(Errc::kExists, "a device named \"{}\" is there already: {}; see --name", name,
                      local->target);
  const DevicePtr other = device_named(name);
  if (other == nullptr) return {};
  if (other->phase == DevicePhase::kMapped)
    return make_error(Errc::kExists, "a device named \"{}\" is mapped already, from {}; see --name",
                      name, other->target);
  return make_error(Errc::kBusy, "a device named \"{}\" {}, from {}; see --name", name,
                    phase_text(*other), other->target);
}

/// False: it takes longer. Then it keeps a worker, not us, and what it holds.
Task<bool> NodeState::offload_within(std::function<void()> work, uint64_t patience_ns) {
  Task<bool> done = [](base::Reactor& reactor, std::function<void()> what) -> Task<bool> {
    co_await reactor.offload(std::move(what));
    co_return true;
  }(reactor_, std::move(work));
  const std::optional<bool> ended = co_await reactor_.with_timeout(std::move(done), patience_ns);
  co_return ended.has_value();
}

/// The same path to each IP address of its server. A name server that does not answer keeps a
/// worker, not us.
Task<Result<std::vector<PathSpec>>> NodeState::addresses_of(PathSpec path) {
  const vhca::Address& server = path.server;
  if (is_ip(server.ip)) co_return std::vector<PathSpec>{path};
  if (look_ups_->load() >= kLookUpsMax)
    co_return make_error(Errc::kBusy,
                         "host \"{}\": {} other look-ups of host names have no answer yet; try "
                         "again, or give an IP address",
                         server.ip, kLookUpsMax);
  using Found = Result<std::vector<std::string>>;
  const auto found = std::make_shared<Found>(std::vector<std::string>());
  ++*look_ups_;
  std::function<void()> work = [found, host = server.ip, look_up = options_.look_up,
                                look_ups = look_ups_] {
    *found = look_up(host);
    --*look_ups;
  };
  const bool in_time = co_await offload_within(std::move(work), options_.look_up_patience_ns);
  if (!in_time)
    co_return make_error(Errc::kTimedOut,
                         "host \"{}\": no name server has answered for {}; try again, or give an "
                         "IP address",
                         server.ip, duration_text(options_.look_up_patience_ns));
  if (!found->ok()) co_return found->error();
  std::vector<PathSpec> paths;
  for (const std::string& ip : **found) {
    paths.push_back(path);
    paths.back().server.ip = ip;
  }
  co_return paths;
}

Error NodeState::several_addresses(const PathSpec& path, const std::vector<PathSpec>& found) {
  return make_error(Errc::kInvalid,
                    "host \"{}\" has {} addresses ({}): say which one the path leads to",
                    path.server.ip, found.size(), paths_text(found));
}

/// What may be tried, one after the other: each is the paths of a session.
Task<Result<std::vector<Paths>>> NodeState::ways_to(Paths paths) {
  std::vector<Paths> ways;
  if (paths.size() == 1) {
    BRAID_CO_TRY(const Paths found, co_await addresses_of(paths.front()));
    for (const PathSpec& path : found) ways.push_back({path});
    co_return ways;
  }
  Paths all;
  for (const PathSpec& path : paths) {
    BRAID_CO_TRY(const Paths found, co_await addresses_of(path));
    if (found.size() > 1) co_return several_addresses(path, found);
    if (std::find(all.begin(), all.end(), found.front()) != all.end())
      co_return make_error(Errc::kInvalid, "the path {} is there twice", path_text(found.front()));
    all.push_back(found.front());
  }
  ways.push_back(std::move(all));
  co_return ways;
}

/// On a worker thread: the file may lie on a disk that hangs. Empty: none.
Task<Result<trs::KeyPtr>> NodeState::key_for(std::string path) {
  if (path.empty()) co_return trs::KeyPtr();
  if (!path.starts_with('/'))
    co_return make_error(Errc::kInvalid,
                         "key file \"{}\": want its absolute path, as node \"{}\" reads it", path,
                         options_.name);
  const auto read = std::make_shared<Result<trs::KeyPtr>>(trs::KeyPtr());
  std::function<void()> work = [read, path, read_file = options_.read_key] {
    *read = read_file(path);
  };
  BRAID_CO_CHECK(co_await read_in_time(path, std::move(work)));
  co_return std::move(*read);
}

/// A file system that hangs keeps as many workers as kKeyReadsMax, not us; who comes then waits for
/// one of them. An error: it takes longer than its time.
Task<Status> NodeState::read_in_time(std::string path, std::function<void()> work) {
  const uint64_t until_ns = reactor_.now_ns() + options_.file_patience_ns;
  while (key_reads_->load() >= kKeyReadsMax) {
    if (reactor_.now_ns() >= until_ns)
      co_return make_error(Errc::kBusy,
                           "key file \"{}\": {} other readings of key files have had no answer "
                           "for {}; their file system hangs",
                           path, kKeyReadsMax, duration_text(options_.file_patience_ns));
    co_await reactor_.sleep_ns(kTurnLookNs);
  }
  ++*key_reads_;
  std::function<void()> counted = [what = std::move(work), reads = key_reads_] {
    what();
    --*reads;
  };
  const uint64_t now_ns = reactor_.now_ns();
  const uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 1;
  const bool in_time = co_await offload_within(std::move(counted), left_ns);
  if (!in_time)
    co_return make_error(Errc::kTimedOut,
                         "key file \"{}\": not read after {}; its file system does not answer",
                         path, duration_text(options_.file_patience_ns));
  co_return Status();
}

Status NodeState::given_up(const MappedDevice& device) const {
  const bool gone = device.mapper_gone && device.mapper_gone();
  if (!stopping_ && !device.force && !gone) return {};
  return make_error(Errc::kCanceled, "mapping \"{}\" was given up: {}", device.name,
                    stopping_ ? "the node is ending"
                    : gone    ? "its caller has gone"
                              : "it is unmapped by force");
}

/// A session by the first of the ways that leads to a server.
Task<Status> NodeState::join_one_of(DevicePtr device, std::vector<Paths> ways) {
  std::optional<Error> first;
  std::string tried;
  for (const Paths& way : ways) {
    auto session = co_await join_session(way, device->key, device->kind);
    if (session.ok()) {
      device->session = std::move(*session);
      device->target = fmt::format("{}/{}", paths_text(way), device->export_name);
      co_return Status();
    }
    const Error refused = session.error().with("server {}", paths_text(way));
    if (ways.size() == 1) co_return refused;
    if (!first) first = refused;
    tried += (tried.empty() ? "" : "; ") + refused.message();
    BRAID_CO_CHECK(given_up(*device));
  }
  co_return make_error(first->code(), "none of the server's {} addresses will do: {}", ways.size(),
                       tried);
}

Task<Status> NodeState::give_to_kernel(DevicePtr device, std::vector<Paths> ways,
                                       bnbd::RemoteDeviceOptions options,
                                       bnbd::KernelDeviceKind kind) {
  const Status joined = co_await join_one_of(device, std::move(ways));
  if (!joined.ok()) co_return joined;
  BRAID_CO_CHECK(given_up(*device));

  auto remote = co_await device->session->session->open_device(std::move(options));
  if (!remote.ok()) co_return remote.error();
  device->remote = std::move(*remote);
  BRAID_CO_CHECK(given_up(*device));

  BRAID_CO_CHECK(co_await put_filters_on(device));
  BRAID_CO_CHECK(given_up(*device));

  bnbd::KernelDeviceOptions kernel_options;
  kernel_options.kind = kind;
  kernel_options.name = device->name;
  // The kernel reads and flushes on the way, and waits for the answers.
  reactor_.schedule_after(device->patience, kPatienceTickNs);
  device->kernel_bytes = device->top().info().size_bytes;
  using Attached = Result<std::unique_ptr<bnbd::KernelDevice>>;
  Task<Attached> attaching =
      kind == bnbd::KernelDeviceKind::kNbdServer
          ? give_to_nbd_clients(device)
          : options_.attach(reactor_, device->top(), std::move(kernel_options));
  Attached kernel = co_await std::move(attaching);
  const Status wanted = given_up(*device);
  if (!kernel.ok() && wanted.ok())
    co_return kernel.error().with(
        "giving \"{}\" to {}", device->name,
        kind == bnbd::KernelDeviceKind::kNbdServer ? "NBD clients" : "the kernel");
  if (kernel.ok()) {
    device->kernel = std::move(*kernel);
    device->path = device->kernel->path();
  }
  co_return wanted;
}

Task<Status> NodeState::put_filters_on(DevicePtr device) {
  if (device->filter_specs.empty()) co_return Status();
  std::vector<bnbd::FilterSpec> specs = device->filter_specs;
  auto filters =
      co_await bnbd::FilterStack::create(reactor_, *device->remote, std::move(specs), device->name);
  if (!filters.ok()) co_return filters.error();
  device->filters = std::move(*filters);
  // From now on no change of size is missed.
  device->remote->watch([weak = std::weak_ptr<MappedDevice>(device)] {
    const DevicePtr changed = weak.lock();
    if (changed && changed->filters) changed->filters->size_changed();
  });
  device->filters->size_changed();
  co_return co_await device->filters->follow_size();
}

/// Undoes a mapping that failed or was given up.
Task<void> NodeState::take_back(DevicePtr device, const Error& why) {
  // What is tried again and again tells only what is new (node_wanted.cc).
  if (!wanted_named(device->name))
    reactor_.log().info("mapping {}: {}", device->target, why.message());
  if (device->remote) give_up_mapping(device);
  if (device->kernel) {
    const auto detached = co_await device->kernel->detach(bnbd::DetachMode::kForce);
    if (!detached.ok()) reactor_.log().warning("{}: {}", device->path, detached.error().message());
    device->kernel.reset();
  }
  co_await dismantle(device);
}

}  // namespace braid::cli
