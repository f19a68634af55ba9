#include "tests/sim/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace braid::sim {

using base::kMillisecond;
using base::sim::SimRandom;

namespace {

/// What an older version offers, now and then.
uint32_t draw_features(SimRandom& random) {
  static constexpr std::array<uint32_t, 9> kOlder = {0x0,  0x1,  0x3,  0x7,  0xf,
                                                     0x2f, 0x6f, 0xef, 0x1ef};
  return random.one_in(4) ? kOlder[random.below(kOlder.size())] : trs::kAllFeatures;
}

/// Often few, so that they are used up; now and then as many as users have: only then a session has
/// several administrative requests under way.
uint32_t draw_queue_depth(SimRandom& random) {
  if (random.one_in(4)) return 64u << random.below(2);
  return static_cast<uint32_t>(random.between(2, 32));
}

/// One is what programs have by default: five of eight.
size_t draw_reactors(SimRandom& random) {
  return random.one_in(2) ? 1 : random.between(1, 4);
}

ServerPlan draw_server(SimRandom& random, size_t index) {
  ServerPlan server;
  server.name = fmt::format("server{}", index);
  server.ip = fmt::format("10.0.0.{}", index + 1);
  server.second_ip = fmt::format("10.1.0.{}", index + 1);
  server.reactors = draw_reactors(random);
  server.queue_depth = draw_queue_depth(random);
  server.max_io_bytes = 8192u << random.below(4);
  server.tcp = random.one_in(4);
  server.second_tcp = random.one_in(4);
  server.features = draw_features(random);
  server.upgraded = random.one_in(2);
  return server;
}

ClientPlan draw_client(SimRandom& random, size_t index) {
  ClientPlan client;
  client.name = fmt::format("client{}", index);
  client.ip = fmt::format("10.0.1.{}", index + 1);
  if (!random.one_in(3)) client.second_ip = fmt::format("10.1.1.{}", index + 1);
  client.reactors = draw_reactors(random);
  client.spread = random.one_in(2);
  client.depth = static_cast<uint32_t>(random.between(1, 16));
  client.pause_max_ns = random.between(20, 80) * kMillisecond;
  client.device_queue_depth = static_cast<uint32_t>(random.between(2, 32));
  client.reconnect_max_ns = random.between(200, 2000) * kMillisecond;
  if (random.one_in(2)) client.give_up_after_ns = random.between(1000, 4000) * kMillisecond;
  if (random.one_in(3)) client.lost_after_ns = random.between(1000, 5000) * kMillisecond;
  client.policy = static_cast<trs::PathPolicy>(random.below(3));
  client.features = draw_features(random);
  client.upgraded = random.one_in(2);
  return client;
}

DevicePlan draw_device(SimRandom& random, size_t index, const Plan& plan) {
  const size_t clients = plan.clients.size();
  DevicePlan device;
  device.name = fmt::format("disk{}", index);
  device.server = index % plan.servers.size();
  device.memory = random.one_in(5);
  device.erases = random.one_in(3);
  device.sectors = 8 * random.between(16, 128);  // 64 to 512 KiB
  device.writer = index % clients;
  if (clients > 1 && random.one_in(2)) {
    device.heir = (device.writer + random.between(1, clients - 1)) % clients;
  }
  for (size_t c = 0; c < clients; ++c) {
    if (c != device.writer && c != device.heir && random.one_in(3)) device.readers.push_back(c);
  }
  return device;
}

/// A third of the servers have their files in the kernel's cache. By a copy of the stream: what
/// else a seed decides stays what it was.
void draw_caches(SimRandom random, Plan& plan) {
  for (ServerPlan& server : plan.servers) server.direct = !random.one_in(3);
}

/// Not from the plan's own stream, so that former seeds stay what they are.
void draw_hearing(SimRandom random, Plan& plan) {
  SimRandom own(random.next());
  for (ClientPlan& client : plan.clients)
    if (own.one_in(4)) client.hears_max_ns = own.between(5, 300) * kMillisecond;
}

/// Half of the clients have one or several filters before their devices. By a copy, too.
void draw_filters(SimRandom random, Plan& plan) {
  for (ClientPlan& client : plan.clients) {
    if (random.one_in(2)) continue;
    const auto add = [&](std::string_view spec) {
      client.filters.push_back(*bnbd::parse_filter(spec));
    };
    if (random.one_in(2)) add("checksum:block=512");
    if (random.one_in(2)) add(random.one_in(2) ? "delay:10us-3ms" : "delay:read=2ms,percent=20");
    if (random.one_in(2)) add(random.one_in(2) ? "rate:ops=1000,burst=5ms" : "rate:bytes=64M");
    if (random.one_in(2)) add("checksum");
  }
}

}  // namespace

trs::KeyPtr key_of(const std::string& client) {
  std::vector<uint8_t> secret(trs::kSecretBytesMin, 1);
  secret[0] = static_cast<uint8_t>(client.back());
  return *trs::Key::create(client, secret);
}

bool DevicePlan::used_by(size_t client) const {
  return writer == client || heir == client ||
         std::find(readers.begin(), readers.end(), client) != readers.end();
}

std::vector<bnbd::FilterSpec> Plan::filters_of(size_t client, size_t device) const {
  std::vector<bnbd::FilterSpec> its = clients[client].filters;
  if (devices[device].shared())
    std::erase_if(its, [](const bnbd::FilterSpec& filter) {
      return filter.kind == bnbd::FilterKind::kChecksum;
    });
  return its;
}

Plan Plan::draw(SimRandom& random, uint64_t fault_phase_ns) {
  Plan plan;
  const size_t servers = random.one_in(3) ? 2 : 1;
  const size_t clients = random.between(1, 3);
  for (size_t i = 0; i < servers; ++i) plan.servers.push_back(draw_server(random, i));
  for (size_t i = 0; i < clients; ++i) plan.clients.push_back(draw_client(random, i));
  const size_t devices = random.between(std::max(servers, clients), 4);
  for (size_t i = 0; i < devices; ++i) plan.devices.push_back(draw_device(random, i, plan));
  plan.fault_phase_ns = fault_phase_ns;
  plan.fault_gap_max_ns = random.between(40, 400) * kMillisecond;
  plan.gentle = random.one_in(8);
  draw_caches(random, plan);
  draw_filters(random, plan);
  draw_hearing(random, plan);
  return plan;
}

}  // namespace braid::sim
