// What happens to servers and to their disks, as the judge sees it.
#include <algorithm>
#include <utility>

#include "tests/sim/judge.h"

namespace braid::sim {

// --- servers

void Judge::server_died(size_t server) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (plan_.devices[i].server != server) continue;
    // A failure that it had not told yet dies with it (docs/bnbd.md, "Flush").
    if (devices_[i].disk_has_failed) devices_[i].lives.back()->history->flushes_forgotten();
    if (plan_.devices[i].memory) replace(i);
    if (being_resized(i)) resize_ended(i, false);
  }
}

void Judge::replace(size_t device) {
  end_orphans(device);
  devices_[device].lives.back()->ended_ns = world_.now_ns();
  begin_life(device);
}

void Judge::server_lost_power(size_t server) {
  server_died(server);
  for (size_t i = 0; i < devices_.size(); ++i)
    if (plan_.devices[i].server == server && !plan_.devices[i].memory)
      devices_[i].lives.back()->history->power_loss();
}

void Judge::disk_may_fail(size_t device, bool on) {
  devices_[device].disk_may_fail = on;
  if (!on) return;
  devices_[device].disk_has_failed = true;
  for (Operation& op : running_)
    if (op.device == device) op.may_fail = true;
}

void Judge::disk_may_fill(size_t device, bool on) {
  devices_[device].disk_may_fill = on;
  if (!on) return;
  // A FUA write that finds no room may have been the write-back of an older one that did not.
  devices_[device].disk_has_failed = true;
  for (Operation& op : running_)
    if (op.device == device) op.may_not_fit = true;
}

// --- sizes

void Judge::file_replaced(size_t device) {
  replace(device);
  devices_[device].sectors = plan_.devices[device].sectors;
}

/// To who reads it later, what is cut off was zeroed: durably, as the cut is.
bool Judge::resize_begins(size_t device, uint64_t sectors) {
  Device& its = devices_[device];
  if (being_resized(device) || sectors == its.sectors) return false;
  its.wanted_sectors = sectors;
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
  its.smallest = std::min(its.smallest, sectors);
  for (Operation& op : running_)
    if (op.device == device) op.may_be_beyond |= op.what.first_sector + op.what.sectors > sectors;
  return true;
}

void Judge::resize_ended(size_t device, bool done) {
  Device& its = devices_[device];
  const uint64_t cut = std::exchange(its.cut, 0);
  if (cut != 0) its.lives.back()->history->end(cut, done, {}, true);
  const uint64_t sectors = std::exchange(its.wanted_sectors, 0);
  its.sectors = done ? sectors : std::max(its.sectors, sectors);
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
