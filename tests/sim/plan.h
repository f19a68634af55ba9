// Plan: what a seed makes of one round: topology, devices, workload, how long.
//
// A round is one world: one or two servers, up to three clients, their devices, some seconds of
// faults, then healing, rest and a look at everything. A client has one session to each server of
// which it uses devices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/sim.h"
#include "bnbd/filters.h"
#include "trs/client.h"
#include "trs/keys.h"
#include "trs/server.h"

namespace braid::sim {

struct ServerPlan {
  std::string name;
  std::string ip;
  std::string second_ip;
  size_t reactors = 1;
  uint32_t queue_depth = 32;  // permits per session
  uint32_t max_io_bytes = 64 << 10;
  bool tcp = false, second_tcp = false;   // the wire of its ports
  uint32_t features = trs::kAllFeatures;  // of its first process; fewer: an older version
  bool upgraded = false;                  // the next ones are of the present version
  bool direct = true;                     // its files go past the cache of the kernel

  /// Half of the servers let in only clients with a key. Not drawn: a seed's round stays what it
  /// was.
  bool asks_for_keys() const { return queue_depth % 2 == 0; }
  /// Half of them guard their chunks, most of these by windows. Not drawn either.
  trs::ChunkGuard guard() const {
    if (queue_depth / 2 % 2 == 0) return trs::ChunkGuard::kNone;
    return queue_depth / 4 % 4 == 0 ? trs::ChunkGuard::kCopy : trs::ChunkGuard::kWindows;
  }
};
/// That of a client of such a server, by its name.
trs::KeyPtr key_of(const std::string& client);

struct DevicePlan {
  std::string name;
  size_t server = 0;
  bool memory = false;          // dies with its server's process
  bool erases = false;          // a file whose medium can erase for good
  uint64_t sectors = 0;         // at most: an operator may make it smaller for a while
  size_t writer = 0;            // client
  std::optional<size_t> heir;   // another client, which may become the writer, and tries too early
  std::vector<size_t> readers;  // clients that open it read-only

  /// Clients besides the writer may look at it.
  bool shared() const { return heir.has_value() || !readers.empty(); }
  bool used_by(size_t client) const;
};

struct ClientPlan {
  std::string name;
  std::string ip;
  std::string second_ip;  // empty: it has one path to each server
  size_t reactors = 1;
  bool spread = false;        // a session runs on all of them, else on one
  uint32_t depth = 1;         // requests in flight per device
  uint64_t pause_max_ns = 0;  // between two bursts of requests
  uint64_t hears_max_ns = 0;  // after which it hears of the end of a change; 0: at once
  uint32_t device_queue_depth = 128;
  uint64_t reconnect_max_ns = 0;
  trs::PathPolicy policy = trs::PathPolicy::kMinInflight;
  uint64_t give_up_after_ns = base::kNever;  // of each of its devices
  uint64_t lost_after_ns = base::kNever;     // the same
  uint32_t features = trs::kAllFeatures;     // of its first process; fewer: an older version
  bool upgraded = false;                     // the next ones are of the present version
  std::vector<bnbd::FilterSpec> filters;     // on each of its devices, see filters_of()

  /// What is under way when its path goes has ended then, one way or the other.
  uint64_t held_max_ns() const { return std::min(give_up_after_ns, lost_after_ns); }
};

struct Plan {
  std::vector<ServerPlan> servers;
  std::vector<ClientPlan> clients;
  std::vector<DevicePlan> devices;
  uint64_t fault_phase_ns = 0;
  uint64_t fault_gap_max_ns = 0;
  /// Faults stay below what the hardware and the heartbeats bridge: no path may be lost.
  bool gentle = false;

  /// Of a client's device: no checksums where others write, too.
  std::vector<bnbd::FilterSpec> filters_of(size_t client, size_t device) const;

  static Plan draw(base::sim::SimRandom& random, uint64_t fault_phase_ns);
};

}  // namespace braid::sim
