#include "tests/sim/injector.h"

#include <algorithm>
#include <array>
#include <utility>

namespace braid::sim {

using base::kMillisecond;

namespace {

constexpr uint64_t kAimMaxNs = 300 * kMillisecond;         // nobody may be able to submit
constexpr uint64_t kRequestNs = 300 * base::kMicrosecond;  // about what a request takes

constexpr uint64_t kMadeGoodNs = base::kSecond;

// Of its own, so that rounds without shortages stay what they were.
constexpr uint64_t kShortageStream = 0x73686f7274616765;

}  // namespace

Injector::Injector(base::sim::SimWorld& world, const Plan& plan, Board& board, Victims& victims,
                   base::Logger log)
    : world_(world),
      plan_(plan),
      board_(board),
      victims_(victims),
      random_(world.random().fork()),
      log_(std::move(log)),
      shortages_(world.options().seed ^ kShortageStream),
      runs_short_(!plan.gentle && shortages_.one_in(2)) {
  world_.fabric().set_connect_hook(
      [this](const base::sim::FabricAddress& listener) { connect_seen(listener); });
}

void Injector::schedule_next() {
  world_.after(random_.below(plan_.fault_gap_max_ns), [this] {
    if (!active_) return;
    if (random_.one_in(4)) return fire(draw_target());
    aiming_ = true;
    world_.after(kAimMaxNs, [this, shot = shots_] {
      if (active_ && aiming_ && shot == shots_) fire(draw_target());
    });
  });
}

void Injector::request_begins(size_t client, size_t device) {
  if (!aiming_ || !active_) return;
  aiming_ = false;
  const Target target{client, device, plan_.devices[device].server};
  world_.after(random_.below(kRequestNs), [this, target] {
    if (active_) fire(target);
  });
}

void Injector::fire(Target target) {
  aiming_ = false;
  ++shots_;
  FaultKind kind = deal();
  while (!inject(kind, target)) {
    kind = deal();
    target = draw_target();
  }
  log_.info("fault: {}", to_string(kind));
  add_shortage(kind, target);
  schedule_next();
}

Injector::Target Injector::draw_target() {
  Target target;
  target.client = random_.below(plan_.clients.size());
  target.device = random_.below(plan_.devices.size());
  target.server = random_.below(plan_.servers.size());
  return target;
}

/// In a gentle round only what costs no path.
bool Injector::drawn(FaultKind kind) const {
  static constexpr std::array kGentle = {
      FaultKind::kDropAndReturn,  FaultKind::kDelaySpike,      FaultKind::kNoReceive,
      FaultKind::kServerStopped,  FaultKind::kClientStopped,   FaultKind::kReactorHung,
      FaultKind::kDiskError,      FaultKind::kDiskSlow,        FaultKind::kDiskStall,
      FaultKind::kDeviceRemapped, FaultKind::kSessionRemapped, FaultKind::kHandedOver,
      FaultKind::kContested,      FaultKind::kTakenAway,       FaultKind::kDiskFull,
      FaultKind::kLinkSlow,       FaultKind::kDiskShort};
  return !plan_.gentle || std::find(kGentle.begin(), kGentle.end(), kind) != kGentle.end();
}

FaultKind Injector::deal() {
  if (deck_.empty()) {
    for (size_t i = 0; i < kDrawnFaultKinds; ++i)
      if (drawn(static_cast<FaultKind>(i))) deck_.push_back(static_cast<FaultKind>(i));
    for (size_t i = deck_.size() - 1; i > 0; --i) std::swap(deck_[i], deck_[random_.below(i + 1)]);
  }
  const FaultKind kind = deck_.back();
  deck_.pop_back();
  return kind;
}

void Injector::stop_and_heal() {
  active_ = false;
  world_.fabric().heal_all();
  for (size_t i = 0; i < plan_.devices.size(); ++i) {
    if (base::sim::SimDisk* const disk = victims_.disk(i)) disk->faults = {};
    victims_.disk_may_fail(i, false);
    victims_.disk_may_fill(i, false);
    victims_.disk_may_lie(i, false);
    victims_.restore_size(i);
    board_.set_contested(i, false);
  }
  for (size_t i = 0; i < plan_.servers.size(); ++i) {
    if (victims_.server(i) == nullptr) victims_.start_server(i);
    victims_.server(i)->resume();
    victims_.server(i)->enough();
    if (plan_.servers[i].asks_for_keys()) victims_.set_keys(i, std::nullopt);
  }
  for (size_t i = 0; i < plan_.clients.size(); ++i) {
    if (victims_.client(i) == nullptr) victims_.start_client(i);
    victims_.client(i)->resume();
    victims_.client(i)->enough();
  }
}

bool Injector::inject(FaultKind kind, const Target& target) {
  switch (kind) {
    case FaultKind::kPortDown:
    case FaultKind::kBlackHole:
    case FaultKind::kOneWay:
    case FaultKind::kDropAndReturn:
    case FaultKind::kDelaySpike:
    case FaultKind::kLinkSlow:
    case FaultKind::kLostAnswers:
    case FaultKind::kNoReceive:
      return network_fault(kind, target);
    case FaultKind::kLateMessages:
      return late_messages(target);
    case FaultKind::kPartition:
      return partition();
    case FaultKind::kServerStopped:
      return stop_server(target.server);
    case FaultKind::kClientStopped:
      return stop_client(target.client);
    case FaultKind::kServerKilled:
    case FaultKind::kServerPowerLoss:
      return kill_server(kind, target.server);
    case FaultKind::kClientKilled:
    case FaultKind::kClientPowerLoss:
      return kill_client(kind, target.client);
    case FaultKind::kDiskError:
    case FaultKind::kDiskSlow:
    case FaultKind::kDiskStall:
    case FaultKind::kDiskFull:
    case FaultKind::kDiskShort:
    case FaultKind::kDiskLies:
      return disk_fault(kind, target.device);
    case FaultKind::kReactorHung:
      return hang_reactor(target);
    case FaultKind::kLostInReconnect:
      return disturb_reconnect(target.server);
    case FaultKind::kDeviceRemapped:
    case FaultKind::kSessionRemapped:
    case FaultKind::kHandedOver:
    case FaultKind::kContested:
      return change_wishes(kind, target.client, target.device);
    case FaultKind::kTakenOver:
      return take_over(target.device);
    case FaultKind::kTakenAway:
      return take_away(target.device);
    case FaultKind::kSessionClosed:
      return close_session(target);
    case FaultKind::kPathTaken:
      board_.take_path(target.client);
      return !plan_.clients[target.client].second_ip.empty();
    case FaultKind::kKeyTaken:
      return take_key(target);
    case FaultKind::kResized:
      return resize(target.device);
    case FaultKind::kFileReplaced:
      return replace_file(target.device);
    case FaultKind::kQpError:
    case FaultKind::kCqOverrun:
      return fail_adapter(kind, target);
    case FaultKind::kAllDown:
      return kill_all();
    case FaultKind::kResizedAway:
      return resize_away(target.device);
    case FaultKind::kClientShort:
    case FaultKind::kServerShort:
    case FaultKind::kMemoryReplaced:
    case FaultKind::kSessionLost:
    case FaultKind::kGaveUp:
    case FaultKind::kLateWrites:
    case FaultKind::kWritesLost:
    case FaultKind::kLateReactor:
    case FaultKind::kUpgraded:
      break;  // not drawn
  }
  return false;
}

void Injector::for_a_while(FaultKind kind, const std::string& key, uint64_t duration_ns,
                           const std::function<void()>& end,
                           const std::function<uint64_t()>& effect) {
  const uint64_t before = effect();
  world_.after(duration_ns, [this, kind, key, end, effect, before] {
    release(key);
    if (effect() != before) count(kind);
    if (active_) end();
  });
}

/// In a gentle round the next of its kind waits until this one is made good.
void Injector::release(const std::string& key) {
  if (!plan_.gentle) {
    lasting_.erase(key);
    return;
  }
  world_.after(kMadeGoodNs, [this, key] { lasting_.erase(key); });
}

}  // namespace braid::sim
