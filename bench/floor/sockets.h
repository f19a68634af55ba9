// Floors of what goes through sockets: bare connections, without a protocol.
//
// Main thread.
#pragma once

#include <benchmark/benchmark.h>

#include "bench/rounds.h"
#include "bench/workload.h"

namespace braid::bench {

/// A loop of bench/micro/google.h: 8 bytes there and 8 back over a TCP connection of one thread.
void tcp_there_and_back(benchmark::State& state);

enum class SocketKind : uint8_t { kUnix, kTcp };
enum class Waiting : uint8_t { kSleeps, kSpins };

/// A connection made to another process that sleeps, 8 bytes there and back, closed: us, the median
/// one.
std::unique_ptr<Candidate> socket_set_up(SocketKind kind);
/// The same over a connection that is there already, and stays; both ends wait alike.
std::unique_ptr<Candidate> socket_exchange(SocketKind kind, Waiting waiting);

/// Operations in unit_of(work) of a store by a TCP connection of two processes that spin: a request
/// of 24 bytes and an answer of 8, each with the data behind it that is due, as many under way as
/// the work says.
std::unique_ptr<Candidate> tcp_io(const BlockWork& work);

}  // namespace braid::bench
