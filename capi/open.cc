// Opening and closing: on the program's thread, which turns the reactor meanwhile.
#include <unistd.h>

#include <algorithm>

#include "bnbd/backends.h"
#include "capi/context.h"
#include "reach/key_file.h"
#include "reach/resolve.h"

namespace bnbd = braid::bnbd;
namespace reach = braid::reach;
using braid::base::Errc;
using braid::base::make_error;
using braid::base::Result;
using braid::base::Status;
using braid::base::Task;
using braid::capi::DiskName;
using braid::capi::Paths;
using braid::capi::Session;
using SessionPtr = std::shared_ptr<Session>;

namespace {

constexpr uint64_t kLookNs = 5 * braid::base::kMillisecond;
// braid_open() goes on without a further path that has not answered by then.
constexpr uint64_t kPathPatienceNs = braid::base::kSecond;

bool same_key(const braid::trs::KeyPtr& one, const braid::trs::KeyPtr& other) {
  if (!one || !other) return !one && !other;
  return one->name() == other->name() && one->same_secret(*other);
}

/// `work` on a worker, as it may wait for a name server or a disk.
template <typename T>
Task<Result<T>> apart(braid::base::Reactor& reactor, std::function<Result<T>()> work) {
  const auto found = std::make_shared<std::optional<Result<T>>>();
  std::function<void()> all = [found, ask = std::move(work)] { found->emplace(ask()); };
  co_await reactor.offload(std::move(all));
  co_return std::move(**found);
}

/// Waits until each further path is up or is known not to come up now. An error if another server
/// is there: the session would move to it when its other paths are lost.
Task<Status> lead_to_one_server(braid::base::Reactor& reactor, SessionPtr session) {
  const uint64_t until_ns = reactor.now_ns() + kPathPatienceNs;
  for (bool settled = false; !settled && reactor.now_ns() < until_ns;) {
    settled = true;
    for (const braid::trs::PathStatus& path : session->remote->paths()) {
      if (path.unknown_there)
        co_return make_error(Errc::kStale,
                             "path {}: another server listens there than at {}; all paths of a "
                             "device lead to one server",
                             reach::address_text(path.server),
                             reach::address_text(session->paths.front().server));
      settled = settled && (path.connected || path.reconnects_failed > 0);
    }
    if (!settled) co_await reactor.sleep_ns(kLookNs);
  }
  co_return Status();
}

}  // namespace

Result<braid_device*> braid_context::open(std::string_view target) {
  BRAID_TRY(DiskName name, braid::capi::parse_disk_name(target));
  BRAID_CHECK(begin());
  auto device = std::make_unique<braid_device>(*this, target);
  auto* const remote = std::get_if<reach::Target>(&name);
  const Status opened =
      remote != nullptr ? engine_->reactor->run_until_done(open_remote(*device, std::move(*remote)))
                        : open_local(*device, name);
  if (!opened.ok()) {
    device.reset();
    forget_unused();
    return opened.error().with("{}", target);
  }
  sleeper_ = engine_->reactor.get();
  devices_.push_back(std::move(device));
  return devices_.back().get();
}

Status braid_context::open_local(braid_device& device, const DiskName& name) {
  using bnbd::wire::AccessMode;
  const auto& engine = *engine_;
  if (const auto* const file = std::get_if<braid::capi::FileDisk>(&name)) {
    if (settings_.access == AccessMode::kMigration)
      return make_error(Errc::kInvalid,
                        "access migration is for devices of servers; want rw or ro");
    bnbd::FileDeviceOptions options;
    options.root = file->folder;
    options.name = file->name;
    options.read_only = settings_.access == AccessMode::kReadOnly;
    options.allow_block_device = true;
    BRAID_TRY(device.local, engine.reactor->run_until_done(
                                bnbd::open_file_device(*engine.reactor, std::move(options))));
  } else {
    if (settings_.access != AccessMode::kReadWrite)
      return make_error(Errc::kInvalid, "access {}: what is new and empty is opened with rw",
                        settings_.access == AccessMode::kReadOnly ? "ro" : "migration");
    if (const auto* const memory = std::get_if<braid::capi::MemoryDisk>(&name)) {
      bnbd::MemoryDeviceOptions options;
      options.size_bytes = memory->size_bytes;
      BRAID_TRY(device.local, bnbd::create_memory_device(*engine.host, options));
    } else {
      bnbd::NullDeviceOptions options;
      options.name = device.target;
      options.size_bytes = std::get<braid::capi::NullDisk>(name).size_bytes;
      BRAID_TRY(device.local, bnbd::create_null_device(*engine.host, options));
    }
  }
  device.block = device.local.get();
  return {};
}

