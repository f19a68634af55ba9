#include "tests/sim/checkers/device_history.h"

#include <algorithm>
#include <utility>

namespace braid::sim {

DeviceHistory::DeviceHistory(Violations& violations, uint64_t device, uint64_t size_sectors,
                             bool may_tear)
    : violations_(violations), device_(device), may_tear_(may_tear), registers_(size_sectors) {}

bool DeviceHistory::admits(uint64_t first_sector, uint64_t sectors) const {
  for (uint64_t s = first_sector; s < first_sector + sectors; ++s)
    if (registers_[s].burst() >= BlockRegister::kBurstMax) return false;
  return true;
}

bool DeviceHistory::being_written(uint64_t first_sector, uint64_t sectors) const {
  for (uint64_t s = first_sector; s < first_sector + sectors; ++s)
    if (registers_[s].being_written()) return true;
  return false;
}

uint64_t DeviceHistory::unjudged() const {
  return static_cast<uint64_t>(std::count_if(registers_.begin(), registers_.end(),
                                             [](const auto& its) { return its.burst() > 0; }));
}

void DeviceHistory::begin(uint64_t id, const OpDescription& op) {
  const Instant now = ++clock_;
  Running running{op, now};
  running.saw_loss = running.flushes() && (!losses_.empty() || doubtful_ != 0);
  running_.emplace(id, running);
  if (op.kind == OpKind::kFlush) return;
  const auto kind =
      op.kind == OpKind::kRead ? BlockRegister::Kind::kRead : BlockRegister::Kind::kWrite;
  const uint64_t written = op.kind == OpKind::kZero ? kZeroes : id;
  for (uint64_t s = op.first_sector; s < op.first_sector + op.sectors; ++s)
    registers_[s].begin(id, kind, written, now);
}

void DeviceHistory::done(uint64_t id) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  Running& running = found->second;
  if (running.flushes()) {
    running.flush_done = ++clock_;
    maybe_flushed_ = std::max(maybe_flushed_, may_cover(running));
    flush_done_well(running);
  }
  if (running.op.kind != OpKind::kFlush) running.done = ++clock_;
}

void DeviceHistory::end(uint64_t id, bool succeeded, std::span<const std::byte> read_data,
                        const Doubts& doubts) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;  // CompletionChecker's business
  const Running running = found->second;
  running_.erase(found);
  ++clock_;
  if (succeeded && running.is_lie()) lies_to_ = std::max(lies_to_, running.begin);
  if (running.flushes()) check_flush(running, succeeded, doubts);
  if (running.op.kind == OpKind::kFlush) return;
  end_sectors(id, running, succeeded, read_data, doubts.repeated);
  const bool wrote = running.op.kind == OpKind::kWrite || running.op.kind == OpKind::kZero;
  if (wrote && !succeeded) last_failed_ = clock_;
  if (wrote && succeeded && !running.op.durable) write_acknowledged(running);
}

void DeviceHistory::lied_to(uint64_t id) {
  const auto found = running_.find(id);
  if (found != running_.end()) found->second.lied_to = true;
}

void DeviceHistory::write_acknowledged(const Running& write) {
  last_acknowledged_ = clock_;
  last_done_ = std::max(last_done_, write.done != 0 ? write.done : clock_);
  if (write.begin > last_loss_) return;
  doubtful_ = clock_;
  // What failed before he heard told him nothing of it.
  if (write.lost_at != 0) losses_.push_back({write.lost_at, write.done, clock_});
  loss_seen();
}

void DeviceHistory::loss_seen() {
  for (auto& [id, running] : running_) running.saw_loss |= running.flushes();
}

bool DeviceHistory::may_report_loss(uint64_t id) const {
  const auto found = running_.find(id);
  return found != running_.end() && found->second.saw_loss;
}

void DeviceHistory::end_sectors(uint64_t id, const Running& running, bool succeeded,
                                std::span<const std::byte> read_data, bool repeated) {
  const OpDescription& op = running.op;
  for (uint64_t i = 0; i < op.sectors; ++i) {
    const uint64_t sector = op.first_sector + i;
    uint64_t value = op.kind == OpKind::kWrite ? id : kZeroes;
    bool known = succeeded;
    if (op.kind == OpKind::kRead && succeeded) {
      const auto stamp =
          read_stamp(read_data.subspan(i * kSectorBytes, kSectorBytes), device_, sector);
      if (!stamp &&
          !is_torn(sector, running.begin, read_data.subspan(i * kSectorBytes, kSectorBytes)))
        violations_.add("device {} sector {}: read {} returned what was never written there",
                        device_, sector, id);
      known = stamp.has_value();
      value = stamp.value_or(0);
    }
    const bool durable = op.durable && !running.lied_to;
    if (auto wrong = registers_[sector].end(id, known, value, durable, clock_, floor_, repeated))
      violations_.add("device {} sector {}: {}", device_, sector, *wrong);
  }
}

/// Each byte of it is of what was there, or of what was written there while it was read.
bool DeviceHistory::is_torn(uint64_t sector, Instant read_begin,
                            std::span<const std::byte> bytes) const {
  const BlockRegister& its = registers_[sector];
  return may_tear_ && its.written_since(read_begin) &&
         is_mixture(bytes, device_, sector, its.versions());
}

