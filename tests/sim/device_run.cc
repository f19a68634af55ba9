#include "tests/sim/device_run.h"

#include <algorithm>
#include <utility>

#include "tests/sim/checkers/stamp.h"

namespace braid::sim {

using base::Errc;
using bnbd::BlockOp;

namespace {

constexpr uint64_t kHotSectors = 64;  // where half of the requests go, so that they meet
constexpr uint64_t kIoSectorsMax = 256;

/// Of any class, with any level.
uint16_t draw_priority(base::sim::SimRandom& random) {
  return static_cast<uint16_t>(random.below(4) << base::kIoPriorityClassShift | random.below(8));
}

}  // namespace

DeviceRun::DeviceRun(WorkContext& context, size_t device, bool writes)
    : context_(context), device_index_(device), writes_(writes), timer_(&DeviceRun::tick, this) {}

DeviceRun::~DeviceRun() = default;

uint64_t DeviceRun::sectors() const {
  return context_.plan.devices[device_index_].sectors;
}

uint64_t DeviceRun::sectors_now() const {
  return shown_bytes() / kSectorBytes;
}

base::Status DeviceRun::opened(std::unique_ptr<bnbd::BlockDevice> device,
                               std::unique_ptr<bnbd::FilterStack> filters) {
  block_device_ = std::move(device);
  filters_ = std::move(filters);
  queues_ = top().queues();
  io_sectors_max_ = std::min<uint64_t>(top().info().max_io_bytes / kSectorBytes, kIoSectorsMax);
  const size_t slot_bytes = io_sectors_max_ * kSectorBytes;
  const size_t depth = context_.me().depth;
  BRAID_TRY(region_, top().create_region(depth * slot_bytes));
  for (size_t i = 0; i < depth; ++i) {
    slots_.push_back(std::make_unique<Slot>(this));
    slots_.back()->memory = region_->data() + i * slot_bytes;
  }
  pump();
  return base::ok_status();
}

void DeviceRun::stop() {
  stopped_ = true;
  context_.reactor.cancel(timer_);
  for (auto& slot : slots_) {
    if (!slot->hears.pending()) continue;
    context_.reactor.cancel(slot->hears);
    heard(*slot);
  }
}

void DeviceRun::activity_changed() {
  if (context_.activity == Activity::kVerify) verify_at_ = 0;
  pump();
}

void DeviceRun::tick(base::Timer& timer) {
  static_cast<DeviceRun*>(timer.context)->pump();
}

void DeviceRun::pump() {
  if (block_device_ == nullptr || stopped_) return;
  if (context_.activity == Activity::kWork) work();
  if (context_.activity == Activity::kVerify) verify();
}

void DeviceRun::pump_at_home() {
  context_.reactor.post([this, alive = std::weak_ptr<char>(alive_)] {
    if (!alive.expired()) pump();
  });
}

void DeviceRun::work() {
  while (Slot* slot = free_slot()) {
    const OpDescription op = draw_op();
    if (allowed(op)) submit(*slot, op);
    if (context_.random.one_in(context_.me().depth)) break;
  }
  context_.reactor.schedule_after(timer_, context_.random.below(context_.me().pause_max_ns));
}

bool DeviceRun::allowed(const OpDescription& op) {
  if (op.kind == OpKind::kFlush) return true;
  const DeviceHistory& history = judge().history(context_.client, device_index_);
  if (!history.admits(op.first_sector, op.sectors)) return false;
  // Two writes under way to one block are both sent again after a lost path, in their order. A
  // second client may then see the first one's value come back; no block device promises more.
  const bool shared = context_.plan.devices[device_index_].shared();
  return op.kind == OpKind::kRead || !shared || !history.being_written(op.first_sector, op.sectors);
}

void DeviceRun::verify() {
  while (verify_at_ < sectors()) {
    Slot* const slot = free_slot();
    if (slot == nullptr) return;  // done() comes back here
    OpDescription op;
    op.first_sector = verify_at_;
    op.sectors = std::min(io_sectors_max_, sectors() - verify_at_);
    verify_at_ += op.sectors;
    submit(*slot, op);
  }
}

DeviceRun::Slot* DeviceRun::free_slot() {
  for (auto& slot : slots_)
    if (!slot->busy) return slot.get();
  return nullptr;
}

OpDescription DeviceRun::draw_op() {
  base::sim::SimRandom& random = context_.random;
  OpDescription op;
  const uint64_t dice = writes_ ? random.below(100) : 0;
  if (dice < 42) {
    op.kind = OpKind::kRead;
  } else if (dice < 86) {
    op.kind = OpKind::kWrite;
    op.durable = random.one_in(6);
    op.preflush = random.one_in(30);
  } else if (dice < 92) {
    op.kind = OpKind::kZero;
    op.durable = random.one_in(4);
  } else {
    op.kind = OpKind::kFlush;
    return op;
  }
  draw_range(op, op.kind == OpKind::kZero ? 2 * io_sectors_max_ : io_sectors_max_);
  return op;
}

void DeviceRun::draw_range(OpDescription& op, uint64_t sectors_max) {
  base::sim::SimRandom& random = context_.random;
  const uint64_t dice = random.below(10);
  uint64_t count = dice < 3 ? 1 : dice < 8 ? 8 : dice < 9 ? random.between(1, 16) : sectors_max;
  count = std::min({count, sectors_max, sectors_now()});
  const uint64_t limit = random.one_in(2) ? std::max(kHotSectors, count) : sectors_now();
  op.sectors = count;
  op.first_sector = random.below(std::min(limit, sectors_now()) - count + 1);
  // Mostly aligned as file systems do it, so that requests coincide.
  if (count == 8 && random.below(4) != 0) op.first_sector = op.first_sector / 8 * 8;
}

void DeviceRun::submit(Slot& slot, const OpDescription& op) {
  slot.busy = true;
  ++in_flight_;
  const size_t queue = queues_.size() < 2 ? 0 : context_.random.below(queues_.size());
  if (queue == 0) return begin(slot, op, top());
  // It begins when its reactor gets to it: one that hangs may be long in doing so.
  queues_[queue].reactor->post(
      [this, alive = std::weak_ptr<char>(alive_), &slot, op, to = queues_[queue].device] {
        if (alive.expired()) return;
        const bool may_begin = context_.activity == Activity::kVerify || allowed(op);
        if (!stopped_ && may_begin) return begin(slot, op, *to);
        slot.busy = false;
        --in_flight_;
      });
}

void DeviceRun::begin(Slot& slot, const OpDescription& op, bnbd::BlockDevice& device) {
  const uint64_t known_sectors = device.info().size_bytes / kSectorBytes;
  slot.id = judge().begin(context_.client, device_index_, op, known_sectors);
  bnbd::BlockRequest& request = slot.request;
  request.force_unit_access = op.durable;
  request.preflush = op.preflush;
  request.no_unmap = op.kind == OpKind::kZero && context_.random.one_in(3);
  request.told_later = &device == &top() && hears_later(slot, op);
  request.priority = context_.random.one_in(4) ? draw_priority(context_.random) : uint16_t{0};
  request.offset_bytes = op.first_sector * kSectorBytes;
  request.length_bytes = op.sectors * kSectorBytes;
  request.done = &DeviceRun::done;
  request.context = &slot;
  switch (op.kind) {
    case OpKind::kRead:
      request.op = BlockOp::kRead;
      break;
    case OpKind::kWrite:
      request.op = BlockOp::kWrite;
      break;
    case OpKind::kFlush:
      request.op = BlockOp::kFlush;
      break;
    case OpKind::kZero:
      request.op = way_to_zero(op);
      break;
  }
  fill(slot, op);
  device.submit(request);
}

/// A discard cannot be forced to the medium, and an erasing is always.
BlockOp DeviceRun::way_to_zero(const OpDescription& op) {
  if (context_.random.one_in(2)) return op.durable ? BlockOp::kWriteZeroes : BlockOp::kDiscard;
  const bool erases = top().info().max_secure_erase_bytes != 0;
  return op.durable && erases ? BlockOp::kSecureErase : BlockOp::kWriteZeroes;
}

void DeviceRun::fill(Slot& slot, const OpDescription& op) {
  slot.foreign.clear();
  slot.request.buffer = {region_.get(), slot.memory};
  if (op.kind != OpKind::kRead && op.kind != OpKind::kWrite) {
    slot.request.buffer = {};
    return;
  }
  if (context_.random.one_in(8)) {
    slot.foreign.resize(op.sectors * kSectorBytes);
    slot.request.buffer = {nullptr, slot.foreign.data()};
  }
  std::byte* const at = slot.request.buffer.address;
  if (op.kind == OpKind::kRead) {
    // Leftovers of the last request must not pass for an answer.
    std::fill_n(at, op.sectors * kSectorBytes, std::byte{0xee});
    return;
  }
  for (uint64_t i = 0; i < op.sectors; ++i)
    write_stamp({at + i * kSectorBytes, kSectorBytes},
                {device_index_ + 1, op.first_sector + i, slot.id});
}

/// Of the request that ends: it is counted just before. Then the data is in its buffer.
bool DeviceRun::refused_by_checksum() {
  if (filters_ == nullptr) return false;
  uint64_t now = 0;
  for (const auto& filter : filters_->filters()) now += filter->counters().mismatches;
  return now != std::exchange(mismatches_, now);
}

/// At home only, where its timers are.
bool DeviceRun::hears_later(const Slot& slot, const OpDescription& op) const {
  return op.kind != OpKind::kRead && context_.me().hears_max_ns > 0 && slot.id % 4 == 0;
}

void DeviceRun::done(bnbd::BlockRequest& request, Errc status) {
  Slot& slot = *static_cast<Slot*>(request.context);
  DeviceRun& run = *slot.run;
  if (run.context_.host.dead()) return;  // destructors of a dead process; nobody hears them
  slot.ended = status;
  const bool failed_flush = request.flushes() && status == Errc::kIo;
  if (!request.told_later || run.stopped_ || (status != Errc::kOk && !failed_flush))
    return run.heard(slot);
  run.judge().done(slot.id, status == Errc::kOk);
  const uint64_t after_ns = base::sim::SimRandom(slot.id).below(run.context_.me().hears_max_ns);
  run.context_.reactor.schedule_after(slot.hears, after_ns);
}

void DeviceRun::hears_of(base::Timer& timer) {
  Slot& slot = *static_cast<Slot*>(timer.context);
  slot.run->heard(slot);
}

void DeviceRun::heard(Slot& slot) {
  bnbd::BlockRequest& request = slot.request;
  const Errc status = slot.ended;
  if (request.untold.any()) top().note_told(request.untold, true);
  std::span<const std::byte> data;
  const bool refused = refused_by_checksum() && status == Errc::kIo;
  if (request.op == BlockOp::kRead && (status == Errc::kOk || refused))
    data = {request.buffer.address, static_cast<size_t>(request.length_bytes)};
  judge().end(slot.id, status, data);
  if (!slot.busy) return;  // a second completion, which the judge has noticed
  slot.busy = false;
  --in_flight_;
  if (context_.activity == Activity::kVerify) pump_at_home();
}

}  // namespace braid::sim
