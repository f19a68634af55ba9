#include "bnbd/frontend/nbd_servers.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "bnbd/frontend/elsewhere.h"

namespace braid::bnbd {

namespace {

using Created = base::Result<NbdServer*>;

/// What it takes to make a server, for a function that can be copied.
struct Parts {
  std::unique_ptr<SlotPool<NbdServer::Slot>> pool;
  std::vector<UniqueFd> sockets;
};

base::Task<Created> make_server(BlockQueue queue, NbdServerOptions options,
                                std::shared_ptr<Parts> parts) {
  auto server = NbdServer::create(*queue.reactor, *queue.device, options, std::move(parts->pool),
                                  std::move(parts->sockets));
  if (!server.ok()) co_return server.error();
  co_return server->release();
}

base::Task<bool> drain(NbdServer* server) {
  co_await server->drained();
  co_return true;
}

/// Connections that do not make room for others.
unsigned kept(const NbdServer& server) {
  const unsigned open = server.connections();
  return open - std::min(server.leaving(), open);
}

base::Task<bool> nothing() {
  co_return true;
}

}  // namespace

base::Task<base::Result<std::unique_ptr<NbdServers>>> NbdServers::create(
    base::Reactor& home, BlockDevice& device, NbdServerOptions options, unsigned slots,
    std::vector<UniqueFd> sockets) {
  auto servers = std::make_unique<NbdServers>(home, device);
  servers->connections_max_ = options.connections_max;
  std::vector<BlockQueue> queues = device.queues();
  if (queues.empty()) queues.push_back({&home, &device});
  const bool grows = options.connections_max > 0;
  const unsigned first = SlotPool<NbdServer::Slot>::kFirst;
  const size_t count = grows ? queues.size() : std::min(queues.size(), sockets.size());
  for (size_t i = 0; i < count; ++i) {
    const auto parts = std::make_shared<Parts>();
    BRAID_CO_TRY(parts->pool, co_await make_slots<NbdServer>(home, device, first, slots));
    for (size_t c = i; c < sockets.size(); c += count) {
      parts->sockets.push_back(std::move(sockets[c]));
    }
    const BlockQueue queue = queues[i];
    std::function<base::Task<Created>()> make = [queue, options, parts] {
      return make_server(queue, options, parts);
    };
    Created made = co_await elsewhere(home, *queue.reactor, std::move(make));
    if (!made.ok()) co_return made.error();
    servers->members_.push_back({queue.reactor, *made});
  }
  co_return std::move(servers);
}

NbdServers::~NbdServers() {
  on_each([](NbdServer& server) { NbdServer::Release()(&server); });
}

/// Where there is no room but that which somebody makes, after all that have some.
unsigned NbdServers::load_of(size_t member) const {
  const NbdServer& server = *members_[member].server;
  const unsigned open = server.connections();
  return open < connections_max_ ? open : connections_max_ + kept(server);
}

void NbdServers::add(UniqueFd socket, bool structured, std::vector<std::byte> early) {
  // Their numbers are late by what is under way to them: hence one after the other, too.
  size_t best = next_++ % members_.size();
  for (size_t i = 0; i < members_.size(); ++i) {
    if (load_of(i) < load_of(best)) best = i;
  }
  // A function that can be copied.
  const auto shared = std::make_shared<UniqueFd>(std::move(socket));
  const auto take = [shared, structured, early = std::move(early),
                     reactor = members_[best].reactor](NbdServer& server) {
    const base::Status added = server.add(std::move(*shared), structured, early);
    if (!added.ok()) reactor->log().warning("nbd client: {}", added.error().message());
  };
  NbdServer& server = *members_[best].server;
  if (members_[best].reactor == &home_) return take(server);
  members_[best].reactor->post([&server, take] { take(server); });
}

unsigned NbdServers::connections() const {
  unsigned all = 0;
  for (const Member& member : members_) all += member.server->connections();
  return all;
}

unsigned NbdServers::connections_max() const {
  return connections_max_ * static_cast<unsigned>(members_.size());
}

bool NbdServers::has_room() const {
  unsigned all = 0;
  for (const Member& member : members_) all += kept(*member.server);
  return all < connections_max();
}

void NbdServers::take_no_more() {
  on_each([](NbdServer& server) { server.take_no_more(); });
}

void NbdServers::stop() {
  on_each([](NbdServer& server) { server.stop(); });
}

void NbdServers::expect_end(bool expected) {
  on_each([expected](NbdServer& server) { server.expect_end(expected); });
}

base::Task<void> NbdServers::drained() {
  for (const Member& member : members_) {
    std::function<base::Task<bool>()> make = [server = member.server] { return drain(server); };
    (void)co_await elsewhere(home_, *member.reactor, std::move(make));
  }
}

base::Task<void> NbdServers::caught_up() {
  for (const Member& member : members_) {
    std::function<base::Task<bool>()> make = [] { return nothing(); };
    (void)co_await elsewhere(home_, *member.reactor, std::move(make));
  }
}

bool NbdServers::alive() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.server->alive(); });
}

KernelDeviceStatistics NbdServers::statistics() const {
  KernelDeviceStatistics all;
  for (const Member& member : members_) {
    const KernelDeviceStatistics one = member.server->statistics();
    all.requests += one.requests;
    all.refused += one.refused;
    all.errors += one.errors;
    all.lent_reads += one.lent_reads;
    all.starved += one.starved;
    all.in_flight += one.in_flight;
  }
  return all;
}

LatencyHistogram NbdServers::latency(LatencyKind kind) const {
  LatencyHistogram all;
  for (const Member& member : members_)
    if (const LatencyHistogram* const one = member.server->latency(kind)) all.add(*one);
  return all;
}

}  // namespace braid::bnbd
