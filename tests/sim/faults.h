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
  kLinkSlow,       // all messages share little bandwidth
  kLostAnswers,    // requests are executed, their acknowledgements are lost
  kLateMessages,   // messages land when their path was given up long ago
  kNoReceive,      // receiver not ready
  kPartition,      // some clients and some servers, by all their paths
  kServerStopped,  // SIGSTOP, SIGCONT
  kClientStopped,
  kServerKilled,  // kill -9, started again
  kClientKilled,
  kServerPowerLoss,  // the machine: unsynced writes are lost, a new boot
  kClientPowerLoss,
  kDiskError,        // EIO
  kDiskSlow,         // 100 times slower
  kDiskStall,        // nothing completes for a while
  kDiskFull,         // no room for some of what is written
  kReactorHung,      // one reactor of a process gets no turn
  kLostInReconnect,  // a second fault, while a path is being made and devices are opened again
  kDeviceRemapped,   // closed with requests under way, opened again
  kSessionRemapped,  // the same, all devices of a session
  kHandedOver,       // another client becomes the writer
  kContested,        // a second writer tries, and is refused
  kTakenOver,        // a second writer is let in while the first one's path is cut
  kTakenAway,        // a server's operator closes a device; its client maps it again
  kSessionClosed,    // a server's operator closes a client's whole session
  kPathTaken,        // a client's operator takes a path down, or away, and gives it back
  kKeyTaken,         // a server does not know a client's key for a while
  kResized,          // a server's operator makes a file larger or smaller, in use
  kFileReplaced,     // while its server was down another file took its name
  kQpError,          // a queue pair goes to ERR by itself, at one end
  kCqOverrun,        // a completion queue is overrun, and its queue pairs fail
  kAllDown,          // all machines, or all processes, at one moment
  kDiskShort,        // transfers move a part, and the rest later
  kResizedAway,      // while its server was down somebody gave a file another size
  kDiskLies,         // flush and FUA are acknowledged and not done
  kClientShort,      // of memory or descriptors, as a path comes back
  kServerShort,      // the same
  kMemoryReplaced,   // a memory device came back as another, and was unmapped
  kSessionLost,      // its path was away for longer than its limit; it was opened anew
  kGaveUp,           // requests: their device was away for longer than its limit
  kLateWrites,       // a write landed after the death of its process
  kWritesLost,       // a power loss took sectors that were not flushed
  kLateReactor,      // a reactor comes late to its turn
  kUpgraded,         // a server or a client came back as a newer version
};
inline constexpr size_t kFaultKinds = 48;
/// Those that the injector deals from its deck.
inline constexpr size_t kDrawnFaultKinds = static_cast<size_t>(FaultKind::kClientShort);
/// Those that it does; the others follow from them, or are the world's own doing.
inline constexpr size_t kInjectedFaultKinds = static_cast<size_t>(FaultKind::kMemoryReplaced);
std::string_view to_string(FaultKind kind);

using FaultCounts = std::array<uint64_t, kFaultKinds>;
/// Faults that were injected and hit something. (Of kContested the count is of refusals.)
uint64_t injected(const FaultCounts& counts);

}  // namespace braid::sim
