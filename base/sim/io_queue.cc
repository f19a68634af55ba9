#include "base/sim/io_queue.h"

#include <algorithm>

#include "base/reactor.h"
#include "base/sim/host.h"
#include "base/sim/stream.h"
#include "base/sim/world.h"
#include "base/sim_charge.h"

namespace braid::base::sim {
namespace {

// How long after the death of its process a write may still land: the kernel does not call back
// what a disk has begun.
constexpr uint64_t kLateWriteMaxNs = 20 * kMillisecond;

}  // namespace

// --- ReactorSlot

ReactorSlot::ReactorSlot(SimHost& host) : host_(host), subject_(host.world().next_subject()) {}

SimWorld& ReactorSlot::world() {
  return host_.world();
}

void ReactorSlot::drive(Reactor& reactor) {
  BRAID_ASSERT(reactor_ == nullptr);
  reactor_ = &reactor;
  wake();
}

void ReactorSlot::detach() {
  queue = nullptr;
  reactor_ = nullptr;
  ++generation_;
}

void ReactorSlot::wake() {
  if (reactor_ == nullptr || host_.dead()) return;
  if (state_ == State::kTurning) {
    woken_ = true;
    return;
  }
  SimTiming& timing = world().timing();
  schedule(world().now_ns() + world().random().between(timing.wake_min_ns, timing.wake_max_ns));
}

void ReactorSlot::schedule(uint64_t at_ns) {
  at_ns = std::max(at_ns, not_before_ns_);
  if (state_ == State::kScheduled && scheduled_at_ns_ <= at_ns) return;
  state_ = State::kScheduled;
  scheduled_at_ns_ = at_ns;
  const uint64_t generation = ++generation_;
  world().push(at_ns, EventKind::kTurn, subject_, [this, generation] { due(generation); });
}

void ReactorSlot::due(uint64_t generation) {
  if (generation != generation_ || reactor_ == nullptr || host_.dead()) return;
  if (host_.paused() || hung_) {
    due_in_pause_ = true;
    return;
  }
  SimTiming& timing = world().timing();
  const uint64_t now_ns = world().now_ns();
  if (!std::exchange(late_, false) && now_ns >= not_before_ns_ &&
      world().random().per_million(timing.late_per_million)) {
    ++world().counters().late_turns;
    late_ = true;  // once for each turn
    delay_until(now_ns + world().random().below(timing.late_max_ns));
  }
  if (now_ns < not_before_ns_) {
    scheduled_at_ns_ = kNever;
    schedule(not_before_ns_);
    return;
  }
  turn();
}

void ReactorSlot::turn() {
  SimWorld& the_world = world();
  SimTiming& timing = the_world.timing();
  ++the_world.counters().turns;
  host_.turn_begins();
  state_ = State::kTurning;
  woken_ = false;
  uint64_t next_turn_ns =
      the_world.now_ns() + the_world.random().between(timing.turn_min_ns, timing.turn_max_ns);
  bool awake = reactor_->turn();
  if (reactor_ == nullptr) return;  // its owner destroyed it in its own turn
  charge_turn(next_turn_ns);
  // Now and then an idle reactor goes on polling, so that both ways to find work are travelled.
  if (!awake && !woken_) awake = the_world.random().one_in(8) || !reactor_->prepare_sleep();
  state_ = State::kSleeping;
  scheduled_at_ns_ = kNever;
  if (awake || woken_) {
    schedule(next_turn_ns);
  } else if (const uint64_t deadline_ns = reactor_->next_deadline_ns(); deadline_ns != kNever) {
    const uint64_t latency_ns = the_world.random().between(timing.wake_min_ns, timing.wake_max_ns);
    schedule(std::max(deadline_ns, next_turn_ns) + latency_ns);
  }
}

/// The thread is busy with what the turn did: whoever wakes it meanwhile waits.
void ReactorSlot::charge_turn(uint64_t& next_turn_ns) {
  const uint64_t work_ns = work_ns_ ? work_ns_() : 0;
  if (work_ns == 0) return;
  next_turn_ns += work_ns;
  not_before_ns_ = std::max(not_before_ns_, next_turn_ns);
}

void charge_turns(Reactor& reactor, std::function<uint64_t()> work_ns) {
  static_cast<SimIoQueue&>(reactor.io()).slot().charge(std::move(work_ns));
}

void ReactorSlot::hang(bool on) {
  hung_ = on;
  if (!on && !host_.paused()) resume();
}

void ReactorSlot::resume() {
  if (hung_ || !std::exchange(due_in_pause_, false)) return;
  scheduled_at_ns_ = kNever;
  wake();
}

// --- SimEvent

void SimEvent::signal() {
  if (host_.dead()) return;
  state_->set = true;
  for (const EventState::Watcher& watcher : state_->watchers)
    if (watcher.slot->queue != nullptr) watcher.slot->queue->event_signalled(*watcher.watch);
}

// --- SimIoQueue

SimIoQueue::~SimIoQueue() {
  abandon_all();
  for (const auto& [cookie, state] : watched_)
    std::erase_if(state->watchers, [this](const auto& w) { return w.slot == &slot_; });
  slot_.detach();
}

void SimIoQueue::wait(uint64_t /*deadline_ns*/) {
  panic(__FILE__, __LINE__, "a simulated reactor does not wait: its world decides when it runs");
}

void SimIoQueue::submit(IoOp& op) {
  ++in_flight_;
  shares_.add(op);
  if (!slot_.turning()) slot_.wake();
}

bool SimIoQueue::poll() {
  while (IoOp* op = shares_.next()) hand_over(*op);
  // Only what is there now: a callback that submits again waits for the next turn.
  bool any = false;
  IntrusiveList<IoOp> completed;
  completed.take_all(completed_);
  while (IoOp* op = completed.pop_front()) {
    any = true;
    --in_flight_;
    ++ended_;
    op->done(*op, static_cast<Errc>(op->progressed_bytes));
  }
  IntrusiveList<Watch> ready;
  ready.take_all(ready_);
  while (Watch* watch = ready.pop_front()) {
    any = true;
    const uint64_t cookie = watch->cookie;
    watch->ready(*watch);
    // The callback may have unwatched it, and freed it.
    const auto found = watched_.find(cookie);
    if (found != watched_.end() && found->second->level && found->second->set) {
      event_signalled(*watch);
    }
  }
  return any;
}

namespace {

Errc refusal(const SimHost& host, const IoOp& op) {
  if (host.dead()) return Errc::kDead;
  const File::Info& info = op.file->info();
  const bool changes = op.opcode != IoOpcode::kRead && op.opcode != IoOpcode::kFlush;
  if (changes && info.read_only) return Errc::kReadOnly;
  const bool moves = op.opcode == IoOpcode::kRead || op.opcode == IoOpcode::kWrite;
  if (moves && op.length_bytes > (1u << 30)) return Errc::kInvalid;
  if (moves && info.direct &&
      reinterpret_cast<uintptr_t>(op.buffer) % info.logical_block_bytes != 0)
    return Errc::kInvalid;
  return static_cast<SimFile*>(op.file)->disk().check(op.opcode, op.offset_bytes, op.length_bytes);
}

}  // namespace

void SimIoQueue::hand_over(IoOp& op) {
  SimHost& host = slot_.host();
  if (const Errc refused = refusal(host, op); refused != Errc::kOk) {
    shares_.ended(op);
    op.progressed_bytes = static_cast<uint64_t>(refused);
    completed_.push_back(op);
    slot_.wake();
    return;
  }
  SimDisk& disk = static_cast<SimFile*>(op.file)->disk();
  if (disk.on_operation) disk.on_operation(op);
  const uint64_t ticket = ++handed_over_;
  const uint64_t covers = op.opcode == IoOpcode::kFlush ? disk.begin_flush() : 0;
  at_disk_.emplace(ticket, AtDisk{&op, covers, 0});
  op.progressed_bytes = ticket;
  at_disk_until(disk, ticket, op.length_bytes);
}

void SimIoQueue::at_disk_until(SimDisk& disk, uint64_t ticket, uint64_t bytes) {
  SimWorld& world = slot_.host().world();
  const uint64_t at_ns = disk.completion_time(world.now_ns(), bytes);
  world.push(at_ns, EventKind::kDisk, disk.id(), [slot = &slot_, ticket] {
    if (slot->queue != nullptr && !slot->host().dead()) slot->queue->complete(ticket);
  });
}

namespace {

bool changes(const IoOp& op) {
  return op.opcode != IoOpcode::kRead && op.opcode != IoOpcode::kFlush;
}

/// The next `bytes` of it, behind what has moved already.
Errc take_effect(const IoOp& op, uint64_t moved_bytes, uint64_t bytes, uint64_t flush_covers) {
  std::byte* const data = op.buffer != nullptr ? op.buffer + moved_bytes : nullptr;
  return static_cast<SimFile*>(op.file)->disk().execute(
      op.opcode, op.force_unit_access, op.offset_bytes + moved_bytes, bytes, data, flush_covers);
}

}  // namespace

void SimIoQueue::complete(uint64_t ticket) {
  const auto found = at_disk_.find(ticket);
  if (found == at_disk_.end()) return;
  IoOp& op = *found->second.op;
  uint64_t& moved_bytes = found->second.moved_bytes;
  SimDisk& disk = static_cast<SimFile*>(op.file)->disk();
  const bool transfers = op.opcode == IoOpcode::kRead || op.opcode == IoOpcode::kWrite;
  const uint64_t left = op.length_bytes - moved_bytes;
  const uint64_t bytes = transfers ? disk.moves(left) : left;
  const Errc done = take_effect(op, moved_bytes, bytes, found->second.flush_covers);
  if (done == Errc::kOk && bytes < left) {
    // A completion means all of it (base/host.h): the rest is asked for, as base/linux does.
    moved_bytes += bytes;
    at_disk_until(disk, ticket, left - bytes);
    return;
  }
  at_disk_.erase(found);
  shares_.ended(op);
  op.progressed_bytes = static_cast<uint64_t>(done);
  completed_.push_back(op);
  slot_.wake();
}

void SimIoQueue::abandon_all() {
  for (const auto& [ticket, at_disk] : at_disk_) {
    const IoOp& op = *at_disk.op;
    if (!changes(op)) continue;
    const uint64_t fate = slot_.host().world().random().below(4);
    const uint64_t left = op.length_bytes - at_disk.moved_bytes;
    if (fate == 0) (void)take_effect(op, at_disk.moved_bytes, left, UINT64_MAX);
    if (fate >= 2) take_effect_late(at_disk);
  }
  at_disk_.clear();
  shares_.clear();
  completed_.clear();
  in_flight_ = 0;
}

void SimIoQueue::take_effect_late(const AtDisk& at_disk) {
  SimWorld& world = slot_.host().world();
  const IoOp& op = *at_disk.op;
  auto& file = static_cast<SimFile&>(*op.file);
  const uint64_t left = op.length_bytes - at_disk.moved_bytes;
  std::vector<std::byte> data;
  if (op.opcode == IoOpcode::kWrite) {
    const std::byte* const from = op.buffer + at_disk.moved_bytes;
    data.assign(from, from + left);
  }
  const uint64_t at_ns = world.now_ns() + world.random().below(kLateWriteMaxNs);
  // The lock is held on until the write has landed; another boot never sees it.
  world.push(
      at_ns, EventKind::kDisk, file.disk().id(),
      [&disk = file.disk(), boot = file.disk().boot(), lock = file.lock(), opcode = op.opcode,
       fua = op.force_unit_access, offset = op.offset_bytes + at_disk.moved_bytes, left,
       data = std::move(data)]() mutable {
        if (disk.boot() != boot) return;
        disk.count_late_write();
        (void)disk.execute(opcode, fua, offset, left, data.data());
      });
}

void SimIoQueue::watch(Event& event, Watch& watch) {
  watch_state(static_cast<SimEvent&>(event).state(), watch);
}

void SimIoQueue::watch_readable(const Handle& handle, Watch& watch) {
  const std::shared_ptr<SimObject>& object = static_cast<const SimHandle&>(handle).object();
  if (const auto socket = std::dynamic_pointer_cast<SimSocketObject>(object); socket != nullptr) {
    return watch_state(socket->readable, watch);
  }
  auto state = std::dynamic_pointer_cast<EventState>(object);
  BRAID_ASSERT(state != nullptr);  // nothing else that can be readable exists in simulation
  watch_state(std::move(state), watch);
}

void SimIoQueue::watch_writable(const Handle& handle, Watch& watch) {
  const auto socket =
      std::dynamic_pointer_cast<SimSocketObject>(static_cast<const SimHandle&>(handle).object());
  BRAID_ASSERT(socket != nullptr);  // nothing else is written to
  watch_state(socket->writable, watch);
}

void SimIoQueue::watch_state(std::shared_ptr<EventState> state, Watch& watch) {
  watch.cookie = ++cookies_;
  state->watchers.push_back({&slot_, &watch});
  if (state->set) event_signalled(watch);
  watched_.emplace(watch.cookie, std::move(state));
}

void SimIoQueue::unwatch(Watch& watch) {
  watch.unlink();
  const auto found = watched_.find(watch.cookie);
  if (found == watched_.end()) return;
  std::erase_if(found->second->watchers, [&](const auto& w) { return w.watch == &watch; });
  watched_.erase(found);
  watch.cookie = 0;
}

void SimIoQueue::event_signalled(Watch& watch) {
  if (slot_.host().dead()) return;
  if (!watch.linked()) ready_.push_back(watch);
  slot_.wake();
}

}  // namespace braid::base::sim