void DeviceHistory::check_flush(const Running& flush, bool succeeded, const Doubts& doubts) {
  if (succeeded) {
    flush_succeeded(flush);
    return;
  }
  // A preflush may have been done that waited, and what was behind it failed. A flush by itself was
  // not, but its user knows now of what it should have covered.
  maybe_flushed_ = std::max(maybe_flushed_, flush.op.preflush ? may_cover(flush) : flush.begin);
  // Whatever it failed for: what came back after a power loss may stay.
  for (BlockRegister& sector : registers_) {
    sector.loss_admitted(floor_);
    if (doubts.dropped) sector.dropped(flush.begin, clock_, floor_);
  }
  // A flush from before some of the lost writes were acknowledged says nothing about those. One
  // from before a loss may have failed for another.
  const auto reports = [&](const Loss& loss) { return flush.begin > loss.told; };
  for (const Loss& loss : losses_)
    if (reports(loss)) doubtful_ = std::max({doubtful_, loss.told, loss.at});
  if (std::erase_if(losses_, reports) > 0) ++losses_reported_;
  if (!doubts.otherwise_explained && flush.begin > doubtful_) doubtful_ = 0;
}

void DeviceHistory::flushes_forgotten() {
  const Instant now = ++clock_;
  for (BlockRegister& sector : registers_) sector.dropped(now, now, floor_);
}

void DeviceHistory::flush_succeeded(const Running& flush) {
  flush_done_well(flush);
  const auto hides = [&](const Loss& loss) { return flush.begin > loss.told; };
  if (std::ranges::any_of(losses_, [&](const Loss& its) { return hides(its) && !its.in_doubt; }))
    violations_.add(
        "device {}: a flush succeeded after the server's machine had lost power with "
        "acknowledged writes unflushed",
        device_);
  std::erase_if(losses_, hides);
  if (flush.begin > doubtful_) doubtful_ = 0;
  promised_ = std::max(promised_, flush.begin);
  if (flushes_wait_) maybe_flushed_ = std::max(maybe_flushed_, may_cover(flush));
  if (!flush.lied_to) floor_ = std::max(floor_, flush.begin);
}

/// From before a loss, it was done before that, and so was what it covers. Of some of that nobody
/// may have heard yet. For what was done later the report is still owed.
void DeviceHistory::flush_done_well(const Running& flush) {
  std::erase_if(losses_,
                [&](const Loss& loss) { return flush.begin < loss.at && loss.done < flush.begin; });
  for (Loss& loss : losses_)
    if (flush.begin < loss.at && loss.done < may_cover(flush)) loss.in_doubt = true;
  for (auto& [id, running] : running_)
    if (flush.begin < running.lost_at && running.done < may_cover(flush)) running.lost_at = 0;
}

/// What was done before then. One that waits covers what was done while it did.
Instant DeviceHistory::may_cover(const Running& flush) const {
  if (!flushes_wait_) return flush.begin;
  return flush.flush_done != 0 ? flush.flush_done : clock_;
}

void DeviceHistory::power_loss() {
  const Instant now = ++clock_;
  // What came back after the loss before is on the medium: only what is younger can be lost.
  const Instant at_risk_since = std::max({promised_, writer_since_, last_loss_});
  last_loss_ = now;
  // Of what is lost by a lie nobody will hear; the answer that is one may be on its way.
  Instant unreported = std::max(writer_since_, lies_to_);
  for (const auto& [id, running] : running_)
    if (running.is_lie()) unreported = std::max(unreported, running.begin);
  for (BlockRegister& sector : registers_) sector.power_loss(now, floor_, unreported);
  if (last_done_ > at_risk_since) {
    losses_.push_back({now, last_done_, last_acknowledged_, maybe_flushed_since(last_done_)});
    loss_seen();
  }
  for (auto& [id, running] : running_)
    if (running.lost_at == 0 && running.done > at_risk_since && !maybe_flushed_since(running.done))
      running.lost_at = now;
  // A long write goes in parts, and the client counts those that were acknowledged, whatever
  // becomes of the others.
  const bool writing = std::any_of(running_.begin(), running_.end(), [](const auto& entry) {
    const OpDescription& op = entry.second.op;
    return !op.durable && (op.kind == OpKind::kWrite || op.kind == OpKind::kZero);
  });
  if (!writing && last_failed_ <= std::max(promised_, writer_since_)) return;
  doubtful_ = now;
  loss_seen();
}

bool DeviceHistory::maybe_flushed_since(Instant done) const {
  const bool under_way = std::any_of(running_.begin(), running_.end(), [&](const auto& entry) {
    return entry.second.op.preflush && may_cover(entry.second) > done;
  });
  return under_way || maybe_flushed_ > done;
}

void DeviceHistory::writer_restarted() {
  writer_since_ = ++clock_;
  losses_.clear();
  doubtful_ = last_loss_ = 0;
  for (BlockRegister& sector : registers_) sector.loss_admitted(floor_);
}

}  // namespace braid::sim
