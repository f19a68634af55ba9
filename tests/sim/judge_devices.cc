// What happens to servers and to their disks, as the judge sees it.
#include <algorithm>
#include <utility>

#include "tests/sim/judge.h"

namespace braid::sim {

// --- servers

size_t Judge::requests_at(size_t server) const {
  return static_cast<size_t>(std::count_if(
      running_.begin(), running_.end(),
      [&](const Operation& op) { return !op.done && plan_.devices[op.device].server == server; }));
}

size_t Judge::requests_of(size_t client) const {
  return static_cast<size_t>(
      std::count_if(running_.begin(), running_.end(),
                    [client](const Operation& op) { return !op.done && op.client == client; }));
}

size_t Judge::requests_between(size_t client, size_t server) const {
  return static_cast<size_t>(
      std::count_if(running_.begin(), running_.end(), [&](const Operation& op) {
        return !op.done && op.client == client && plan_.devices[op.device].server == server;
      }));
}

void Judge::check_gave_up(size_t client, size_t server) {
  for (const Operation& op : running_) {
    const bool its = op.client == client && plan_.devices[op.device].server == server;
    if (!its || op.done) continue;
    give_ups_.still_held(op.device + 1, plan_.clients[client].held_max_ns(), op.begin_ns,
                         world_.now_ns());
  }
}

void Judge::server_died(size_t server) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (plan_.devices[i].server != server) continue;
    ++devices_[i].server_deaths;
    // A failure that it had neither told nor noted yet dies with it (docs/bnbd.md, "Flush").
    DiskFailures& failures = devices_[i].failures;
    if (failures.may_be_forgotten() && failures.may_die_unmarked(world_.now_ns()))
      devices_[i].lives.back()->history->flushes_forgotten();
    if (failures.in_this_process()) incarnation_changes(i, true);
    failures.server_died(world_.now_ns());
    if (plan_.devices[i].memory) replace(i);
    if (being_resized(i)) resize_ended(i, false);
  }
}

/// What is there now knows of no writer, and believes the first that comes back, though he may have
/// been superseded on what was there before. To the others it is then his, before they can see that
/// it is another device.
void Judge::rival_each_other(size_t device) {
  const auto writers = std::count_if(handles_.begin(), handles_.end(), [device](const auto& each) {
    return each.first.second == device && each.second.writes();
  });
  if (writers < 2) return;
  for (auto& [owner, handle] : handles_)
    if (owner.second == device && handle.writes()) handle.rivalled = true;
  for (Operation& op : running_)
    if (op.device == device && op.handle.writes()) op.rivalled = true;
}

void Judge::replace(size_t device) {
  end_orphans(device);
  rival_each_other(device);
  devices_[device].lives.back()->ended_ns = world_.now_ns();
  begin_life(device);
}

void Judge::server_lost_power(size_t server) {
  server_died(server);
  for (size_t i = 0; i < devices_.size(); ++i)
    if (plan_.devices[i].server == server && !plan_.devices[i].memory) {
      incarnation_changes(i, false);
      blemish(i);
      devices_[i].lives.back()->history->power_loss();
    }
}

void Judge::disk_stores(size_t device, uint64_t first_sector, std::span<const std::byte> data) {
  const auto version = read_stamp(data.first(kSectorBytes), device + 1, first_sector);
  if (!version || *version == kZeroes) return;
  const auto op = std::find_if(running_.begin(), running_.end(),
                               [&](const Operation& each) { return each.id == *version; });
  if (op != running_.end() && may_be_repeated(*op)) applied_once_.excuse(op->id);
  applied_once_.stored(device + 1, *version, data.size() / kSectorBytes);
}

void Judge::disk_may_fail(size_t device, bool on) {
  devices_[device].disk_may_fail = on;
  disk_fails(device, 1, on);
  if (!on) return;
  blemish(device);
  for (Operation& op : running_)
    if (op.device == device && !op.done) op.may_fail = true;
}

void Judge::disk_may_fill(size_t device, bool on) {
  devices_[device].disk_may_fill = on;
  // A FUA write that finds no room may have been the write-back of an older one that did not.
  disk_fails(device, 2, on);
  if (!on) return;
  blemish(device);
  for (Operation& op : running_)
    if (op.device == device && !op.done) op.may_not_fit = true;
}

void Judge::disk_may_lie(size_t device, bool on) {
  devices_[device].disk_may_lie = on;
  if (!on) return;
  blemish(device);
  for (const Operation& op : running_)
    if (op.device == device && op.in_history && !op.done) op.history().lied_to(op.id);
}

void Judge::blemish(size_t device) {
  for (auto& [owner, handle] : handles_)
    if (owner.second == device) handle.blemished = true;
}

/// A read that a checksum refuses: right only where the device may have lost what it acknowledged.
/// What it read is judged as any other.
bool Judge::may_mismatch(const Operation& op) const {
  if (!op.handle.checks) return false;
  const auto found = handles_.find({op.client, op.device});
  const bool same = found != handles_.end() && found->second.serial == op.handle.serial;
  const Handle& handle = same ? found->second : op.handle;
  const bool cut = handle.cut_to != 0 && op.what.first_sector + op.what.sectors > handle.cut_to;
  return handle.blemished || cut;
}

void Judge::disk_fails(size_t device, uint32_t kind, bool on) {
  DiskFailures& failures = devices_[device].failures;
  const bool before = failures.may_fail();
  failures.set(kind, on, world_.now_ns());
  if (failures.may_fail() == before) return;
  for (auto& [owner, handle] : handles_) {
    if (owner.second != device) continue;
    const UntoldLosses::Ways ways = ways_of(owner.first, device);
    if (on) {
      handle.untold->failures_begin(ways);
    } else {
      handle.untold->failures_end(ways);
    }
  }
}

