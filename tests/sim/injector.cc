#include "tests/sim/injector.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace braid::sim {

using base::kMillisecond;
using base::sim::SimHost;

namespace {

constexpr uint64_t kAimMaxNs = 300 * kMillisecond;           // nobody may be able to submit
constexpr uint64_t kRequestNs = 300 * base::kMicrosecond;    // about what a request takes
constexpr uint64_t kReconnectNs = 800 * base::kMicrosecond;  // from the first connection on

constexpr uint64_t kMadeGoodNs = base::kSecond;

std::string process_key(const SimHost& host) {
  return "process " + host.name() + " of " + host.machine().name();
}

std::string path_key(const std::string& a, const std::string& b) {
  return "path " + std::min(a, b) + " " + std::max(a, b);
}

double milliseconds(uint64_t ns) {
  return static_cast<double>(ns) / static_cast<double>(kMillisecond);
}

}  // namespace

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
    case FaultKind::kMemoryReplaced:
      return "memory-replaced";
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
  return "server-upgraded";
}

uint64_t injected(const FaultCounts& counts) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kDrawnFaultKinds; ++i)
    if (static_cast<FaultKind>(i) != FaultKind::kContested) sum += counts[i];
  return sum;
}

Injector::Injector(base::sim::SimWorld& world, const Plan& plan, Board& board, Victims& victims,
                   base::Logger log)
    : world_(world),
      plan_(plan),
      board_(board),
      victims_(victims),
      random_(world.random().fork()),
      log_(std::move(log)) {
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
      FaultKind::kContested,      FaultKind::kTakenAway};
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
    board_.set_contested(i, false);
  }
  for (size_t i = 0; i < plan_.servers.size(); ++i) {
    if (victims_.server(i) == nullptr) victims_.start_server(i);
    victims_.server(i)->resume();
  }
  for (size_t i = 0; i < plan_.clients.size(); ++i) {
    if (victims_.client(i) == nullptr) victims_.start_client(i);
    victims_.client(i)->resume();
  }
}

