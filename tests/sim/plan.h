// Plan: what a seed makes of one round: topology, devices, workload, how long.
//
// A round is one world: one server, one or two clients, their devices, some seconds of faults, then
// healing, rest and a look at everything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/sim.h"

namespace braid::sim {

struct DevicePlan {
  std::string name;
  bool memory = false;
  uint64_t sectors = 0;
  size_t writer = 0;             // client
  std::optional<size_t> reader;  // another client, which opens it read-only
};

struct ClientPlan {
  std::string name;
  std::string ip;
  uint32_t depth = 1;         // requests in flight per device
  uint64_t pause_max_ns = 0;  // between two bursts of requests
  uint32_t device_queue_depth = 128;
  uint64_t reconnect_max_ns = 0;
};

struct Plan {
  std::string server_ip;
  size_t server_reactors = 1;
  uint32_t queue_depth = 32;  // permits per session
  uint32_t max_io_bytes = 64 << 10;
  /// Memory devices end with their process, so then the server is never killed.
  bool server_may_die = true;
  std::vector<ClientPlan> clients;
  std::vector<DevicePlan> devices;
  uint64_t fault_phase_ns = 0;
  uint64_t fault_gap_max_ns = 0;

  static Plan draw(base::sim::SimRandom& random, uint64_t fault_phase_ns);
};

}  // namespace braid::sim
