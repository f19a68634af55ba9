#include "tests/sim/faults.h"

namespace braid::sim {

std::string_view to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::kPortDown:
      return "port-down";
    case FaultKind::kBlackHole:
      return "black-hole";
    case FaultKind::kOneWay:
      return "one-way-loss";
    case FaultKind::kDropAndReturn:
      return "drop-and-return";
    case FaultKind::kDelaySpike:
      return "delay-spike";
    case FaultKind::kLinkSlow:
      return "link-slow";
    case FaultKind::kLostAnswers:
      return "lost-acknowledgement";
    case FaultKind::kLateMessages:
      return "late-messages";
    case FaultKind::kNoReceive:
      return "receiver-not-ready";
    case FaultKind::kPartition:
      return "partition";
    case FaultKind::kServerStopped:
      return "server-stopped";
    case FaultKind::kClientStopped:
      return "client-stopped";
    case FaultKind::kServerKilled:
      return "server-killed";
    case FaultKind::kClientKilled:
      return "client-killed";
    case FaultKind::kServerPowerLoss:
      return "server-power-loss";
    case FaultKind::kClientPowerLoss:
      return "client-power-loss";
    case FaultKind::kDiskError:
      return "disk-error";
    case FaultKind::kDiskSlow:
      return "disk-slow";
    case FaultKind::kDiskStall:
      return "disk-stall";
    case FaultKind::kDiskFull:
      return "disk-full";
    case FaultKind::kReactorHung:
      return "reactor-hung";
    case FaultKind::kLostInReconnect:
      return "lost-in-reconnect";
    case FaultKind::kDeviceRemapped:
      return "device-remapped";
    case FaultKind::kSessionRemapped:
      return "session-remapped";
    case FaultKind::kHandedOver:
      return "handed-over";
    case FaultKind::kContested:
      return "contested";
    case FaultKind::kTakenOver:
      return "taken-over";
    case FaultKind::kTakenAway:
      return "taken-away";
    case FaultKind::kSessionClosed:
      return "session-closed";
    case FaultKind::kPathTaken:
      return "path-taken";
    case FaultKind::kKeyTaken:
      return "key-taken";
    case FaultKind::kResized:
      return "resized";
    case FaultKind::kFileReplaced:
      return "file-replaced";
    case FaultKind::kQpError:
      return "queue-pair-error";
    case FaultKind::kCqOverrun:
      return "cq-overrun";
    case FaultKind::kAllDown:
      return "all-down";
    case FaultKind::kDiskShort:
      return "disk-short";
    case FaultKind::kResizedAway:
      return "resized-while-down";
    case FaultKind::kDiskLies:
      return "disk-lies";
    case FaultKind::kClientShort:
      return "client-short";
    case FaultKind::kServerShort:
      return "server-short";
    case FaultKind::kMemoryReplaced:
      return "memory-replaced";
    case FaultKind::kSessionLost:
      return "session-lost";
    case FaultKind::kGaveUp:
      return "gave-up";
    case FaultKind::kLateWrites:
      return "late-writes";
    case FaultKind::kWritesLost:
      return "writes-lost";
    case FaultKind::kLateReactor:
      return "late-reactor";
    case FaultKind::kUpgraded:
      break;
  }
  return "upgraded";
}

uint64_t injected(const FaultCounts& counts) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kInjectedFaultKinds; ++i)
    if (static_cast<FaultKind>(i) != FaultKind::kContested) sum += counts[i];
  return sum;
}

}  // namespace braid::sim
