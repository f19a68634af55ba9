#include "tests/sim/judge.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "trs/wire.h"

namespace braid::sim {

using base::Errc;

namespace {

const char* name_of(OpKind kind) {
  switch (kind) {
    case OpKind::kRead:
      return "read";
    case OpKind::kWrite:
      return "write";
    case OpKind::kZero:
      return "zero";
    case OpKind::kFlush:
      break;
  }
  return "flush";
}

}  // namespace

Judge::Judge(base::sim::SimWorld& world, const Plan& plan, base::Logger log)
    : world_(world), plan_(plan), log_(std::move(log)), devices_(plan.devices.size()) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    devices_[i].exclusive = std::make_unique<ExclusiveChecker>(violations_, i + 1);
    devices_[i].sectors = devices_[i].least_sectors = plan.devices[i].sectors;
    begin_life(i);
  }
}

void Judge::begin_life(size_t device) {
  auto life = std::make_unique<Life>();
  const DevicePlan& plan = plan_.devices[device];
  const ServerPlan& server = plan_.servers[plan.server];
  const bool may_tear = plan.memory && (server.tcp || server.second_tcp);
  life->history = std::make_unique<DeviceHistory>(violations_, device + 1, plan.sectors, may_tear);
  // Who only reads flushes nothing.
  for (size_t client = 0; client < plan_.clients.size(); ++client) {
    const bool writes = plan.writer == client || plan.heir == client;
    if (writes && !plan_.filters_of(client, device).empty()) life->history->flushes_may_wait();
  }
  devices_[device].lives.push_back(std::move(life));
}

// --- handles

void Judge::asks(size_t client, size_t device, Wish as) {
  asked_ns_[{client, device}] = world_.now_ns();
  if (as == Wish::kRead) return;
  asked_to_write_ns_[{client, device}] = world_.now_ns();
  for (auto& [owner, handle] : handles_)
    if (owner.first != client && owner.second == device && handle.writes()) handle.rivalled = true;
  for (Operation& op : running_)
    if (op.client != client && op.device == device && op.handle.writes()) op.rivalled = true;
}

void Judge::opened(size_t client, size_t device, Wish as, Asked asked) {
  asked_[{client, device}] = std::move(asked);
  Life& life = *devices_[device].lives.back();
  Handle& handle = handles_[{client, device}];
  const uint64_t asked_ns = asked_ns_[{client, device}];
  // Of a process that was late, the user may hear of it when the device is away again.
  const bool late = disturbed && disturbed(client, asked_ns);
  handle = {&life,
            as,
            ++handle_serials_,
            world_.now_ns(),
            std::make_shared<UntoldLosses>(),
            late ? asked_ns : world_.now_ns()};
  handle.checks = asked_[{client, device}].checks;
  const Device& its = devices_[device];
  handle.blemished = its.disk_may_fail || its.disk_may_fill || its.disk_may_lie;
  const DiskFailures& failures = its.failures;
  if (failures.since(asked_ns)) {
    handle.untold->failures_begin(ways_of(client, device));
    handle.untold->failures_end(ways_of(client, device));
  }
  if (as == Wish::kRead) return;
  for (const auto& [asker, when_ns] : asked_to_write_ns_)
    if (asker.first != client && asker.second == device && when_ns >= asked_ns)
      handle.rivalled = true;
  end_orphans(device);
  supersede(client, device, asked_ns);
  life.history->writer_restarted();
  // It is promised nothing of what its predecessor was told to be lost, or would have been.
  if (failures.may_be_untold()) life.history->flushes_forgotten();
}

