// Floors of what goes through sockets: bare connections, without a protocol.
//
// Main thread.
#pragma once

#include <benchmark/benchmark.h>

#include "bench/rounds.h"

namespace braid::bench {

/// A loop of bench/micro/google.h: 8 bytes there and 8 back over a TCP connection of one thread.
void tcp_there_and_back(benchmark::State& state);

enum class SocketKind : uint8_t { kUnix, kTcp };

/// A connection made to another process that sleeps, 8 bytes there and back, closed: us, the median
/// one.
std::unique_ptr<Candidate> socket_set_up(SocketKind kind);
/// The same over a connection that is there already, and stays.
std::unique_ptr<Candidate> socket_exchange(SocketKind kind);

}  // namespace braid::bench
