// Faults of ports and paths.
#include "tests/sim/injector.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace braid::sim {

using base::kMillisecond;

namespace {

std::string path_key(const std::string& a, const std::string& b) {
  return "path " + std::min(a, b) + " " + std::max(a, b);
}

}  // namespace

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
    case FaultKind::kBlackHole:
      cut_paths(kind, {{client, server}}, long_ns);
      return true;
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
  const bool both = kind == FaultKind::kDropAndReturn;
  const uint64_t delay_ns = random_.between(1, plan_.gentle ? 20 : 300) * kMillisecond;
  const uint64_t bytes_per_ms =
      plan_.gentle ? random_.between(50'000, 300'000) : random_.between(300, 30'000);
  const auto set = [&fabric, kind, both, from, to, delay_ns, bytes_per_ms](bool on) {
    if (kind == FaultKind::kDelaySpike) {
      fabric.set_extra_delay(from, to, on ? delay_ns : 0);
    } else if (kind == FaultKind::kLinkSlow) {
      fabric.set_rate(from, to, on ? bytes_per_ms : 0);
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
  std::string how;
  if (kind == FaultKind::kDelaySpike) how = fmt::format(", {:.1f} ms each", milliseconds(delay_ns));
  if (kind == FaultKind::kLinkSlow) how = fmt::format(", {} bytes in a millisecond", bytes_per_ms);
  log_.info("fault: {} from {} to {}{} for {:.1f} ms{}", to_string(kind), from, to,
            both ? " and back" : "", milliseconds(for_ns), how);
  for_a_while(
      kind, key, for_ns, [set] { set(false); },
      [&fabric, from, to] { return fabric.path_hits(from, to) + fabric.path_hits(to, from); });
}

/// Nothing passes on these paths, in neither direction: one fault, however many they are.
void Injector::cut_paths(FaultKind kind, const std::vector<PathEnds>& paths, uint64_t for_ns) {
  base::sim::SimFabric& fabric = world_.fabric();
  std::vector<PathEnds> cut;
  for (const PathEnds& path : paths)
    if (begin(path_key(path.client, path.server))) cut.push_back(path);
  const auto set = [&fabric, cut](bool on) {
    for (const PathEnds& path : cut) {
      fabric.set_black_hole(path.client, path.server, on);
      fabric.set_black_hole(path.server, path.client, on);
    }
  };
  const auto hits = [&fabric, cut] {
    uint64_t sum = 0;
    for (const PathEnds& path : cut)
      sum +=
          fabric.path_hits(path.client, path.server) + fabric.path_hits(path.server, path.client);
    return sum;
  };
  set(true);
  for (const PathEnds& path : cut)
    log_.info("fault: {} between {} and {} for {:.1f} ms", to_string(kind), path.client,
              path.server, milliseconds(for_ns));
  world_.after(for_ns, [this, kind, cut, set, hits, before = hits()] {
    for (const PathEnds& path : cut) release(path_key(path.client, path.server));
    if (hits() != before) count(kind);
    if (active_) set(false);
  });
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
  std::vector<PathEnds> paths;
  for (size_t c = 0; c < clients.size(); ++c)
    for (size_t s = 0; s < servers.size(); ++s)
      if (clients[c] && servers[s]) std::ranges::copy(all_paths(c, s), std::back_inserter(paths));
  cut_paths(FaultKind::kPartition, paths, for_ns);
  return true;
}

std::vector<Injector::PathEnds> Injector::all_paths(size_t client, size_t server) const {
  const ClientPlan& of_client = plan_.clients[client];
  const ServerPlan& of_server = plan_.servers[server];
  std::vector<PathEnds> paths{{of_client.ip, of_server.ip}};
  if (!of_client.second_ip.empty()) paths.push_back({of_client.second_ip, of_server.second_ip});
  return paths;
}

}  // namespace braid::sim
