// What an application sees of a path that fails under load: the longest I/O over the fault. A
// session of two paths, each by a port of its own, of which one loses its link or becomes a black
// hole; the other one goes on.
//
// Main thread.
#pragma once

#include <memory>
#include <string>

#include "bench/block/remote_server.h"
#include "bench/rounds.h"

namespace braid::bench {

enum class PortFault : uint8_t {
  kLinkDown,  // the port says so, and the client hears of it as a node or a library user does
  kSilent,    // a black hole: nobody is told
};

struct Failover {
  PortFault fault = PortFault::kLinkDown;
  Wire wire = Wire::kInHost;
  trs::HeartbeatOptions heartbeat = {};  // of the client
  bool write = false;
};

/// The longest time until somebody finds out: the heartbeats, or the adapter, whose tries end when
/// nothing is acknowledged. 0: it is told.
uint64_t detection_ns(const Failover& failover);
/// "detected in 117 ms ...", for a row's note.
std::string detection_text(const Failover& failover);

/// In ms. Fails if any I/O fails, if a fault takes nothing from the path, or if the I/O does not go
/// on by the other one.
std::unique_ptr<Candidate> braid_failover(const Failover& failover);

}  // namespace braid::bench
