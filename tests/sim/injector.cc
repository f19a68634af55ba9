#include "tests/sim/injector.h"

#include <utility>

namespace braid::sim {

using base::kMillisecond;
using base::sim::FabricFaults;
using base::sim::SimHost;

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
    case FaultKind::kLateReactor:
      break;
  }
  return "late-reactor";
}

Injector::Injector(base::sim::SimWorld& world, const Plan& plan, Victims& victims, base::Logger log)
    : world_(world),
      plan_(plan),
      victims_(victims),
      random_(world.random().fork()),
      log_(std::move(log)) {}

void Injector::schedule_next() {
  world_.after(random_.below(plan_.fault_gap_max_ns), [this] {
    if (!active_) return;
    inject();
    schedule_next();
  });
}

void Injector::stop_and_heal() {
  active_ = false;
  world_.fabric().heal_all();
  for (size_t i = 0; i < plan_.devices.size(); ++i) {
    if (base::sim::SimDisk* const disk = victims_.disk(i)) disk->faults = {};
    victims_.disk_may_fail(i, false);
  }
  if (victims_.server() == nullptr) victims_.start_server();
  victims_.server()->resume();
  for (size_t i = 0; i < plan_.clients.size(); ++i) {
    if (victims_.client(i) == nullptr) victims_.start_client(i);
    victims_.client(i)->resume();
  }
}

void Injector::inject() {
  const auto kind = static_cast<FaultKind>(random_.below(kFaultKinds - 1));
  log_.info("fault: {}", to_string(kind));
  switch (kind) {
    case FaultKind::kPortDown:
    case FaultKind::kBlackHole:
    case FaultKind::kOneWay:
    case FaultKind::kDropAndReturn:
    case FaultKind::kDelaySpike:
    case FaultKind::kLostAnswers:
      return network_fault(kind);
    case FaultKind::kServerStopped:
      return stop_process(kind, victims_.server());
    case FaultKind::kClientStopped:
      return stop_process(kind, victims_.client(random_.below(plan_.clients.size())));
    case FaultKind::kServerKilled:
    case FaultKind::kServerPowerLoss:
      return kill_server(kind);
    case FaultKind::kClientKilled:
    case FaultKind::kClientPowerLoss:
      return kill_client(kind);
    case FaultKind::kDiskError:
    case FaultKind::kDiskSlow:
    case FaultKind::kDiskStall:
      return disk_fault(kind);
    case FaultKind::kLateReactor:
      break;  // the world's own doing
  }
}

void Injector::for_a_while(FaultKind kind, uint64_t duration_ns, const std::function<void()>& end,
                           const std::function<uint64_t()>& effect) {
  const uint64_t before = effect();
  world_.after(duration_ns, [this, kind, end, effect, before] {
    if (effect() != before) count(kind);
    if (active_) end();
  });
}

void Injector::network_fault(FaultKind kind) {
  base::sim::SimFabric& fabric = world_.fabric();
  const FabricFaults& lost = fabric.faults();
  const std::string client = plan_.clients[random_.below(plan_.clients.size())].ip;
  const std::string server = plan_.server_ip;
  const bool up = random_.one_in(2);
  const std::string from = up ? client : server;
  const std::string to = up ? server : client;
  const uint64_t long_ns = random_.between(20, 3000) * kMillisecond;
  const auto both = [&fabric, client, server](bool on) {
    fabric.set_black_hole(client, server, on);
    fabric.set_black_hole(server, client, on);
  };
  switch (kind) {
    case FaultKind::kPortDown:
      fabric.set_port_up(from, false);
      return for_a_while(
          kind, long_ns, [&fabric, from] { fabric.set_port_up(from, true); },
          [&lost] { return lost.port_down; });
    case FaultKind::kBlackHole:
      both(true);
      return for_a_while(
          kind, long_ns, [both] { both(false); }, [&lost] { return lost.black_hole_both; });
    case FaultKind::kDropAndReturn:
      both(true);
      return for_a_while(
          kind, random_.between(1, 60) * kMillisecond, [both] { both(false); },
          [&lost] { return lost.black_hole_both; });
    case FaultKind::kOneWay:
      fabric.set_black_hole(from, to, true);
      return for_a_while(
          kind, long_ns, [&fabric, from, to] { fabric.set_black_hole(from, to, false); },
          [&lost] { return lost.black_hole_one_way; });
    case FaultKind::kDelaySpike:
      fabric.set_extra_delay(from, to, random_.between(1, 300) * kMillisecond);
      return for_a_while(
          kind, long_ns, [&fabric, from, to] { fabric.set_extra_delay(from, to, 0); },
          [&lost] { return lost.delayed; });
    default:
      fabric.set_lose_answers(from, to, true);
      return for_a_while(
          kind, long_ns, [&fabric, from, to] { fabric.set_lose_answers(from, to, false); },
          [&lost] { return lost.lost_answer; });
  }
}

void Injector::stop_process(FaultKind kind, SimHost* host) {
  if (host == nullptr || host->paused()) return;
  host->pause();
  count(kind);
  world_.after(random_.between(1, 2500) * kMillisecond, [host] { host->resume(); });
}

void Injector::kill_server(FaultKind kind) {
  if (!plan_.server_may_die || victims_.server() == nullptr) return;
  victims_.kill_server(kind == FaultKind::kServerPowerLoss);
  count(kind);
  world_.after(random_.between(1, 2000) * kMillisecond, [this] {
    if (victims_.server() == nullptr) victims_.start_server();
  });
}

void Injector::kill_client(FaultKind kind) {
  const size_t index = random_.below(plan_.clients.size());
  if (victims_.client(index) == nullptr) return;
  victims_.kill_client(index, kind == FaultKind::kClientPowerLoss);
  count(kind);
  world_.after(random_.between(1, 1000) * kMillisecond, [this, index] {
    if (victims_.client(index) == nullptr) victims_.start_client(index);
  });
}

void Injector::disk_fault(FaultKind kind) {
  const size_t device = random_.below(plan_.devices.size());
  base::sim::SimDisk* const disk = victims_.disk(device);
  if (disk == nullptr) return;
  const uint64_t duration_ns = random_.between(10, 1500) * kMillisecond;
  const auto& counters = disk->counters();
  switch (kind) {
    case FaultKind::kDiskError:
      disk->faults.errors_per_million = static_cast<uint32_t>(random_.between(50'000, 1'000'000));
      victims_.disk_may_fail(device, true);
      return for_a_while(
          kind, duration_ns,
          [this, disk, device] {
            disk->faults.errors_per_million = 0;
            victims_.disk_may_fail(device, false);
          },
          [&counters] { return counters.errors; });
    case FaultKind::kDiskSlow:
      disk->faults.slow_factor = 100;
      return for_a_while(
          kind, duration_ns, [disk] { disk->faults.slow_factor = 1; },
          [&counters] { return counters.slow; });
    default:
      disk->faults.stalled_until_ns = world_.now_ns() + duration_ns;
      return for_a_while(
          kind, duration_ns, [] {}, [&counters] { return counters.stalled; });
  }
}

}  // namespace braid::sim
