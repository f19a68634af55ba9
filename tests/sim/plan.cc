#include "tests/sim/plan.h"

#include <fmt/format.h>

namespace braid::sim {

using base::kMillisecond;
using base::sim::SimRandom;

namespace {

ClientPlan draw_client(SimRandom& random, size_t index) {
  ClientPlan client;
  client.name = fmt::format("client{}", index);
  client.ip = fmt::format("10.0.1.{}", index + 1);
  client.depth = static_cast<uint32_t>(random.between(1, 16));
  client.pause_max_ns = random.between(20, 80) * kMillisecond;
  client.device_queue_depth = static_cast<uint32_t>(random.between(2, 32));
  client.reconnect_max_ns = random.between(200, 2000) * kMillisecond;
  return client;
}

DevicePlan draw_device(SimRandom& random, size_t index, size_t clients, bool memory) {
  DevicePlan device;
  device.name = fmt::format("disk{}", index);
  device.memory = memory;
  device.sectors = 8 * random.between(16, 128);  // 64 to 512 KiB
  device.writer = index % clients;
  if (clients > 1 && random.one_in(2)) device.reader = 1 - device.writer;
  return device;
}

}  // namespace

Plan Plan::draw(SimRandom& random, uint64_t fault_phase_ns) {
  Plan plan;
  plan.server_ip = "10.0.0.1";
  plan.server_reactors = random.between(1, 2);
  plan.queue_depth = static_cast<uint32_t>(random.between(2, 32));
  plan.max_io_bytes = 8192u << random.below(4);
  const bool memory = random.one_in(6);
  plan.server_may_die = !memory;
  const size_t clients = random.between(1, 2);
  for (size_t i = 0; i < clients; ++i) plan.clients.push_back(draw_client(random, i));
  const size_t devices = random.between(clients, 3);
  for (size_t i = 0; i < devices; ++i)
    plan.devices.push_back(draw_device(random, i, clients, memory));
  plan.fault_phase_ns = fault_phase_ns;
  plan.fault_gap_max_ns = random.between(500, 2500) * kMillisecond;
  return plan;
}

}  // namespace braid::sim
