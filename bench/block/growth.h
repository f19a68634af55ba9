// What a thousand mapped devices, or sessions, cost: to map one more, for each I/O of one of them,
// and in memory.
//
// Main thread.
#pragma once

#include <memory>

#include "bench/rounds.h"

namespace braid::bench {

enum class Growth : uint8_t {
  kDevices,   // of one server over one session
  kSessions,  // of one client to one server, each with a device
};

/// Maps `count` of them one after the other: how long the longest takes, ms.
std::unique_ptr<Candidate> braid_map_each(Growth growth, unsigned count);

/// Random 4 KiB reads at depth 1 of the last of `count`, while nobody uses the others; IOPS.
std::unique_ptr<Candidate> braid_read_among(Growth growth, unsigned count);

/// The same of any of them by chance, each into a buffer of its own.
std::unique_ptr<Candidate> braid_read_all(Growth growth, unsigned count);

/// Those of one, into as many buffers as `buffers` of them would have: what reads of the others
/// cost beside caches that hold less of the buffers.
std::unique_ptr<Candidate> braid_read_into(Growth growth, unsigned buffers);

/// Memory of client and server together that is there with `count` of them and not with one, MiB.
/// Shared pages count once. Buffers for requests are not touched before their first use.
std::unique_ptr<Candidate> braid_memory_of(Growth growth, unsigned count);

}  // namespace braid::bench