void Judge::incarnation_changes(size_t device, bool of_disk) {
  for (auto& [owner, handle] : handles_)
    if (owner.second == device)
      handle.untold->incarnation_changes(of_disk, ways_of(owner.first, device));
}

// --- flushes

UntoldLosses::Ways Judge::ways_of(size_t client, size_t device) const {
  const auto found = asked_.find({client, device});
  return found == asked_.end() ? UntoldLosses::Ways{} : found->second.ways();
}

void Judge::look_at_openings(const Operation& op) {
  if (!op.handle.untold->looks_at_openings()) return;
  const DiskFailures& failures = devices_[op.device].failures;
  op.handle.untold->look(ways_of(op.client, op.device), failures.overlaps(world_.now_ns()));
}

/// One that failed at the disk may have been another session's, or its answer was lost: the server
/// has its clients told by a later flush of each connection, or at the next return of the path.
bool Judge::flush_may_fail(const Operation& op) {
  if (!op.flushes() || op.rivalled) return false;
  const bool at_disk = devices_[op.device].failures.since(op.begin_ns);
  UntoldLosses& untold = *op.handle.untold;
  const UntoldLosses::Ways ways = ways_of(op.client, op.device);
  return untold.flush_fails(op.id, op.ticket, at_disk, ways) == UntoldLosses::Cause::kDisk;
}

/// Whether nothing is under way that a failed flush may have dropped.
bool Judge::tells_all(const Operation& flush) const {
  const DiskFailures& failures = devices_[flush.device].failures;
  return std::none_of(running_.begin(), running_.end(), [&](const Operation& op) {
    return op.device == flush.device && op.changes() && failures.since(op.begin_ns);
  });
}

/// A flush that began when the server had heard of all failures, and when all had ended that was
/// under way before, leaves none to be forgotten.
void Judge::flush_ended(const Operation& op) {
  DiskFailures& failures = devices_[op.device].failures;
  if (op.tells_all && !failures.since(op.begin_ns)) failures.told();
}

// --- sizes

void Judge::file_replaced(size_t device) {
  replace(device);
  devices_[device].cut_away.reset();
  devices_[device].sectors = devices_[device].least_sectors = plan_.devices[device].sectors;
}

/// To who reads it later, what is cut off was zeroed: durably, as the cut is.
bool Judge::resize_begins(size_t device, uint64_t sectors) {
  Device& its = devices_[device];
  if (being_resized(device) || sectors == its.sectors) return false;
  its.wanted_sectors = sectors;
  its.resized_by_server = true;
  if (its.cut_away) its.cut_away->most_sectors = std::max(its.cut_away->most_sectors, sectors);
  if (sectors > its.sectors) return true;
  OpDescription cut;
  cut.kind = OpKind::kZero;
  cut.first_sector = sectors;
  cut.sectors = its.sectors - sectors;
  cut.durable = true;
  DeviceHistory& history = *its.lives.back()->history;
  if (!history.admits(cut.first_sector, cut.sectors)) {
    its.wanted_sectors = 0;
    return false;
  }
  its.cut = ++ids_;
  history.begin(its.cut, cut);
  for (auto& [owner, handle] : handles_)
    if (owner.second == device)
      handle.cut_to = handle.cut_to == 0 ? sectors : std::min(handle.cut_to, sectors);
  its.least_sectors = std::min(its.least_sectors, sectors);
  for (Operation& op : running_)
    if (op.device == device) op.may_be_beyond |= op.what.first_sector + op.what.sectors > sectors;
  return true;
}

void Judge::resize_ended(size_t device, bool done) {
  Device& its = devices_[device];
  const uint64_t cut = std::exchange(its.cut, 0);
  if (cut != 0) its.lives.back()->history->end(cut, done, {}, {.otherwise_explained = true});
  const uint64_t sectors = std::exchange(its.wanted_sectors, 0);
  its.sectors = done ? sectors : std::max(its.sectors, sectors);
  if (done) its.least_sectors = sectors;
}

/// A client that may have heard of another size from the server that died is not judged.
bool Judge::resized_away(size_t device, uint64_t sectors) {
  Device& its = devices_[device];
  const bool known = !its.resized_by_server;
  const bool smaller = sectors < its.sectors;
  const bool begun = resize_begins(device, sectors);
  its.resized_by_server = !known;
  if (!begun) return false;
  resize_ended(device, true);
  if (known && smaller) its.cut_away = {world_.now_ns(), sectors};
  return true;
}

void Judge::remaps(size_t client, size_t device) {
  const auto found = handles_.find({client, device});
  if (found != handles_.end()) found->second.remapped = true;
}

void Judge::check_cut_away(const Operation& op) {
  const std::optional<Device::CutAway>& cut = devices_[op.device].cut_away;
  if (!cut || op.begin_ns < cut->at_ns || op.known_sectors <= cut->most_sectors) return;
  const auto found = handles_.find({op.client, op.device});
  const bool same = found != handles_.end() && found->second.serial == op.handle.serial;
  if (!same || found->second.remapped) return;
  violations_.add(
      "device {}: operation {} succeeded on a device that had become smaller while it was away",
      op.device + 1, op.id);
}

void Judge::finish() {
  for (size_t i = 0; i < devices_.size(); ++i) {
    end_orphans(i);
    for (const auto& life : devices_[i].lives) {
      if (const uint64_t left = life->history->unjudged(); left > 0)
        violations_.add("device {}: the history of {} sectors was never judged", i + 1, left);
    }
  }
}

uint64_t Judge::losses_reported() const {
  uint64_t sum = 0;
  for (const Device& device : devices_)
    for (const auto& life : device.lives) sum += life->history->losses_reported();
  return sum;
}

}  // namespace braid::sim
