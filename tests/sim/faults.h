// What can go wrong in a round, by kind, and how often it did.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace braid::sim {

enum class FaultKind : uint8_t {
  kPortDown,       // a cable is pulled for a while
  kBlackHole,      // nothing passes between client and server
  kOneWay,         // nothing passes in one direction
  kDropAndReturn,  // lost for less than the retry budget: retransmission bridges it
  kDelaySpike,     // messages are held up
  kLostAnswers,    // requests are executed, their acknowledgements are lost
  kServerStopped,  // SIGSTOP, SIGCONT
  kClientStopped,
  kServerKilled,  // kill -9, started again
  kClientKilled,
  kServerPowerLoss,  // the machine: unsynced writes are lost, a new boot
  kClientPowerLoss,
  kDiskError,    // EIO
  kDiskSlow,     // 100 times slower
  kDiskStall,    // nothing completes for a while
  kLateReactor,  // a reactor comes late to its turn
};
inline constexpr size_t kFaultKinds = 16;
std::string_view to_string(FaultKind kind);

using FaultCounts = std::array<uint64_t, kFaultKinds>;

}  // namespace braid::sim
