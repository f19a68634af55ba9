// What people do: users of devices, and operators of servers and clients.
#include "tests/sim/injector.h"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <utility>

namespace braid::sim {

using base::kMillisecond;

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
  // The board tells, in the end, whether the other one was let in: that is what counts.
  cut_paths(FaultKind::kTakenOver, all_paths(*writer, plan.server), for_ns);
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

bool Injector::close_session(const Target& target) {
  if (victims_.server(target.server) == nullptr) return true;
  if (victims_.requests_between(target.client, target.server) != 0)
    count(FaultKind::kSessionClosed);
  victims_.operator_closes_session(target.server, target.client);
  return true;
}

bool Injector::take_key(const Target& target) {
  if (!plan_.servers[target.server].asks_for_keys()) return false;
  const std::string key = fmt::format("keys of server {}", target.server);
  if (victims_.server(target.server) == nullptr || !begin(key)) return true;
  if (victims_.requests_between(target.client, target.server) != 0) count(FaultKind::kKeyTaken);
  victims_.set_keys(target.server, target.client);
  world_.after(random_.between(50, 1500) * kMillisecond, [this, key, server = target.server] {
    release(key);
    if (active_ && victims_.server(server) != nullptr) victims_.set_keys(server, std::nullopt);
  });
  return true;
}

/// Half of what is planned, or more.
uint64_t Injector::draw_sectors(size_t device) {
  const uint64_t most = plan_.devices[device].sectors;
  return 8 * random_.between(most / 16, most / 8);
}

bool Injector::resize(size_t device) {
  const DevicePlan& plan = plan_.devices[device];
  if (plan.memory) return false;
  if (victims_.server(plan.server) == nullptr) return true;
  // All that follows is one fault.
  const std::function<void()> hit = [this, counted = std::make_shared<bool>(false)] {
    if (!std::exchange(*counted, true)) count(FaultKind::kResized);
  };
  victims_.resize(device, draw_sectors(device), hit);
  resize_again(device, hit);
  return true;
}

/// Larger and smaller, as long as chance will: once only it would hardly ever get larger.
void Injector::resize_again(size_t device, std::function<void()> hit) {
  if (random_.one_in(6)) return;
  world_.after(random_.between(20, 400) * kMillisecond, [this, device, hit = std::move(hit)] {
    if (!active_ || victims_.server(plan_.devices[device].server) == nullptr) return;
    victims_.resize(device, draw_sectors(device), hit);
    resize_again(device, hit);
  });
}

bool Injector::resize_away(size_t device) {
  const DevicePlan& plan = plan_.devices[device];
  if (plan.memory) return false;
  if (victims_.server(plan.server) == nullptr) return true;
  const bool busy = victims_.requests_at(plan.server) != 0;
  victims_.kill_server(plan.server, false);
  start_later(true, plan.server, random_.between(1, 500));
  if (victims_.resize_away(device, draw_sectors(device)) && busy) count(FaultKind::kResizedAway);
  return true;
}

}  // namespace braid::sim
