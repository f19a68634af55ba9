// Faults of processes, machines and disks.
#include "tests/sim/injector.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace braid::sim {

using base::kMillisecond;
using base::sim::SimHost;

namespace {

std::string process_key(const SimHost& host) {
  return "process " + host.name() + " of " + host.machine().name();
}

}  // namespace

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
  const bool busy = victims_.requests_at(server) != 0;
  const uint64_t for_ns = stop(*host, process_key(*host));
  if (busy && for_ns != 0) count(FaultKind::kServerStopped);
  if (for_ns <= kSilenceNoticedNs) return true;
  // Answers that were on the way have come.
  world_.after(kLastWordsNs, [this, host, server] {
    if (!active_ || victims_.server(server) != host) return;
    std::vector<size_t> waiting;
    for (size_t i = 0; i < plan_.clients.size(); ++i) {
      if (victims_.requests_between(i, server) != 0) waiting.push_back(i);
    }
    world_.after(kSilenceNoticedNs - kLastWordsNs, [this, host, server, waiting] {
      if (active_ && victims_.server(server) == host)
        victims_.check_silence_noticed(server, waiting);
    });
  });
  return true;
}

bool Injector::stop_client(size_t client) {
  SimHost* const host = victims_.client(client);
  if (host == nullptr || host->paused()) return true;
  const bool busy = victims_.requests_of(client) != 0;
  if (stop(*host, process_key(*host)) != 0 && busy) count(FaultKind::kClientStopped);
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

bool Injector::replace_file(size_t device) {
  const DevicePlan& plan = plan_.devices[device];
  if (plan.memory) return false;
  if (victims_.server(plan.server) == nullptr) return true;
  if (victims_.requests_at(plan.server) != 0) count(FaultKind::kFileReplaced);
  victims_.kill_server(plan.server, false);
  victims_.replace_file(device);
  world_.after(random_.between(1, 500) * kMillisecond, [this, server = plan.server] {
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

void Injector::start_later(bool of_server, size_t index, uint64_t down_ms) {
  world_.after(down_ms * kMillisecond, [this, of_server, index] {
    if (of_server && victims_.server(index) == nullptr) victims_.start_server(index);
    if (!of_server && victims_.client(index) == nullptr) victims_.start_client(index);
  });
}

/// Nobody is left who knows anything but what is on disks.
bool Injector::kill_all() {
  const bool power = random_.one_in(2);
  bool busy = false;
  for (size_t i = 0; i < plan_.clients.size(); ++i) {
    if (victims_.client(i) == nullptr) continue;
    busy = busy || victims_.requests_of(i) != 0;
    victims_.kill_client(i, power);
    start_later(false, i, random_.between(1, 1000));
  }
  for (size_t i = 0; i < plan_.servers.size(); ++i) {
    if (victims_.server(i) == nullptr) continue;
    victims_.kill_server(i, power);
    start_later(true, i, random_.between(1, 1000));
  }
  if (busy) count(FaultKind::kAllDown);
  return true;
}

/// At one end only: the other one finds out by what comes of its requests.
bool Injector::fail_adapter(FaultKind kind, const Target& target) {
  const bool of_server = random_.one_in(2);
  const size_t index = of_server ? target.server : target.client;
  const SimHost* const host = of_server ? victims_.server(index) : victims_.client(index);
  if (host == nullptr) return true;
  const auto fault =
      kind == FaultKind::kQpError ? vhca::DeviceFault::kQpError : vhca::DeviceFault::kCqOverrun;
  const auto hit = [this, kind, of_server, index] {
    const size_t busy = of_server ? victims_.requests_at(index) : victims_.requests_of(index);
    if (active_ && busy != 0) count(kind);
  };
  log_.info("fault: {} at {}", to_string(kind), process_key(*host));
  victims_.fail_adapter(of_server, index, fault, random_.next(), hit);
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
  if (!active_) return;
  shorten_connect(listener);
  if (!strike_at_ || plan_.servers[*strike_at_].ip != listener.ip) return;
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

// --- disks

bool Injector::disk_fault(FaultKind kind, size_t device) {
  base::sim::SimDisk* const disk = victims_.disk(device);
  if (disk == nullptr) return false;
  const std::string key = fmt::format("disk {}", device);
  if (!begin(key)) return true;
  const uint64_t duration_ns = random_.between(10, 1500) * kMillisecond;
  const auto& counters = disk->counters();
  switch (kind) {
    case FaultKind::kDiskError:
      disk_error(device, key, duration_ns, /*marks=*/false);
      break;
    case FaultKind::kDiskFull:
      disk->faults.full = true;
      victims_.disk_may_fill(device, true);
      for_a_while(
          kind, key, duration_ns,
          [this, disk, device] {
            disk->faults.full = false;
            victims_.disk_may_fill(device, false);
          },
          [&counters] { return counters.refused_for_room; });
      break;
    case FaultKind::kDiskShort:
      return disk_short(*disk, key, duration_ns);
    case FaultKind::kDiskLies:
      return disk_lies(device, key, duration_ns);
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

/// `marks`: the file can be marked all the time.
void Injector::disk_error(size_t device, const std::string& key, uint64_t duration_ns, bool marks) {
  base::sim::SimDisk* const disk = victims_.disk(device);
  disk->faults.errors_per_million = static_cast<uint32_t>(random_.between(50'000, 1'000'000));
  disk->faults.sets_undurably = disk->faults.errors_per_million % 2 != 0;
  disk->faults.keeps_no_mark = !marks && disk->faults.errors_per_million % 8 == 3;
  if (disk->faults.keeps_no_mark) victims_.marks_may_fail(device);
  victims_.disk_may_fail(device, true);
  for_a_while(
      FaultKind::kDiskError, key, duration_ns,
      [this, disk, device] {
        disk->faults.errors_per_million = 0;
        disk->faults.keeps_no_mark = false;
        victims_.disk_may_fail(device, false);
      },
      [disk] { return disk->counters().errors; });
}

/// What is in the kernel's cache is flushed before the file is closed, and that is when all are
/// away: a disk that fails for a while seldom meets it by itself.
void Injector::plan_errors_at_close() {
  if (plan_.gentle) return;
  for (size_t i = 0; i < plan_.devices.size(); ++i) {
    if (plan_.devices[i].memory || plan_.servers[plan_.devices[i].server].direct) continue;
    world_.after(random_.between(1, 1500) * kMillisecond, [this, i] { fail_at_close(i); });
  }
}

/// Its users come back when the disk is well. What they were not told shows when the power goes.
void Injector::fail_at_close(size_t device) {
  const std::string key = fmt::format("disk {}", device);
  if (!active_ || victims_.disk(device) == nullptr || !begin(key)) return;
  const size_t server = plan_.devices[device].server;
  std::vector<PathEnds> paths;
  for (size_t c = 0; c < plan_.clients.size(); ++c)
    if (plan_.devices[device].used_by(c))
      std::ranges::copy(all_paths(c, server), std::back_inserter(paths));
  const uint64_t away_ns = random_.between(800, 1300) * kMillisecond;
  cut_paths(FaultKind::kPartition, paths, away_ns);
  // When what was under way has been done.
  world_.after(20 * kMillisecond, [this, device, key, away_ns] {
    if (active_) disk_error(device, key, away_ns - 40 * kMillisecond, /*marks=*/true);
  });
  world_.after(away_ns + random_.between(300, 1000) * kMillisecond, [this, server] {
    if (!active_ || victims_.server(server) == nullptr) return;
    victims_.kill_server(server, true);
    start_later(true, server, random_.between(1, 1000));
  });
}

bool Injector::disk_short(base::sim::SimDisk& disk, const std::string& key, uint64_t duration_ns) {
  disk.faults.shortens = true;
  for_a_while(
      FaultKind::kDiskShort, key, duration_ns, [&disk] { disk.faults.shortens = false; },
      [&disk] { return disk.counters().shortened; });
  return true;
}

/// What it has not written shows at a power loss only: every other time there is one while it lies.
bool Injector::disk_lies(size_t device, const std::string& key, uint64_t duration_ns) {
  base::sim::SimDisk* const disk = victims_.disk(device);
  disk->faults.lying = true;
  victims_.disk_may_lie(device, true);
  const auto end = [this, disk, device] {
    const size_t server = plan_.devices[device].server;
    if (random_.one_in(2) && victims_.server(server) != nullptr) {
      victims_.kill_server(server, true);
      start_later(true, server, random_.between(1, 1000));
    }
    disk->faults.lying = false;
    victims_.disk_may_lie(device, false);
  };
  for_a_while(FaultKind::kDiskLies, key, duration_ns, end,
              [disk] { return disk->counters().flushes_ignored; });
  return true;
}

}  // namespace braid::sim
