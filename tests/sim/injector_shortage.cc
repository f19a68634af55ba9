// Processes that are short of memory or descriptors: just when a path is made again, as what they
// have already stays.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tests/sim/injector.h"

namespace braid::sim {

using base::kMillisecond;
using base::sim::SimHost;

namespace {

constexpr uint64_t kShortMaxMs = 1000;

/// After which paths, sessions or devices are made again.
bool ends_paths(FaultKind kind) {
  static constexpr std::array kKinds = {
      FaultKind::kPortDown,        FaultKind::kBlackHole,       FaultKind::kOneWay,
      FaultKind::kLateMessages,    FaultKind::kPartition,       FaultKind::kServerStopped,
      FaultKind::kServerKilled,    FaultKind::kClientKilled,    FaultKind::kServerPowerLoss,
      FaultKind::kClientPowerLoss, FaultKind::kLostInReconnect, FaultKind::kDeviceRemapped,
      FaultKind::kSessionRemapped, FaultKind::kHandedOver,      FaultKind::kTakenOver,
      FaultKind::kTakenAway,       FaultKind::kSessionClosed,   FaultKind::kPathTaken,
      FaultKind::kKeyTaken,        FaultKind::kFileReplaced,    FaultKind::kQpError,
      FaultKind::kCqOverrun,       FaultKind::kAllDown,         FaultKind::kResizedAway};
  return std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

}  // namespace

/// At once: the path is lost and comes back in it. Or when somebody connects, so that what a path
/// is made of is there in part.
void Injector::add_shortage(FaultKind kind, const Target& target) {
  if (!runs_short_ || !ends_paths(kind) || shortages_.one_in(3)) return;
  const bool of_server = shortages_.one_in(2);
  if (shortages_.one_in(3)) return run_short(of_server, target);
  short_at_ = ShortAt{target, of_server};
}

void Injector::shorten_connect(const base::sim::FabricAddress& listener) {
  if (!short_at_) return;
  const ServerPlan& server = plan_.servers[short_at_->target.server];
  if (listener.ip != server.ip && listener.ip != server.second_ip) return;
  const ShortAt at = *std::exchange(short_at_, std::nullopt);
  const uint64_t delay_ns = shortages_.one_in(2) ? 0 : shortages_.below(kReconnectNs);
  world_.after(delay_ns, [this, at] {
    if (active_) run_short(at.of_server, at.target);
  });
}

void Injector::run_short(bool of_server, const Target& target) {
  SimHost* const host = of_server ? victims_.server(target.server) : victims_.client(target.client);
  if (host == nullptr) return;
  const std::string key = fmt::format("shortage of {} of {}", host->name(), host->machine().name());
  if (!begin(key)) return;
  base::sim::SimShortage shortage;
  const uint64_t which = shortages_.below(3);
  shortage.memory = which != 0;
  shortage.descriptors = which != 1;
  // Mostly of some calls only, so that what was made by others has to be given back.
  shortage.refused_in = shortages_.one_in(3) ? 1 : shortages_.between(2, 12);
  shortage.seed = shortages_.next();
  const uint64_t for_ns = shortages_.between(1, kShortMaxMs) * kMillisecond;
  log_.info("fault: {} for {} ms: {}{}, one call in {} is refused", key, for_ns / kMillisecond,
            shortage.memory ? "memory " : "", shortage.descriptors ? "descriptors" : "",
            shortage.refused_in);
  host->run_short(shortage);
  for_a_while(
      of_server ? FaultKind::kServerShort : FaultKind::kClientShort, key, for_ns,
      [host] { host->enough(); }, [host] { return host->refusals(); });
}

}  // namespace braid::sim