/// What other writers have under way was done before, or never will be. Of one that was let in
/// after this one asked nobody here knows which the server let in last: a client that was stopped
/// may read its answer long after.
void Judge::supersede(size_t client, size_t device, uint64_t asked_ns) {
  const Life* const life = devices_[device].lives.back().get();
  const auto is_over = [&](const Handle& handle) {
    return handle.life == life && handle.writes() && handle.opened_ns < asked_ns;
  };
  for (auto& [owner, handle] : handles_)
    if (owner.first != client && is_over(handle)) handle.superseded = true;
  for (Operation& op : running_) {
    if (op.client == client || !is_over(op.handle)) continue;
    if (!op.changes() || !op.in_history) continue;
    op.in_history = false;
    op.repeated = may_be_repeated(op);
    end_unknown(op);
  }
}

void Judge::closing(size_t client, size_t device) {
  for (Operation& op : running_)
    if (op.client == client && op.device == device) op.may_cancel = true;
}

DeviceHistory& Judge::history(size_t client, size_t device) {
  return *handles_.at({client, device}).life->history;
}

void Judge::end_orphans(size_t device) {
  for (const Operation& op : std::exchange(devices_[device].orphans, {})) end_unknown(op);
}

void Judge::client_dies(size_t client) {
  for (size_t i = 0; i < running_.size();) {
    if (running_[i].client != client) {
      ++i;
      continue;
    }
    Operation op = take(running_[i].id);
    op.repeated = may_be_repeated(op);
    applied_once_.excuse(op.id);
    if (!op.done) completions_.died(op.id);
    if (!op.in_history) continue;
    if (op.what.kind == OpKind::kRead) {
      op.history().end(op.id, false, {});
    } else {
      devices_[op.device].orphans.push_back(op);
    }
  }
  const auto is_its = [client](const auto& entry) { return entry.first.first == client; };
  std::erase_if(handles_, is_its);
  std::erase_if(asked_, is_its);
}

/// What a device that gave up may have on its way cannot land any more once its client is served on
/// another path, for which all of the former had to end.
void Judge::end_overtaken(const Operation& op) {
  std::vector<Operation>& orphans = devices_[op.device].orphans;
  for (size_t i = 0; i < orphans.size();) {
    const Operation orphan = orphans[i];
    if (orphan.gave_up_ns == 0 || orphan.client != op.client || orphan.gave_up_ns >= op.begin_ns) {
      ++i;
      continue;
    }
    orphans.erase(orphans.begin() + static_cast<std::ptrdiff_t>(i));
    end_unknown(orphan);
  }
}

// --- requests

uint64_t Judge::losses_of(size_t client, size_t device) const {
  const auto found = asked_.find({client, device});
  return found == asked_.end() ? 0 : found->second.losses();
}

/// When its session has lost its last path, and began anew, it was sent again. The server knows
/// what it had done before, unless it is another process since, or one side is an older version;
/// what had failed it does again, and a write with a preflush may have failed for what was done
/// long before.
bool Judge::may_be_repeated(const Operation& op) const {
  if (op.repeated || op.done) return op.repeated;
  if (losses_of(op.client, op.device) == op.losses) return false;
  return !shares(op, trs::wire::kFeatureKeptAnswers) ||
         devices_[op.device].server_deaths != op.deaths || op.may_fail || op.may_not_fit ||
         op.flushes();
}

bool Judge::shares(const Operation& op, uint32_t feature) const {
  const ServerPlan& server = plan_.servers[plan_.devices[op.device].server];
  const uint32_t both = server.features & plan_.clients[op.client].features;
  return (trs::wire::usable_features(both) & feature) != 0;
}

