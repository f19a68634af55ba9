#include "bench/block/remote_server.h"

#include <algorithm>

#include "bench/workload.h"
#include "bnbd/server.h"
#include "vhca/soft_device.h"

namespace braid::bench {

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

namespace {

constexpr int kServerStartMs = 120'000;  // a thousand exports take their time

/// Sends {"port": N} and serves for as long as the process lives.
void serve(Channel& channel, const ServeOptions& serve) {
  const BraidSide side(serve.way.poll_budget_ns);
  const auto device = create_device(side, serve.way.wire, serve.port_faults);
  bnbd::ExportServerOptions options;
  using Kind = bnbd::NamedExport::Kind;
  for (const Store& store : serve.stores) {
    options.named.push_back({.kind = store.kind == StoreKind::kNull ? Kind::kNull : Kind::kMemory,
                             .name = store.name,
                             .size_bytes = store.bytes,
                             .huge_pages = store.huge_pages});
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

}  // namespace

base::Result<ServerProcess> start_server(Bench& bench, const ServeOptions& options) {
  BRAID_TRY(Process process, Process::call(bench.interrupts, bench.cpus.server,
                                           [&](Channel& channel) { serve(channel, options); }));
  BRAID_TRY(const auto ready, process.receive(kServerStartMs));
  return ServerProcess{.process = std::move(process), .port = ready.at("port")};
}

}  // namespace braid::bench
