#include "bench/block/remote_server.h"

#include <unistd.h>

#include <algorithm>

#include "bench/workload.h"
#include "bnbd/server.h"
#include "vhca/soft_device.h"

namespace braid::bench {
namespace {

constexpr unsigned kLooksApartUs = 2000;
constexpr uint64_t kLateMax = 3;

/// As many as the server takes, each sent again when it is answered.
class Clears {
 public:
  explicit Clears(bnbd::RemoteDevice& remote)
      : remote_(remote), requests_(remote.info().queue_depth) {
    uint64_t offset_bytes = 0;
    for (bnbd::BlockRequest& request : requests_) {
      request.op = bnbd::BlockOp::kWriteZeroes;
      request.no_unmap = true;  // it is all written, whatever was there
      request.length_bytes = kFillBytes;
      request.offset_bytes = offset_bytes % kOtherBytes;
      offset_bytes += kFillBytes;
      request.context = this;
      request.done = [](bnbd::BlockRequest& done, base::Errc status) {
        auto& all = *static_cast<Clears*>(done.context);
        must(status, "a clear at the server");
        ++all.answered_;
        all.remote_.submit(done);
      };
      remote.submit(request);
    }
  }
  uint64_t count() const { return requests_.size(); }
  uint64_t answered() const { return answered_; }
  uint64_t answered_since_last_look() { return answered_ - std::exchange(looked_at_, answered_); }

 private:
  bnbd::RemoteDevice& remote_;
  std::vector<bnbd::BlockRequest> requests_;
  uint64_t answered_ = 0;
  uint64_t looked_at_ = 0;
};

}  // namespace

std::string_view to_string(Wire wire) {
  return wire == Wire::kInHost ? "in-host" : "TCP loopback";
}

std::unique_ptr<vhca::Device> create_device(const BraidSide& side, Wire wire, bool port_faults) {
  if (wire == Wire::kTcp) {
    return must(vhca::create_tcp_device(*side.host, *side.reactor, {.port_faults = port_faults}));
  }
  return must(vhca::create_soft_device(*side.host, *side.reactor));
}

std::unique_ptr<bnbd::RemoteSession> connect(const BraidSide& side, vhca::Device& device,
                                             uint16_t port, const std::string& name) {
  bnbd::RemoteSessionOptions options;
  options.transport.session_name = name;
  options.transport.server = {.ip = "127.0.0.1", .port = port};
  options.transport.reactors = {side.reactor.get()};
  return must(side.reactor->run_until_done(bnbd::RemoteSession::open(device, options)));
}

std::unique_ptr<bnbd::RemoteDevice> open_export(const BraidSide& side, bnbd::RemoteSession& session,
                                                const char* name) {
  bnbd::RemoteDeviceOptions options;
  options.name = name;
  return must(side.reactor->run_until_done(session.open_device(options)));
}

void serve(Channel& channel, const ServeOptions& serve) {
  const BraidSide side(serve.way.poll_budget_ns);
  const auto device = create_device(side, serve.way.wire, serve.port_faults);
  bnbd::ExportServerOptions options;
  using Kind = bnbd::NamedExport::Kind;
  for (const Store& store : serve.stores) {
    options.named.push_back({.kind = store.kind == StoreKind::kNull ? Kind::kNull : Kind::kMemory,
                             .name = store.name,
                             .size_bytes = store.bytes});
  }
  options.transport.listen = {.ip = "127.0.0.1", .port = 0};
  options.transport.reactors = {side.reactor.get()};
  options.transport.sessions_max = serve.sessions_max;
  options.transport.guard = serve.guard;
  options.root = serve.root;
  options.transport.connections_max = std::max(16 * serve.sessions_max, 1024u);
  const auto server = must(bnbd::ExportServer::create(*device, options));
  channel.send({{"port", server->address().port}});
  side.reactor->run();
}

void clear_without_end(Channel& channel, uint16_t port) {
  const BraidSide side(0);
  const auto device = create_device(side, Wire::kInHost);
  const auto session = connect(side, *device, port);
  const auto remote = open_export(side, *session, kOtherExport);
  Clears clears(*remote);
  const auto look = [&] {
    while (side.reactor->turn()) continue;
    ::usleep(kLooksApartUs);
    return clears.answered_since_last_look() < clears.count() / 4 * 3;  // some wait for permits
  };
  while (clears.answered() < 2 * clears.count()) (void)look();
  channel.send({{"flows", true}});
  for (uint64_t looks = 1, late = 0;; ++looks) {
    if (look()) continue;
    // The machine may have kept it from looking a few times.
    if (++late > kLateMax + looks / 100)
      throw std::runtime_error("the server had too little to clear");
  }
}

void idle_sessions(Channel& channel, uint16_t port, unsigned count) {
  const BraidSide side(0);
  const auto device = create_device(side, Wire::kInHost);
  std::vector<std::unique_ptr<bnbd::RemoteSession>> sessions;
  for (unsigned i = 0; i < count; ++i)
    sessions.push_back(connect(side, *device, port, fmt::format("idle{}", i)));
  channel.send({{"open", true}});
  side.reactor->run();
}

}  // namespace braid::bench