uint64_t Judge::begin(size_t client, size_t device, const OpDescription& what,
                      uint64_t known_sectors) {
  Operation op;
  op.id = ++ids_;
  op.client = client;
  op.device = device;
  Handle& handle = handles_.at({client, device});
  if (known_sectors <= handle.cut_to) handle.cut_to = 0;
  op.handle = handle;
  op.what = what;
  op.begin_ns = world_.now_ns();
  op.known_sectors = known_sectors;
  op.losses = losses_of(client, device);
  op.deaths = devices_[device].server_deaths;
  op.calm = calm_;
  op.may_fail = devices_[device].disk_may_fail;
  op.may_not_fit = devices_[device].disk_may_fill;
  const uint64_t least = std::min(devices_[device].least_sectors, known_sectors);
  op.may_be_beyond = !calm_ && what.first_sector + what.sectors > least;
  op.rivalled = op.handle.rivalled;
  op.in_history = !op.handle.superseded;
  if (op.flushes()) {
    op.ticket = op.handle.untold->flush_begins();
    op.tells_all = tells_all(op);
  }
  if (op.changes()) op.handle.untold->change_begins(op.id);
  if (what.kind == OpKind::kWrite) applied_once_.begin(op.id, what.sectors);
  if (!shares(op, trs::wire::kFeatureSequenced)) applied_once_.excuse(op.id);
  completions_.posted(op.id);
  if (op.in_history) op.history().begin(op.id, what);
  if (op.in_history && devices_[device].disk_may_lie) op.history().lied_to(op.id);
  running_.push_back(op);
  log_.debug("client {} device {} #{} {} {}+{}{}{}", client, device + 1, op.id, name_of(what.kind),
             what.first_sector, what.sectors, what.durable ? " fua" : "",
             what.preflush ? " preflush" : "");
  if (on_begin) on_begin(client, device);
  return op.id;
}

Judge::Operation Judge::take(uint64_t id) {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [id](const Operation& op) { return op.id == id; });
  if (found == running_.end()) return {};
  const Operation op = *found;
  *found = running_.back();
  running_.pop_back();
  return op;
}

void Judge::end(uint64_t id, Errc status, std::span<const std::byte> read_data) {
  world_.note(id);
  world_.note(static_cast<uint64_t>(status));
  world_.note(XXH3_64bits(read_data.data(), read_data.size()));
  log_.debug("#{} ends: {}", id, base::to_string(status));
  Operation op = take(id);
  if (!op.done) completions_.completed(id);
  if (op.id == 0) return;  // a second completion: reported already
  if (!op.done) ends_at_device(op);
  const bool good = status == Errc::kOk;
  const bool refused = !good && !read_data.empty();  // by a checksum
  const bool flush_failed = status == Errc::kIo && flush_may_fail(op);
  if (op.changes()) op.handle.untold->change_ends(op.id);
  if (good) {
    if (!op.done) succeeded(op);
  } else {
    ++failed_;
    if (status == Errc::kTimedOut) gave_up(op, plan_.clients[op.client].give_up_after_ns);
    if (status == Errc::kDisconnected) gave_up(op, plan_.clients[op.client].lost_after_ns);
    if (!explained(op, status, flush_failed, refused))
      violations_.add("device {}: operation {} failed with {}, and nothing that happened allows it",
                      op.device + 1, id, base::to_string(status));
  }
  if (op.flushes() && (good || flush_failed)) flush_ended(op);
  if (!op.in_history) return;
  op.repeated = may_be_repeated(op);
  // What was given up may be on its way, or at the disk: it lands until the next writer has opened.
  const bool given_up = status == Errc::kTimedOut || status == Errc::kDisconnected;
  const bool abandoned = given_up || status == Errc::kCanceled;
  if (abandoned && op.changes()) {
    if (given_up) op.gave_up_ns = world_.now_ns();
    devices_[op.device].orphans.push_back(op);
    return;
  }
  const bool explained_by_disk = op.may_fail || op.may_not_fit || flush_failed;
  op.history().end(id, good || refused, read_data,
                   {.otherwise_explained = explained_by_disk || op.rivalled || abandoned,
                    .dropped = explained_by_disk || devices_[op.device].failures.since(op.begin_ns),
                    .repeated = op.repeated});
}

void Judge::done(uint64_t id, bool well) {
  completions_.completed(id);
  log_.debug("#{} {}", id, well ? "is done" : "has failed");
  const auto op = std::find_if(running_.begin(), running_.end(),
                               [id](const Operation& each) { return each.id == id; });
  if (op == running_.end()) return;
  ends_at_device(*op);
  if (well) succeeded(*op);
  op->repeated = may_be_repeated(*op);
  op->done = true;
  if (op->in_history && well) op->history().done(id);
}

