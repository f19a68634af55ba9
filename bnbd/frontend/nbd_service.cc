#include "bnbd/nbd_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "bnbd/frontend/device_op.h"
#include "bnbd/frontend/nbd_door.h"
#include "bnbd/frontend/nbd_servers.h"

namespace braid::bnbd {

using base::Errc;
using base::make_error;
using base::Result;
using base::Task;

namespace {

/// In a URI's path, or as a value in its query (RFC 3986): all but what means itself in both, and
/// slashes, as %XX.
std::string in_uri(std::string_view text) {
  constexpr std::string_view kMeansItself =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
  std::string encoded;
  for (const char c : text) {
    if (kMeansItself.find(c) != kMeansItself.npos)
      encoded += c;
    else
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

class NbdServiceImpl;

/// A device for its clients.
class NbdExport final : public KernelDevice {
 public:
  NbdExport(NbdServiceImpl& service, BlockDevice& device, NbdExportOptions options,
            std::unique_ptr<NbdServers> servers, std::string uri);
  ~NbdExport() override;

  const std::string& path() const override { return uri_; }
  KernelDeviceKind kind() const override { return KernelDeviceKind::kNbdServer; }
  const std::string& kind_text() const override { return kind_text_; }
  bool alive() const override { return true; }
  KernelDeviceStatistics statistics() const override { return servers_->statistics(); }
  LatencyHistogram latency(LatencyKind kind) const override { return servers_->latency(kind); }
  uint64_t waits_at_most_ns() const override { return base::kNever; }
  /// Clients ask for a size once, when they connect.
  Task<base::Status> follow_size() override { co_return base::Status(); }
  Task<Result<Detached>> detach(DetachMode mode) override;

  NbdOffer offer() const;
  const std::string& name() const { return options_.name; }
  NbdServers& servers() { return *servers_; }

 private:
  Task<Errc> flush();
  Task<bool> answered();

  NbdServiceImpl& service_;
  BlockDevice& device_;
  const NbdExportOptions options_;
  std::unique_ptr<NbdServers> servers_;
  const std::string uri_;
  const std::string kind_text_;
};

class NbdServiceImpl final : public NbdService {
 public:
  NbdServiceImpl(base::Reactor& reactor, uint64_t linger_ns)
      : reactor_(reactor), linger_ns_(linger_ns) {}
  ~NbdServiceImpl() override { BRAID_ASSERT(exports_.empty()); }

  base::Status open(NbdServiceOptions options) {
    const NbdHandshake::Offers offers = [this, first = options.default_export] {
      NbdOffers now;
      now.default_name = first;
      now.ending = ending_;
      for (const NbdExport* one : exports_) now.all.push_back(one->offer());
      return now;
    };
    const NbdDoor::Granted granted = [this](const std::string& name, UniqueFd socket,
                                            bool structured, std::vector<std::byte> early) {
      // It may have gone while the last answer was sent; so does the client.
      NbdExport* const found = export_named(name);
      if (found == nullptr) return;
      found->servers().add(std::move(socket), structured, std::move(early));
    };
    BRAID_TRY(door_, NbdDoor::open(reactor_, std::move(options), offers, granted));
    return {};
  }

  Task<Result<std::unique_ptr<KernelDevice>>> add_export(BlockDevice& device,
                                                         NbdExportOptions options) override;
  std::vector<std::string> uris(const std::string& export_name) const override {
    std::vector<std::string> all;
    if (!door_->unix_path().empty()) {
      all.push_back(
          fmt::format("nbd+unix:///{}?socket={}", in_uri(export_name), in_uri(door_->unix_path())));
    }
    for (const base::SocketAddress& address : door_->addresses()) {
      const bool v6 = address.ip.find(':') != std::string::npos;
      const std::string host = v6 ? "[" + address.ip + "]" : address.ip;
      all.push_back(fmt::format("nbd://{}:{}/{}", host, address.port, in_uri(export_name)));
    }
    return all;
  }
  NbdServiceStatus status() const override { return door_->status(); }
  void set_ending(bool ending) override { ending_ = ending; }

  base::Reactor& reactor() { return reactor_; }
  uint64_t linger_ns() const { return linger_ns_; }
  void forget(NbdExport& which) { std::erase(exports_, &which); }

 private:
  NbdExport* export_named(const std::string& name) const {
    const auto found = std::find_if(exports_.begin(), exports_.end(),
                                    [&](const NbdExport* one) { return one->name() == name; });
    return found == exports_.end() ? nullptr : *found;
  }

  base::Reactor& reactor_;
  const uint64_t linger_ns_;
  bool ending_ = false;
  std::vector<NbdExport*> exports_;  // in their order; each takes itself out
  std::unique_ptr<NbdDoor> door_;
};

NbdExport::NbdExport(NbdServiceImpl& service, BlockDevice& device, NbdExportOptions options,
                     std::unique_ptr<NbdServers> servers, std::string uri)
    : service_(service),
      device_(device),
      options_(std::move(options)),
      servers_(std::move(servers)),
      uri_(std::move(uri)),
      kind_text_(servers_->reactors() == 1
                     ? std::string("the NBD server")
                     : fmt::format("the NBD server, on {} reactors", servers_->reactors())) {}

NbdExport::~NbdExport() {
  service_.forget(*this);
}

NbdOffer NbdExport::offer() const {
  const BlockInfo& info = device_.info();
  const NbdTerms terms{.read_only = options_.read_only};
  NbdOffer offer;
  offer.name = options_.name;
  offer.description = options_.description;
  offer.size_bytes = info.size_bytes;
  offer.block_min_bytes = info.logical_block_bytes;
  offer.transfer_max_bytes = kNbdTransferMax;
  offer.block_preferred_bytes =
      std::min(std::max({info.physical_block_bytes, info.logical_block_bytes, uint32_t{4096}}),
               offer.transfer_max_bytes);
  offer.flags = nbd_export_flags(info, terms);
  offer.flags_structured =
      nbd_export_flags(info, {.structured = true, .read_only = terms.read_only});
  if (!servers_->has_room()) {
    offer.refusal = fmt::format("\"{}\" has {} connections, and takes no more", name(),
                                servers_->connections());
  }
  return offer;
}

Task<Errc> NbdExport::flush() {
  struct Waiter {
    explicit Waiter(base::Reactor& reactor) : done(reactor) {}
    Errc status = Errc::kOk;
    bool ended = false;
    base::Signal done;
  };
  // The device owns the operation until it ends, whoever waits for that.
  struct Flush {
    explicit Flush(base::Reactor& reactor) : waiter(std::make_shared<Waiter>(reactor)) {}
    std::shared_ptr<Waiter> waiter;
    DeviceOp operation;
  };
  auto* const flush = new Flush(service_.reactor());
  const std::shared_ptr<Waiter> waiter = flush->waiter;
  flush->operation.op = BlockOp::kFlush;
  flush->operation.context = flush;
  flush->operation.done = [](DeviceOp& operation, Errc status) {
    const std::unique_ptr<Flush> owner(static_cast<Flush*>(operation.context));
    owner->waiter->status = status;
    owner->waiter->ended = true;
    owner->waiter->done.notify_all();
  };
  flush->operation.start(device_);
  while (!waiter->ended) co_await waiter->done.wait();
  co_return waiter->status;
}

Task<bool> NbdExport::answered() {
  Task<void> drained = servers_->drained();
  co_await std::move(drained);
  co_return true;
}

Task<Result<Detached>> NbdExport::detach(DetachMode mode) {
  service_.forget(*this);
  Detached detached;
  if (mode != DetachMode::kForce) {
    servers_->take_no_more();
    Task<bool> all = answered();
    (void)co_await service_.reactor().with_timeout(std::move(all), service_.linger_ns());
  }
  if (mode == DetachMode::kPolite && device_.info().write_cache && !device_.info().read_only) {
    const Errc flushed = co_await flush();
    if (flushed != Errc::kOk) {
      detached.lost =
          fmt::format("the last flush of \"{}\" failed: {}", name(), base::to_string(flushed));
      service_.reactor().log().warning("{}", detached.lost);
    }
  }
  servers_->stop();
  Task<bool> rest = answered();
  (void)co_await std::move(rest);
  co_return detached;
}

Task<Result<std::unique_ptr<KernelDevice>>> NbdServiceImpl::add_export(BlockDevice& device,
                                                                       NbdExportOptions options) {
  const std::string name = options.name;
  if (name.empty() || name.size() > kNbdNameMax) {
    co_return make_error(Errc::kInvalid, "an export name of {} bytes: 1 to {}", name.size(),
                         kNbdNameMax);
  }
  if (options.slots == 0 || options.connections_max == 0) {
    co_return make_error(Errc::kInvalid, "export \"{}\": no slots, or no connections", name);
  }
  if (export_named(name) != nullptr) {
    co_return make_error(Errc::kExists, "there is an export \"{}\" already", name);
  }
  NbdServerOptions server;
  server.name = name;
  server.read_only = options.read_only;
  server.latencies = options.latencies;
  server.connections_max = options.connections_max;
  server.linger_ns = linger_ns_;
  Task<Result<std::unique_ptr<NbdServers>>> making =
      NbdServers::create(reactor_, device, std::move(server), options.slots, {});
  BRAID_CO_TRY(auto servers, co_await std::move(making));
  if (export_named(name) != nullptr) {  // time has passed
    co_return make_error(Errc::kExists, "there is an export \"{}\" already", name);
  }
  const std::vector<std::string> all = uris(name);
  auto made = std::make_unique<NbdExport>(*this, device, std::move(options), std::move(servers),
                                          all.empty() ? name : all.front());
  exports_.push_back(made.get());
  co_return std::unique_ptr<KernelDevice>(std::move(made));
}

}  // namespace

Result<std::unique_ptr<NbdService>> NbdService::create(base::Reactor& reactor,
                                                       NbdServiceOptions options) {
  auto service = std::make_unique<NbdServiceImpl>(reactor, options.linger_ns);
  BRAID_CHECK(service->open(std::move(options)));
  return std::unique_ptr<NbdService>(std::move(service));
}

}  // namespace braid::bnbd
