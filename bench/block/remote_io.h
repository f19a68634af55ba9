// Ours in the block rows, without a front end: an export server with a memory device in one
// process, a remote device in another.
//
// Main thread.
#pragma once

#include <memory>
#include <string>

#include "bench/block/neighbours.h"
#include "bench/block/remote_server.h"
#include "bench/rounds.h"
#include "bench/workload.h"

namespace braid::bench {

struct RemoteIo {
  std::string name = "braid remote device, in-host software HCA";
  BlockWork work = {};
  RemoteWay way = {};
  uint64_t pause_ns = 0;  // after each answer
  /// The client sleeps whenever it waits, and so takes the CPU from a neighbour that computes; the
  /// server spins.
  bool sleeps = false;
  Neighbour beside = Neighbour::kNobody;  // another client of the same server
  unsigned idle_sessions = 0;             // of kIdle
};

/// In unit_of(io.work).
std::unique_ptr<Candidate> braid_remote_io(const RemoteIo& io = {});

}  // namespace braid::bench
