// ExportTable: flushes that fail, who has been told of them, and who is told by the incarnation.
#include <xxhash.h>

#include <array>
#include <span>

#include "bnbd/backend/loss_mark.h"
#include "bnbd/server/export.h"
#include "bnbd/server/session.h"

namespace braid::bnbd::server {

using base::Errc;
using base::Status;

namespace {

uint64_t changes_of(const BlockDevice& device) {
  const BlockStatistics done = device.statistics();
  return done.writes + done.discards + done.write_zeroes;
}

}  // namespace

bool is_cached(const BlockDevice& device) {
  const std::shared_ptr<base::File> file = device.file();
  return file && !file->info().direct;
}

Errc ExportTable::settle_flush(const RequestSlot& slot, Errc status) {
  SessionDevice& holder = *slot.device;
  const BlockRequest& block = slot.block;
  // Nothing was done, and nothing asked of pages. A flush itself has nothing that could be refused
  // so.
  const bool refused = status == Errc::kOutOfRange || status == Errc::kInvalid;
  if (status == Errc::kNotSupported || (refused && block.op != BlockOp::kFlush)) return status;
  const uint64_t& failed = holder.exported.failures->flushes;
  const uint64_t connection = slot.request->connection;
  // A durable write speaks of its own data, well or not: who flushes is still to be told of the
  // others'.
  const bool of_others = block.op == BlockOp::kFlush || block.preflush;
  if (status != Errc::kOk) {
    count_failure(*holder.exported.failures);
  } else {
    leave_mark(*holder.exported.failures);
    const bool others_failed =
        slot.flushes_failed != failed || (of_others && !holder.told.may_vouch(failed, connection));
    if (others_failed) status = Errc::kIo;
  }
  if (of_others && status != Errc::kOk) {
    holder.told.tell(failed, connection, slot.request);
    holder.session.expect_answer_seen();
  }
  // It is good behind what this connection has told. Another may have told nothing.
  const bool good = block.op == BlockOp::kFlush && status == Errc::kOk;
  slot.request->repeats = good && !holder.told.knows(failed);
  return status;
}

/// The kernel's word of pages that it cannot write is for those that have the file open, and while
/// its clients are away nobody has. True: release() follows when the flush has ended.
bool ExportTable::flush_to_close(Export& found) {
  if (stopping_ || !found.device || !is_cached(*found.device)) return false;
  const uint64_t changes = changes_of(*found.device);
  if (changes == found.changes_flushed) return false;
  found.changes_flushed = changes;
  ++found.waiters;
  found.flushing = true;
  found.last_flush.op = BlockOp::kFlush;
  found.last_flush.context = &found;
  found.last_flush.done = [](BlockRequest& ended, Errc status) {
    Export& its = *static_cast<Export*>(ended.context);
    its.table.flushed_to_close(its, status);
  };
  found.device->submit(found.last_flush);
  return true;
}

void ExportTable::flushed_to_close(Export& found, Errc status) {
  if (status != Errc::kOk && !reactor_.host().mutant("close-flush-hidden")) {
    count_failure(*found.failures);
    log_.error(
        "{}: what its clients wrote and did not flush cannot be made durable ({}): it counts as "
        "lost for those that come back",
        found.name, base::to_string(status));
  }
  found.flushing = false;
  while (RequestSlot* slot = found.behind_flush.pop_front()) {
    slot->block.done(slot->block, Errc::kOk);
  }
  --found.waiters;
  flushed_->notify_all();
  reactor_.schedule_after(found.unclaimed, 0);  // the device is not closed within its own call
}

bool ExportTable::holds_back(RequestSlot& slot, Errc status) {
  Export& of = slot.device->exported;
  const BlockRequest& block = slot.block;
  const bool durable = block.op == BlockOp::kFlush || block.preflush || block.force_unit_access;
  if (!of.flushing || !durable || status != Errc::kOk) return false;
  of.behind_flush.push_back(slot);
  return true;
}

void ExportTable::count_failure(Failures& failures) {
  ++failures.flushes;
  if (failures.is_file && failures.mark == MarkState::kNone) failures.mark = MarkState::kDue;
  leave_mark(failures);
}

/// For the next process. No client is told by this one what the mark makes of the incarnation.
void ExportTable::leave_mark(Failures& failures) {
  if (failures.mark != MarkState::kDue || failures.marking) return;
  std::shared_ptr<base::File> file = failures.at.lock();
  if (!file || reactor_.host().mutant("loss-unmarked")) return;
  failures.marking = true;
  failures.mark_task = mark(failures, std::move(file));
  failures.mark_task.start();
}

/// What hurts the flushes may hurt the mark as well: it stays due then.
base::Task<void> ExportTable::mark(Failures& failures, std::shared_ptr<base::File> file) {
  // The worker may outlive this table.
  const auto marked_as = std::make_shared<base::Result<uint64_t>>(uint64_t{0});
  std::function<void()> work = [marked_as, file = std::move(file), &host = reactor_.host(),
                                number = random()] {
    const Status marked = mark_loss(host, *file, number);
    *marked_as = marked.ok() ? incarnation_of(host, *file) : marked.error();
  };
  co_await reactor_.offload(std::move(work));
  failures.marking = false;
  if (marked_as->ok()) {
    failures.marked_as = **marked_as;
    failures.mark = MarkState::kLeft;
  } else {
    if (marked_as->code() == Errc::kNotSupported) failures.mark = MarkState::kImpossible;
    losses_.warning(
        "{}: that a flush has failed cannot be noted at the file, for the next server: {}",
        failures.name, marked_as->error().message());
  }
  flushed_->notify_all();
}

/// A file that was just opened may have the mark of this process, whose failures count apart. Or
/// another process has left one since, of which all clients hear.
base::Task<void> ExportTable::take_incarnation(Failures& failures, uint64_t found) {
  const std::shared_ptr<base::Signal> flushed = flushed_;
  while (failures.marking) co_await flushed->wait();
  if (found == failures.incarnation) {
    if (failures.mark == MarkState::kLeft) failures.mark = MarkState::kDue;  // taken away
  } else if (found != failures.marked_as) {
    failures.incarnation = found;
    failures.marked_as = 0;
    failures.mark = MarkState::kNone;
  }
  leave_mark(failures);
}

void ExportTable::tell_failures() {
  for (const auto& [identity, failures] : failures_) {
    if (failures.mark != MarkState::kDue && failures.mark != MarkState::kImpossible) continue;
    log_.error(
        "{}: {} flushes have failed since this server was started, and the next one does not know: "
        "a client that is away now, or has not seen its answer, may not hear that what it wrote "
        "before is lost",
        failures.name, failures.flushes);
  }
}

void ExportTable::begin_stop() {
  stopping_ = true;
  for (auto& [identity, failures] : failures_) leave_mark(failures);
}

base::Task<bool> ExportTable::all_flushed() {
  const std::shared_ptr<base::Signal> flushed = flushed_;
  while (!flushing().empty()) co_await flushed->wait();
  co_return true;
}

std::string ExportTable::flushing() const {
  std::string text;
  for (const auto& each : exports_) {
    if (each->flushing)
      text += fmt::format("{}a flush of '{}'", text.empty() ? "" : ", ", each->name);
  }
  for (const auto& [identity, failures] : failures_) {
    if (failures.marking)
      text += fmt::format("{}a mark at '{}'", text.empty() ? "" : ", ", failures.name);
  }
  return text;
}

uint64_t ExportTable::random() {
  uint64_t number = 0;
  while (number == 0) reactor_.host().random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

uint64_t ExportTable::incarnation(const Export& of) {
  const uint64_t own = of.failures->incarnation;
  if (of.failures->flushes == 0) return own;
  if (process_ == 0) process_ = random();
  const std::array<uint64_t, 3> parts = {own, process_, of.failures->flushes};
  return XXH3_64bits(parts.data(), sizeof(parts));
}

}  // namespace braid::bnbd::server