void Judge::ends_at_device(const Operation& op) {
  if (may_be_repeated(op)) applied_once_.excuse(op.id);
  check_latency(op);
  look_at_openings(op);
}

/// Of what has no answer, or one that tells nothing: it was done by now, or will never be.
void Judge::end_unknown(const Operation& op) {
  op.history().end(op.id, false, {},
                   {.otherwise_explained = true,
                    .dropped = devices_[op.device].failures.since(op.begin_ns),
                    .repeated = op.repeated});
}

void Judge::gave_up(const Operation& op, uint64_t limit_ns) {
  const auto found = handles_.find({op.client, op.device});
  if (found == handles_.end() || found->second.serial != op.handle.serial) return;
  const uint64_t there_ns = found->second.there_ns;
  // Of a process that was late, answers may end after its device had begun to count.
  if (disturbed && disturbed(op.client, there_ns)) return;
  give_ups_.gave_up(op.device + 1, limit_ns, there_ns, world_.now_ns());
}

bool Judge::explained(const Operation& op, Errc status, bool flush_may_fail, bool refused) {
  if (status == Errc::kCanceled) return op.may_cancel;
  if (status == Errc::kTimedOut) return plan_.clients[op.client].give_up_after_ns != base::kNever;
  if (status == Errc::kDisconnected) return plan_.clients[op.client].lost_after_ns != base::kNever;
  if (status == Errc::kNoSpace) return op.may_not_fit && op.changes();
  if (status == Errc::kOutOfRange) return op.may_be_beyond;
  // A FUA write beside one that finds no room: the kernel may have told that one what it owes this.
  const bool beside_full = op.may_not_fit && op.what.durable;
  return status == Errc::kIo &&
         (op.may_fail || (refused && may_mismatch(op)) || beside_full || op.rivalled ||
          flush_may_fail || op.history().may_report_loss(op.id));
}

void Judge::succeeded(const Operation& op) {
  devices_[op.device].failures.succeeded(op.begin_ns, world_.now_ns());
  const auto handle = handles_.find({op.client, op.device});
  if (handle != handles_.end() && handle->second.serial == op.handle.serial) {
    // What was at the disk is answered also after an operator has closed the device.
    const uint64_t taken_away_ns = devices_[op.device].taken_away_ns;
    const bool before = taken_away_ns != 0 && op.begin_ns <= taken_away_ns + kTakeAwayMaxNs;
    // One of several reactors that was late tells late what it was told before.
    const bool late = disturbed && disturbed(op.client, op.begin_ns);
    // What was done before its session was lost, the server remembers also without the device.
    const bool kept = losses_of(op.client, op.device) != op.losses;
    const uint64_t there_ns = before || late || kept ? op.begin_ns : world_.now_ns();
    handle->second.there_ns = std::max(handle->second.there_ns, there_ns);
  }
  end_overtaken(op);
  if (op.begin_ns > op.handle.life->ended_ns)
    violations_.add("device {}: operation {} succeeded on a device that had been replaced",
                    op.device + 1, op.id);
  if (op.handle.superseded)
    violations_.add(
        "device {}: operation {} succeeded after another client had been let in for writing",
        op.device + 1, op.id);
  check_cut_away(op);
  const uint64_t epoch = op.handle.serial << 32 | losses_of(op.client, op.device);
  if (op.handle.as != Wish::kRead)
    devices_[op.device].exclusive->succeeded(op.client, epoch, op.begin_ns, world_.now_ns());
}

void Judge::check_latency(const Operation& op) {
  const uint64_t latency_ns = world_.now_ns() - op.begin_ns;
  if (op.calm && latency_ns > kCalmLatencyMaxNs)
    violations_.add("device {}: operation {} took {} ms while no fault was active", op.device + 1,
                    op.id, latency_ns / base::kMillisecond);
}

}  // namespace braid::sim
