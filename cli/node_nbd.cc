// The NBD server of a node: local devices and mapped ones, for NBD clients.
#include "cli/node_state.h"

#include <fmt/format.h>

#include <filesystem>

#include "bnbd/backends.h"
#include "cli/session_status.h"

namespace braid::cli {

using base::Error;
using base::Result;
using base::Status;
using base::Task;
using nlohmann::json;

namespace {

std::string target_text(const LocalNbdExport& what) {
  switch (what.kind) {
    case LocalNbdExport::Kind::kFile:
      return "file:" + what.path;
    case LocalNbdExport::Kind::kMemory:
      return "memory:" + size_text(what.size_bytes);
    case LocalNbdExport::Kind::kNull:
      break;
  }
  return "null:" + size_text(what.size_bytes);
}

const char* backend_word(LocalNbdExport::Kind kind) {
  switch (kind) {
    case LocalNbdExport::Kind::kFile:
      return "file";
    case LocalNbdExport::Kind::kMemory:
      return "memory";
    case LocalNbdExport::Kind::kNull:
      break;
  }
  return "null";
}

json counters(const bnbd::KernelDeviceStatistics& s) {
  return {{"requests", s.requests}, {"refused", s.refused},     {"errors", s.errors},
          {"starved", s.starved},   {"in_flight", s.in_flight}, {"lent_reads", s.lent_reads}};
}

}  // namespace

Task<Status> NodeState::start_nbd() {
  const NbdOptions& nbd = *options_.nbd;
  bnbd::NbdServiceOptions service;
  service.unix_path = nbd.unix_path;
  service.default_export = nbd.default_export;
  for (const vhca::Address& address : nbd.listen) {
    service.listen.push_back({.ip = address.ip, .port = address.port});
    if (!is_loopback(address.ip))
      reactor_.log().warning(
          "NBD knows no authentication here: whoever can reach {} can use all exports",
          address_text(address));
  }
  BRAID_CO_TRY(nbd_, bnbd::NbdService::create(reactor_, std::move(service)));
  for (const LocalNbdExport& what : nbd.local) {
    Task<Status> adding = add_local(what);
    const Status added = co_await std::move(adding);
    if (!added.ok()) {
      co_await stop_nbd(/*force=*/true);
      co_return added;
    }
  }
  co_return Status();
}

Task<Result<std::unique_ptr<bnbd::BlockDevice>>> NodeState::open_local(LocalNbdExport what) {
  if (what.kind == LocalNbdExport::Kind::kMemory) {
    bnbd::MemoryDeviceOptions options;
    options.size_bytes = what.size_bytes;
    co_return bnbd::create_memory_device(host_, options);
  }
  if (what.kind == LocalNbdExport::Kind::kNull) {
    bnbd::NullDeviceOptions options;
    options.name = what.name;
    options.size_bytes = what.size_bytes;
    co_return bnbd::create_null_device(host_, options);
  }
  const std::filesystem::path path(what.path);
  bnbd::FileDeviceOptions options;
  options.root = path.parent_path();
  options.name = path.filename();
  options.read_only = options_.nbd->read_only;
  options.allow_block_device = true;  // it was named, not found
  Task<Result<std::unique_ptr<bnbd::BlockDevice>>> opening =
      bnbd::open_file_device(reactor_, std::move(options));
  auto opened = co_await std::move(opening);
  if (!opened.ok()) co_return opened.error().with("file \"{}\"", what.path);
  co_return std::move(opened);
}

Task<Status> NodeState::add_local(LocalNbdExport what) {
  LocalExport local;
  local.name = what.name;
  local.target = target_text(what);
  local.backend = backend_word(what.kind);
  Task<Result<std::unique_ptr<bnbd::BlockDevice>>> opening = open_local(what);
  BRAID_CO_TRY(local.device, co_await std::move(opening));
  bnbd::NbdExportOptions options;
  options.name = what.name;
  options.description = fmt::format("{} at {}", local.target, host_.host_name());
  options.read_only = options_.nbd->read_only;
  options.latencies = true;
  Task<Result<std::unique_ptr<bnbd::KernelDevice>>> adding =
      nbd_->add_export(*local.device, std::move(options));
  BRAID_CO_TRY(local.front, co_await std::move(adding));
  locals_.push_back(std::move(local));
  co_return Status();
}

Task<Result<std::unique_ptr<bnbd::KernelDevice>>> NodeState::give_to_nbd_clients(DevicePtr device) {
  bnbd::NbdExportOptions options;
  options.name = device->name;
  options.description = device->target;
  options.read_only = options_.nbd->read_only;
  return nbd_->add_export(device->top(), std::move(options));
}

Task<void> NodeState::stop_nbd(bool force) {
  // A forced end may come while a polite one waits for clients to leave: the first takes all away,
  // those after the one that it waits for by force.
  while (nbd_stopping_) co_await nbd_gone_.wait();
  nbd_stopping_ = true;
  for (LocalExport& local : locals_) {
    const bool now = force || stopping_by_force_;
    const auto mode = now ? bnbd::DetachMode::kForce : bnbd::DetachMode::kPolite;
    Task<Result<bnbd::Detached>> detaching = local.front->detach(mode);
    const auto detached = co_await std::move(detaching);
    if (!detached.ok()) reactor_.log().warning("{}", detached.error().message());
  }
  locals_.clear();
  nbd_.reset();
  nbd_stopping_ = false;
  nbd_gone_.notify_all();
}

const LocalExport* NodeState::local_named(const std::string& name) const {
  for (const LocalExport& local : locals_)
    if (local.name == name) return &local;
  return nullptr;
}

json NodeState::local_status(const LocalExport& local) const {
  const bnbd::BlockInfo& info = local.device->info();
  const bool read_only = info.read_only || options_.nbd->read_only;
  return {{"name", local.name},
          {"device", local.front->path()},
          {"target", local.target},
          {"access", read_only ? "ro" : "rw"},
          {"state", "open"},
          {"size_bytes", info.size_bytes},
          {"front_end", local.front->kind_text()},
          {"why", {"it is a device of this process, and has what it needs"}},
          {"kernel", counters(local.front->statistics())},
          {"statistics", block_statistics(local.device->statistics())}};
}

json NodeState::nbd_status() const {
  if (!nbd_) return nullptr;
  const bnbd::NbdServiceStatus status = nbd_->status();
  json exports = json::array();
  const auto add = [&](const std::string& name) {
    exports.push_back({{"name", name}, {"uris", nbd_->uris(name)}});
  };
  for (const LocalExport& local : locals_) add(local.name);
  for (const DevicePtr& device : devices_)
    if (device->kernel) add(device->name);
  return {{"exports", exports},          {"half_open", status.half_open},
          {"accepted", status.accepted}, {"granted", status.granted},
          {"refused", status.refused},   {"timed_out", status.timed_out}};
}

}  // namespace braid::cli
