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

/// Maps `count` of them one after the other, by the library and without a front end: how long the
/// longest takes, ms.
std::unique_ptr<Candidate> braid_map_each(Growth growth, unsigned count);

/// Random 4 KiB reads at depth 1 of the last `buffers` of `count`, each of which has a buffer of
/// its own, while nobody uses the others; IOPS. With more buffers than devices each has several:
/// the caches lose as much to them as to those of as many devices.
std::unique_ptr<Candidate> braid_reads(Growth growth, unsigned count, unsigned buffers);

/// Memory of client and server together that is there with `count` of them and not with one, MiB.
/// Shared pages count once. Buffers for requests are not touched before their first use.
std::unique_ptr<Candidate> braid_memory_of(Growth growth, unsigned count);

}  // namespace braid::bench
