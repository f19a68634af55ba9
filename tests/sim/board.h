// Board: what the round wants its clients to do at present: who writes which device, who tries to,
// what is to be closed and opened again. Clients read it; the injector and the round change it.
//
// It stands outside every process, as the people do who map and unmap devices.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/sim/plan.h"

namespace braid::sim {

enum class Wish : uint8_t {
  kNothing,
  kRead,
  kWrite,
  kContest,  // as kWrite while another has it: refused, unless the other's path is down
};

/// What clients did of what was asked of them.
struct BoardCounters {
  uint64_t devices_remapped = 0;   // closed with requests under way
  uint64_t sessions_remapped = 0;  // the same
  uint64_t sessions_lost = 0;      // their path was away for too long: closed, and opened again
  uint64_t handed_over = 0;        // opened for writing by another client than before
  uint64_t contested = 0;          // refusals of a second writer
  uint64_t superseded = 0;         // devices unmapped because another was let in for writing
  uint64_t paths_taken = 0;        // with requests under way
  uint64_t taken_away = 0;         // devices mapped again that an operator had closed
  uint64_t replaced = 0;           // devices unmapped because another had taken their name
};

class Board {
 public:
  explicit Board(const Plan& plan)
      : plan_(plan),
        devices_(plan.devices.size()),
        session_remaps_(plan.clients.size()),
        paths_taken_(plan.clients.size()) {
    for (size_t d = 0; d < devices_.size(); ++d) {
      devices_[d].writer = plan.devices[d].writer;
      devices_[d].remaps.resize(plan.clients.size());
    }
  }

  Wish wish(size_t client, size_t device) const;

  // --- for the injector
  /// Writer and heir change their parts.
  void hand_over(size_t device);
  void set_contested(size_t device, bool on) { devices_[device].contested = on; }
  void remap(size_t client, size_t device) { ++devices_[device].remaps[client]; }
  void remap_sessions(size_t client) { ++session_remaps_[client]; }
  void take_path(size_t client) { ++paths_taken_[client]; }

  // --- for clients
  uint64_t remaps(size_t client, size_t device) const { return devices_[device].remaps[client]; }
  uint64_t session_remaps(size_t client) const { return session_remaps_[client]; }
  uint64_t paths_taken(size_t client) const { return paths_taken_[client]; }
  /// The client begins to open the device for writing: the next writer waits until it is closed.
  void hold(size_t client, size_t device) { devices_[device].holder = client; }
  void release(size_t client, size_t device);
  std::optional<size_t> holder(size_t device) const { return devices_[device].holder; }
  void opened_for_writing(size_t client, size_t device);
  /// All that it held is free.
  void client_died(size_t client);

  BoardCounters counters;

 private:
  struct Device {
    size_t writer = 0;
    std::optional<size_t> holder;
    std::optional<size_t> last_writer;
    bool contested = false;
    std::vector<uint64_t> remaps;  // by client
  };
  const Plan& plan_;
  std::vector<Device> devices_;
  std::vector<uint64_t> session_remaps_;
  std::vector<uint64_t> paths_taken_;
};

}  // namespace braid::sim