bool Injector::inject(FaultKind kind, const Target& target) {
  switch (kind) {
    case FaultKind::kPortDown:
    case FaultKind::kBlackHole:
    case FaultKind::kOneWay:
    case FaultKind::kDropAndReturn:
    case FaultKind::kDelaySpike:
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
    case FaultKind::kMemoryReplaced:
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

bool Injector::network_fault(FaultKind kind, const Target& target) {
  base::sim::SimFabric& fabric = world_.fabric();
  const ClientPlan& of_client = plan_.clients[target.client];
  const ServerPlan& of_server = plan_.servers[target.server];
  const bool second = !of_client.second_ip.empty() && random_.one_in(2);
  const std::string client = second ? of_client.second_ip : of_client.ip;
  const std::string server = second ? of_server.second_ip : of_server.ip;
  const bool up = random_.one_in(2);
  const std::string from = up ? client : server;
  const std::string to = up ? server : client;
  const bool gentle = plan_.gentle;
  const uint64_t long_ns = random_.between(20, gentle ? 200 : 3000) * kMillisecond;
  switch (kind) {
    case FaultKind::kPortDown:
      if (!begin("port " + from)) return true;
      fabric.set_port_up(from, false);
      for_a_while(
          kind, "port " + from, long_ns, [&fabric, from] { fabric.set_port_up(from, true); },
          [&fabric, from] { return fabric.port_hits(from); });
      return true;
    case FaultKind::kDropAndReturn:
      lose_path(kind, from, to, random_.between(1, gentle ? 40 : 60) * kMillisecond);
      return true;
    case FaultKind::kNoReceive:
      lose_path(kind, from, to, random_.between(1, gentle ? 100 : 300) * kMillisecond);
      return true;
    default:
      lose_path(kind, from, to, long_ns);
      return true;
  }
}

void Injector::lose_path(FaultKind kind, const std::string& from, const std::string& to,
                         uint64_t for_ns) {
  base::sim::SimFabric& fabric = world_.fabric();
  const std::string key = path_key(from, to);
  if (!begin(key)) return;
  const bool both = kind == FaultKind::kBlackHole || kind == FaultKind::kDropAndReturn ||
                    kind == FaultKind::kPartition;
  const uint64_t delay_ns = random_.between(1, plan_.gentle ? 20 : 300) * kMillisecond;
  const auto set = [&fabric, kind, both, from, to, delay_ns](bool on) {
    if (kind == FaultKind::kDelaySpike) {
      fabric.set_extra_delay(from, to, on ? delay_ns : 0);
    } else if (kind == FaultKind::kLostAnswers) {
      fabric.set_lose_answers(from, to, on);
    } else if (kind == FaultKind::kNoReceive) {
      fabric.set_receive_missing(from, to, on);
    } else {
      fabric.set_black_hole(from, to, on);
      if (both) fabric.set_black_hole(to, from, on);
    }
  };
  set(true);
  log_.info("fault: {} from {} to {}{} for {:.1f} ms{}", to_string(kind), from, to,
            both ? " and back" : "", milliseconds(for_ns),
            kind == FaultKind::kDelaySpike ? fmt::format(", {:.1f} ms each", milliseconds(delay_ns))
                                           : "");
  for_a_while(
      kind, key, for_ns, [set] { set(false); },
      [&fabric, from, to] { return fabric.path_hits(from, to) + fabric.path_hits(to, from); });
}

/// What is sent for a short while lands after its sender has given the path up; mostly soon after,
/// when what moved to another path is under way.
bool Injector::late_messages(const Target& target) {
  const ClientPlan& of_client = plan_.clients[target.client];
  const ServerPlan& of_server = plan_.servers[target.server];
  const bool second = !of_client.second_ip.empty() && random_.one_in(2);
  const std::string client = second ? of_client.second_ip : of_client.ip;
  const std::string server = second ? of_server.second_ip : of_server.ip;
  const bool up = random_.below(4) != 0;
  const std::string from = up ? client : server;
  const std::string to = up ? server : client;
  const std::string key = path_key(from, to);
  if (!begin(key)) return true;
  base::sim::SimFabric& fabric = world_.fabric();
  const uint64_t late_ms =
      random_.one_in(3) ? random_.between(250, 3000) : random_.between(120, 250);
  fabric.set_held_until(from, to, world_.now_ns() + late_ms * kMillisecond);
  for_a_while(
      FaultKind::kLateMessages, key, random_.between(1, 100) * kMillisecond,
      [&fabric, from, to] { fabric.set_held_until(from, to, 0); },
      [&fabric, from, to] { return fabric.path_hits(from, to); });
  return true;
}

/// Some clients and some servers do not reach each other, by whatever path.
bool Injector::partition() {
  const uint64_t for_ns = random_.between(20, 4000) * kMillisecond;
  const auto draw_some = [this](size_t count) {
    std::vector<bool> some(count);
    some[random_.below(count)] = true;
    for (size_t i = 0; i < count; ++i) some[i] = some[i] || random_.one_in(2);
    return some;
  };
  const std::vector<bool> clients = draw_some(plan_.clients.size());
  const std::vector<bool> servers = draw_some(plan_.servers.size());
  for (size_t c = 0; c < clients.size(); ++c) {
    for (size_t s = 0; s < servers.size(); ++s) {
      if (clients[c] && servers[s]) lose_all_paths(FaultKind::kPartition, c, s, for_ns);
    }
  }
  return true;
}

void Injector::lose_all_paths(FaultKind kind, size_t client, size_t server, uint64_t for_ns) {
  const ClientPlan& of_client = plan_.clients[client];
  const ServerPlan& of_server = plan_.servers[server];
  lose_path(kind, of_client.ip, of_server.ip, for_ns);
  if (of_client.second_ip.empty()) return;
  lose_path(kind, of_client.second_ip, of_server.second_ip, for_ns);
}

// --- processes

/// Stops it; how long.
uint64_t Injector::stop(SimHost& host, const std::string& key) {
  if (!begin(key)) return 0;
  const uint64_t for_ns = random_.between(1, plan_.gentle ? 200 : 2500) * kMillisecond;
  log_.info("fault: {} stopped for {:.1f} ms", key, milliseconds(for_ns));
  host.pause();
  world_.after(for_ns, [this, &host, key] {
    host.resume();
    release(key);
  });
  return for_ns;
}

bool Injector::stop_server(size_t server) {
  SimHost* const host = victims_.server(server);
  if (host == nullptr || host->paused()) return true;
  if (victims_.requests_at(server) != 0) count(FaultKind::kServerStopped);
  if (stop(*host, process_key(*host)) <= kSilenceNoticedNs) return true;
  world_.after(kSilenceNoticedNs, [this, host, server] {
    if (active_ && victims_.server(server) == host) victims_.check_silence_noticed(server);
  });
  return true;
}

bool Injector::stop_client(size_t client) {
  SimHost* const host = victims_.client(client);
  if (host == nullptr || host->paused()) return true;
  if (victims_.requests_of(client) != 0) count(FaultKind::kClientStopped);
  stop(*host, process_key(*host));
  return true;
}

bool Injector::hang_reactor(const Target& target) {
  const bool at_server = random_.one_in(2);
  SimHost* const host = at_server ? victims_.server(target.server) : victims_.client(target.client);
  if (host == nullptr || host->reactors() == 0) return true;
  const size_t requests =
      at_server ? victims_.requests_at(target.server) : victims_.requests_of(target.client);
  const std::string key = process_key(*host);
  if (!begin(key)) return true;
  if (requests != 0) count(FaultKind::kReactorHung);
  const uint64_t for_ns = random_.between(10, plan_.gentle ? 200 : 1500) * kMillisecond;
  const size_t reactor = random_.below(host->reactors());
  log_.info("fault: reactor {} of {} hung for {:.1f} ms", reactor, key, milliseconds(for_ns));
  host->hang_reactor(reactor, for_ns);
  world_.after(for_ns, [this, key] { release(key); });
  return true;
}

bool Injector::kill_server(FaultKind kind, size_t server) {
  if (victims_.server(server) == nullptr) return true;
  if (victims_.requests_at(server) != 0) count(kind);
  victims_.kill_server(server, kind == FaultKind::kServerPowerLoss);
  // Now and then for longer than devices wait; mostly, if it dies while they are opened again.
  const bool for_long = striking_ != random_.one_in(4);
  const uint64_t down_ms = for_long ? random_.between(3000, 8000) : random_.between(1, 2000);
  world_.after(down_ms * kMillisecond, [this, server] {
    if (victims_.server(server) == nullptr) victims_.start_server(server);
  });
  return true;
}

bool Injector::kill_client(FaultKind kind, size_t client) {
  if (victims_.client(client) == nullptr) return true;
  if (victims_.requests_of(client) != 0) count(kind);
  victims_.kill_client(client, kind == FaultKind::kClientPowerLoss);
  // Now and then its heirs take over what it wrote.
  if (random_.one_in(2)) {
    for (size_t d = 0; d < plan_.devices.size(); ++d)
      if (board_.wish(client, d) == Wish::kWrite) board_.hand_over(d);
  }
  world_.after(random_.between(1, 1000) * kMillisecond, [this, client] {
    if (victims_.client(client) == nullptr) victims_.start_client(client);
  });
  return true;
}

bool Injector::change_wishes(FaultKind kind, size_t client, size_t device) {
  const bool has_heir = plan_.devices[device].heir.has_value();
  switch (kind) {
    case FaultKind::kDeviceRemapped:
      board_.remap(client, device);
      return plan_.devices[device].used_by(client);
    case FaultKind::kSessionRemapped:
      board_.remap_sessions(client);
      return true;
    case FaultKind::kHandedOver:
      board_.hand_over(device);
      return has_heir;
    default:
      board_.set_contested(device, true);
      world_.after(random_.between(100, 1500) * kMillisecond,
                   [this, device] { board_.set_contested(device, false); });
      return has_heir;
  }
}

/// Cuts the writer's path for so long that the server notices, and another client tries meanwhile.
bool Injector::take_over(size_t device) {
  const DevicePlan& plan = plan_.devices[device];
  if (!plan.heir) return false;
  const std::optional<size_t> writer = board_.holder(device);
  if (!writer) return true;
  const uint64_t for_ns = random_.between(2500, 5000) * kMillisecond;
  lose_all_paths(FaultKind::kBlackHole, *writer, plan.server, for_ns);
  board_.set_contested(device, true);
  world_.after(for_ns, [this, device] { board_.set_contested(device, false); });
  return true;
}

/// Those who have it open hold what they want of it until they map it again; who contests it may be
/// let in before.
bool Injector::take_away(size_t device) {
  const size_t server = plan_.devices[device].server;
  if (victims_.server(server) == nullptr) return true;
  if (plan_.devices[device].heir && random_.one_in(3)) {
    board_.set_contested(device, true);
    world_.after(random_.between(500, 2500) * kMillisecond,
                 [this, device] { board_.set_contested(device, false); });
  }
  victims_.operator_closes(device);
  return true;
}

// --- a second fault while devices are opened again

bool Injector::disturb_reconnect(size_t server) {
  if (strike_at_ || victims_.server(server) == nullptr) return true;
  strike_at_ = server;
  victims_.kill_server(server, false);
  world_.after(random_.between(1, 200) * kMillisecond, [this, server] {
    if (victims_.server(server) == nullptr) victims_.start_server(server);
  });
  return true;
}

void Injector::connect_seen(const base::sim::FabricAddress& listener) {
  if (!active_ || !strike_at_ || plan_.servers[*strike_at_].ip != listener.ip) return;
  // From here on: connections, info exchange, versions, opens.
  const size_t server = *std::exchange(strike_at_, std::nullopt);
  world_.after(random_.below(kReconnectNs), [this, server] { strike(server); });
}

void Injector::strike(size_t server) {
  if (!active_ || victims_.server(server) == nullptr) return;
  if (victims_.reconnecting_to(server)) count(FaultKind::kLostInReconnect);
  Target target = draw_target();
  target.server = server;
  static constexpr std::array kKinds = {FaultKind::kServerKilled, FaultKind::kServerPowerLoss,
                                        FaultKind::kServerStopped, FaultKind::kBlackHole};
  striking_ = true;
  (void)inject(kKinds[random_.below(kKinds.size())], target);
  striking_ = false;
}

bool Injector::disk_fault(FaultKind kind, size_t device) {
  base::sim::SimDisk* const disk = victims_.disk(device);
  if (disk == nullptr) return false;
  const std::string key = fmt::format("disk {}", device);
  if (!begin(key)) return true;
  const uint64_t duration_ns = random_.between(10, 1500) * kMillisecond;
  const auto& counters = disk->counters();
  switch (kind) {
    case FaultKind::kDiskError:
      disk->faults.errors_per_million = static_cast<uint32_t>(random_.between(50'000, 1'000'000));
      victims_.disk_may_fail(device, true);
      for_a_while(
          kind, key, duration_ns,
          [this, disk, device] {
            disk->faults.errors_per_million = 0;
            victims_.disk_may_fail(device, false);
          },
          [&counters] { return counters.errors; });
      break;
    case FaultKind::kDiskSlow:
      disk->faults.slow_factor = 100;
      for_a_while(
          kind, key, duration_ns, [disk] { disk->faults.slow_factor = 1; },
          [&counters] { return counters.slow; });
      break;
    default:
      disk->faults.stalled_until_ns = world_.now_ns() + duration_ns;
      disk->faults.stalls_some = random_.one_in(2);
      for_a_while(
          kind, key, duration_ns, [] {}, [&counters] { return counters.stalled; });
  }
  return true;
}

}  // namespace braid::sim