Task<Status> braid_context::open_remote(braid_device& device, reach::Target target) {
  braid::trs::KeyPtr key;
  if (!settings_.key_file.empty()) {
    std::function<Result<braid::trs::KeyPtr>()> read = [file = settings_.key_file] {
      return reach::read_key(file);
    };
    BRAID_CO_TRY(key, co_await apart(*engine_->reactor, std::move(read)));
  }
  BRAID_CO_TRY(std::vector<Paths> ways, co_await ways_to(std::move(target.paths)));
  BRAID_CO_CHECK(co_await join_one_of(device, std::move(ways), std::move(key)));
  bnbd::RemoteDeviceOptions options;
  options.name = target.export_name;
  options.mode = settings_.access;
  options.give_up_after_ns = settings_.give_up_after_ns;
  options.lost_after_ns = settings_.lost_after_ns;
  options.queue_depth = std::max(settings_.queue_depth, options.queue_depth);
  auto opened = co_await device.session->remote->open_device(std::move(options));
  if (!opened.ok()) {
    co_await leave(device);
    co_return opened.error();
  }
  device.remote = std::move(*opened);
  device.block = device.remote.get();
  if (!keeper_) {
    auto keeper = braid::capi::Keeper::start(*engine_->host, turns, [this] { keeper_round(); });
    if (!keeper.ok()) {
      co_await end_requests(device);
      co_await drop(device);
      co_return keeper.error();
    }
    keeper_ = std::move(*keeper);
  }
  co_return Status();
}

/// What may be tried, one after the other: each is the paths of a session.
Task<Result<std::vector<Paths>>> braid_context::ways_to(Paths paths) {
  std::vector<Paths> ways;
  Paths all;
  for (const reach::PathSpec& path : paths) {
    std::vector<std::string> ips(1, path.server.ip);
    if (!reach::is_ip(path.server.ip)) {
      std::function<Result<std::vector<std::string>>()> look = [host = path.server.ip] {
        return reach::look_up_host(host);
      };
      BRAID_CO_TRY(ips, co_await apart(*engine_->reactor, std::move(look)));
    }
    if (paths.size() > 1 && ips.size() > 1)
      co_return make_error(Errc::kInvalid,
                           "host \"{}\" has {} addresses, {} the first of them: say by which one "
                           "the path leads",
                           path.server.ip, ips.size(), ips.front());
    for (const std::string& ip : ips) {
      reach::PathSpec found = path;
      found.server.ip = ip;
      if (paths.size() == 1) {
        ways.push_back({std::move(found)});
      } else if (std::find(all.begin(), all.end(), found) == all.end()) {
        all.push_back(std::move(found));
      } else {
        co_return make_error(Errc::kInvalid, "the path {} is there twice", reach::path_text(found));
      }
    }
  }
  if (!all.empty()) ways.push_back(std::move(all));
  co_return ways;
}

/// A session by the first of the ways that leads to a server.
Task<Status> braid_context::join_one_of(braid_device& device, std::vector<Paths> ways,
                                        braid::trs::KeyPtr key) {
  Status first;
  std::string tried;
  for (const Paths& way : ways) {
    const Status joined = co_await join(device, way, key);
    if (joined.ok()) co_return joined;
    const Status refused = joined.error().with("server {}", reach::paths_text(way));
    if (ways.size() == 1) co_return refused;
    if (first.ok()) first = refused;
    tried += (tried.empty() ? "" : "; ") + refused.error().message();
  }
  co_return make_error(first.code(), "none of the server's {} addresses will do: {}", ways.size(),
                       tried);
}

