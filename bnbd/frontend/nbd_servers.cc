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

base::Task<Created> make_server(BlockQueue queue, std::string name, std::shared_ptr<Parts> parts) {
  auto server = NbdServer::create(*queue.reactor, *queue.device, name, std::move(parts->pool),
                                  std::move(parts->sockets));
  if (!server.ok()) co_return server.error();
  co_return server->release();
}

base::Task<bool> drain(NbdServer* server) {
  co_await server->drained();
  co_return true;
}

base::Task<bool> nothing() {
  co_return true;
}

}  // namespace

base::Task<base::Result<std::unique_ptr<NbdServers>>> NbdServers::create(
    base::Reactor& home, BlockDevice& device, std::string name, unsigned slots,
    std::vector<UniqueFd> sockets) {
  auto servers = std::make_unique<NbdServers>(home, device);
  std::vector<BlockQueue> queues = device.queues();
  if (queues.empty()) queues.push_back({&home, &device});
  const size_t count = std::min(queues.size(), sockets.size());
  for (size_t i = 0; i < count; ++i) {
    const auto parts = std::make_shared<Parts>();
    BRAID_CO_TRY(parts->pool, co_await make_slots<NbdServer>(home, device, slots));
    for (size_t c = i; c < sockets.size(); c += count) {
      parts->sockets.push_back(std::move(sockets[c]));
    }
    const BlockQueue queue = queues[i];
    std::function<base::Task<Created>()> make = [queue, name, parts] {
      return make_server(queue, name, parts);
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

}  // namespace braid::bnbd