Status braid_context::session_options(const Paths& paths, bnbd::RemoteSessionOptions& options,
                                      braid::vhca::Device*& first) {
  options.transport.session_name = settings_.name;
  options.transport.server = paths.front().server;
  options.transport.reactors = {engine_->reactor.get()};
  BRAID_TRY(first, engine_->hcas->for_path(paths.front()));
  for (size_t i = 1; i < paths.size(); ++i) {
    bnbd::RemotePath further;
    further.server = paths[i].server;
    BRAID_TRY(further.device, engine_->hcas->for_path(paths[i]));
    options.paths.push_back(further);
  }
  return {};
}

/// The context's session by these paths with this key, or a new one.
Task<Status> braid_context::join(braid_device& device, Paths paths, braid::trs::KeyPtr key) {
  for (const SessionPtr& session : engine_->sessions) {
    const bool lost = session->remote->state() == braid::trs::SessionState::kLost;
    if (lost || session->paths != paths || !same_key(session->key, key)) continue;
    device.session = session;
    ++session->devices;
    co_return Status();
  }
  bnbd::RemoteSessionOptions options;
  braid::vhca::Device* first = nullptr;
  BRAID_CO_CHECK(session_options(paths, options, first));
  options.transport.key = key;
  const auto session = std::make_shared<Session>();
  session->paths = std::move(paths);
  session->key = std::move(key);
  session->devices = 1;
  BRAID_CO_TRY(session->remote, co_await bnbd::RemoteSession::open(*first, std::move(options)));
  engine_->sessions.push_back(session);
  device.session = session;
  Status one_server;
  if (session->paths.size() > 1)
    one_server = co_await lead_to_one_server(*engine_->reactor, session);
  if (!one_server.ok()) co_await leave(device);
  co_return one_server;
}

Task<void> braid_context::leave(braid_device& device) {
  const SessionPtr session = std::move(device.session);
  device.session = nullptr;
  if (--session->devices > 0) co_return;
  engine_->sessions.remove(session);
  co_await session->remote->close();
  session->remote.reset();
}

/// From here on the device uses no memory.
Task<void> braid_context::end_requests(braid_device& device) {
  if (device.remote) co_await device.remote->close();
  // What had pieces to come ends in turns of its own.
  while (device.in_flight > 0) co_await engine_->reactor->sleep_ns(0);
}

/// After end_requests(), when no other device uses its memory.
Task<void> braid_context::drop(braid_device& device) {
  regions.remove_all(device);
  engine_->completions.leave(device);
  device.local.reset();
  device.remote.reset();
  if (device.session) co_await leave(device);
}

void braid_context::give_up(braid_device& device) {
  if (!device.remote) return;
  engine_->reactor->begin_calls();
  device.remote->give_up();
  engine_->reactor->end_turn();
}

Status braid_context::close(braid_device& device) {
  BRAID_CHECK(unused(device, nullptr));
  engine_->reactor->run_until_done(end_requests(device));
  engine_->reactor->run_until_done(drop(device));
  devices_.remove_if([&](const auto& one) { return one.get() == &device; });
  return {};
}

Task<void> braid_context::end_apart(braid_device& device, size_t& ending,
                                    braid::base::Signal& ended) {
  co_await end_requests(device);
  --ending;
  ended.notify_all();
}

/// All at once: a path is given up for a disk that hangs when no device needs it any more.
Task<void> braid_context::end_all_requests() {
  size_t ending = devices_.size();
  braid::base::Signal ended(*engine_->reactor);
  for (const auto& device : devices_) engine_->reactor->spawn(end_apart(*device, ending, ended));
  while (ending > 0) co_await ended.wait();
}

/// Requests of any device may use memory of any other: all end before the first of it goes.
void braid_context::close_all() {
  if (!devices_.empty()) engine_->reactor->run_until_done(end_all_requests());
  for (; !devices_.empty(); devices_.pop_back())
    engine_->reactor->run_until_done(drop(*devices_.back()));
}
