// The data path of a remote device on one reactor. No allocation, lock or system call, and no
// message to another reactor.
#include <algorithm>
#include <cstring>
#include <utility>

#include "bnbd/client/device_impl.h"
#include "bnbd/client/device_queue.h"

namespace braid::bnbd::client {

using base::Errc;

namespace {

// What a request carries while it is the device's.
enum Word : size_t { kSubmittedNs };                   // of device_words
enum FlushWord : size_t { kCovers, kKnown, kLosses };  // of a FlushNote

bool transfers(BlockOp op) {
  return op == BlockOp::kRead || op == BlockOp::kWrite;
}

bool changes(BlockOp op) {
  return op != BlockOp::kRead && op != BlockOp::kFlush;
}

void keep_ticket(FlushNote& note, const DurabilityLedger::Ticket& ticket) {
  note.words[kCovers] = ticket.covers;
  note.words[kKnown] = ticket.known;
  note.words[kLosses] = uint64_t{ticket.losses_reported} << 32 | ticket.may_report;
}

DurabilityLedger::Ticket ticket_of(const BlockRequest& request) {
  const std::array<uint64_t, 3>& words = request.flush_note.words;
  return {words[kCovers], words[kKnown], static_cast<uint32_t>(words[kLosses] >> 32),
          static_cast<uint32_t>(words[kLosses])};
}

}  // namespace

void DeviceQueue::note_flush(FlushNote& note) {
  if (note.taken || reactor_.host().mutant("flush-noted-late")) return;
  keep_ticket(note, ledger_.begin_flush());
  note.taken = true;
}

void DeviceQueue::note_told(Untold& untold, bool heard) {
  if (!heard) untold.words[DurabilityLedger::kReports] = 0;
  ledger_.told(untold.words, index_);
}

void DeviceQueue::submit(BlockRequest& request) {
  request.lent = nullptr;
  // What a flush covers is fixed here, however long it waits; what its user knew, here or before.
  const bool noted = std::exchange(request.flush_note.taken, false);
  if (request.flushes()) {
    keep_ticket(request.flush_note,
                noted ? ledger_.submitted(ticket_of(request)) : ledger_.begin_flush());
  }
  Errc status = check(view_.info, request);
  if (view_.verdict != Errc::kOk) status = view_.verdict;
  if (transfers(request.op) && request.buffer.address == nullptr) status = Errc::kInvalid;
  if (status != Errc::kOk) return deferred_.end(request, status);
  request.device_words[kSubmittedNs] = reactor_.now_ns();
  if (Op* op = take_op()) {
    begin(*op, request);
    session_.serve();
  } else {
    waiting_.push_back(request);
    base::add_shared(waiting_count_, 1);
  }
}

void DeviceQueue::begin(Op& op, BlockRequest& request) {
  if (!met_) meet();
  base::add_shared(in_progress_, 1);
  op.request = &request;
  op.status = Errc::kOk;
  op.parts = 0;
  op.durable = true;
  op.flush_failed = false;
  if (request.force_unit_access) op.losses_before = ledger_.losses();
  op.foreign = transfers(request.op) && !session_.takes(request);
  // A preflush is a flush of its own: the body must not reach the disk if it fails.
  const bool preflush = request.preflush && request.op != BlockOp::kFlush &&
                        !reactor_.host().mutant("preflush-skipped");
  enter(op, preflush ? Stage::kPreflush : Stage::kBody);
}

void DeviceQueue::enter(Op& op, Stage stage) {
  op.stage = stage;
  op.issued_bytes = 0;
  ready_.push_back(op);
  session_.need_permit(*this);
}

uint64_t DeviceQueue::stage_bytes(const Op& op) const {
  const bool ranged = op.stage == Stage::kBody && op.request->op != BlockOp::kFlush;
  return ranged ? op.request->length_bytes : 1;
}

/// What one request of the present stage may cover at the present server.
uint32_t DeviceQueue::request_bytes_max(const Op& op) const {
  if (op.stage != Stage::kBody) return 1;
  uint64_t most = view_.server_max_io_bytes;
  if (op.request->op == BlockOp::kFlush) most = 1;
  if (op.request->op == BlockOp::kDiscard) most = view_.info.max_discard_bytes;
  if (op.request->op == BlockOp::kWriteZeroes) most = view_.info.max_write_zeroes_bytes;
  if (op.request->op == BlockOp::kSecureErase) most = view_.info.max_secure_erase_bytes;
  if (most == 0) return UINT32_MAX;  // it cannot any more: it refuses the whole
  const uint32_t block = view_.info.logical_block_bytes;
  return most < block ? static_cast<uint32_t>(most) : static_cast<uint32_t>(most / block * block);
}

bool DeviceQueue::send_one(trs::Permit permit) {
  if (!has_work()) return false;
  Part* part = retry_.front();
  const bool again = part != nullptr;
  if (!again) part = free_part();
  if (part == nullptr) return false;  // goes on when a part ends
  if (!again) {
    Op& op = *ready_.front();
    part->op = &op;
    part->offset_bytes = op.request->offset_bytes + op.issued_bytes;
    const uint64_t left = stage_bytes(op) - op.issued_bytes;
    part->length_bytes = static_cast<uint32_t>(std::min<uint64_t>(left, request_bytes_max(op)));
  }
  part->sent_bytes = std::min(part->length_bytes, request_bytes_max(*part->op));
  if (!fill(*part)) {
    session_.need_buffer(*this);
    return false;
  }
  part->ListNode::unlink();
  if (!again) {
    Op& op = *part->op;
    ++op.parts;
    op.issued_bytes += part->length_bytes;
    if (op.issued_bytes == stage_bytes(op)) op.ListNode::unlink();
  }
  part->counted = is_change(*part->op) && !durable_by_itself(*part);
  if (part->counted) part->era = ledger_.sent(index_);
  part->on_wire = true;
  session_.permit_share().take(permits_held_);
  part->request.permit = std::move(permit);
  base::add_shared(requests_sent_, 1);
  session_.transport().submit(part->request);
  return has_work();
}

/// Whether its present parts change the device: flushes before and behind a change do not.
bool DeviceQueue::is_change(const Op& op) {
  return op.stage == Stage::kBody && changes(op.request->op);
}

/// Message and data of a part. False: it needs a copy buffer and there is none.
bool DeviceQueue::fill(Part& part) {
  const Op& op = *part.op;
  const BlockRequest& request = *op.request;
  const bool body = op.stage == Stage::kBody;
  const bool data = body && transfers(request.op);
  const bool flush = !body || request.op == BlockOp::kFlush;

  trs::ClientRequest& out = part.request;
  out.direction =
      data && request.op == BlockOp::kRead ? trs::Direction::kRead : trs::Direction::kWrite;
  out.data = {};
  if (data) {
    std::byte* const place = request.buffer.address + (part.offset_bytes - request.offset_bytes);
    out.data.length_bytes = part.sent_bytes;
    if (op.foreign) {
      part.copy = session_.take_buffer(copies_held_);
      if (part.copy == nullptr) return false;
      base::add_shared(statistics_.copies, 1);
      if (request.op == BlockOp::kWrite) std::memcpy(part.copy, place, part.sent_bytes);
      out.data.mr = session_.buffer_mr();
      out.data.address = part.copy;
    } else {
      out.data.mr = request.buffer.region->mr();
      out.data.address = place;
    }
  }
  wire::Io& message = part.message;
  message = {};
  message.header.type = static_cast<uint16_t>(wire::MessageType::kIo);
  message.device_id = view_.id;
  message.operation_flags = operation_flags(op);
  if (view_.sends_priority) message.priority = request.priority;
  if (!flush) {
    message.sector = part.offset_bytes / wire::kSectorBytes;
    message.length_bytes = part.sent_bytes;
  }
  return true;
}

uint32_t DeviceQueue::operation_flags(const Op& op) const {
  const BlockRequest& request = *op.request;
  if (op.stage != Stage::kBody) return static_cast<uint32_t>(wire::Operation::kFlush);
  const uint32_t fua =
      request.force_unit_access && view_.server_fua ? wire::kFlagForceUnitAccess : 0;
  switch (request.op) {
    case BlockOp::kRead:
      return static_cast<uint32_t>(wire::Operation::kRead);
    case BlockOp::kWrite:
      return static_cast<uint32_t>(wire::Operation::kWrite) | fua;
    case BlockOp::kFlush:
      return static_cast<uint32_t>(wire::Operation::kFlush);
    case BlockOp::kDiscard:
      return static_cast<uint32_t>(wire::Operation::kDiscard) | fua;
    case BlockOp::kWriteZeroes:
      return static_cast<uint32_t>(wire::Operation::kWriteZeroes) | fua |
             (request.no_unmap ? wire::kFlagNoUnmap : 0);
    case BlockOp::kSecureErase:
      return static_cast<uint32_t>(wire::Operation::kSecureErase) | fua;
  }
  return 0;
}

void DeviceQueue::part_ended(trs::ClientRequest& request, Errc status) {
  Part& part = *static_cast<Part*>(request.context);
  DeviceQueue& device = *part.device;
  device.end_part(part, status);
}

void DeviceQueue::end_part(Part& part, Errc status) {
  part.on_wire = false;
  Op& op = *part.op;
  SessionQueue& session = session_;  // the end of a request may be the end of the device
  session.permit_share().give_back(permits_held_);
  if (permits_held_ == 0) ListNode::unlink();  // it stands among the first from now on
  if (std::byte* const copy = std::exchange(part.copy, nullptr)) {
    if (status == Errc::kOk && op.request->op == BlockOp::kRead) {
      std::byte* const place =
          op.request->buffer.address + (part.offset_bytes - op.request->offset_bytes);
      std::memcpy(place, copy, part.sent_bytes);
    }
    session.give_buffer(copy, copies_held_);
  }
  count_end(part, status);
  const Recall recall = std::exchange(part.recall, Recall::kNone);
  const bool cut = recall == Recall::kCut && status == Errc::kCanceled;
  if (status == Errc::kDisconnected || cut) {
    // The server does not know the device, or its limits became smaller while there was no path, by
    // which it is another process: it has done nothing of it.
    if (!cut && part.message.device_id == view_.id) lost_at_server();
    if (view_.verdict == Errc::kOk) return send_again(part);
    status = view_.verdict;
  } else if (status == Errc::kCanceled && recall == Recall::kFails) {
    const Errc now = view_.verdict;  // the device may have come back in this very turn
    status = now != Errc::kOk ? now : Errc::kTimedOut;
  }
  part.offset_bytes += part.sent_bytes;
  part.length_bytes -= part.sent_bytes;
  if (status == Errc::kOk && part.length_bytes > 0 && op.status == Errc::kOk) {
    if (view_.verdict == Errc::kOk) return send_again(part);
    status = view_.verdict;
  }
  free_parts_.push_front(part);  // the one whose memory is there
  --op.parts;
  if (status != Errc::kOk) {
    if (op.status == Errc::kOk) op.status = status;
    op.issued_bytes = stage_bytes(op);  // the rest is not sent any more
    op.ListNode::unlink();
  }
  session.need_permit(*this);
  if (op.parts == 0 && op.issued_bytes == stage_bytes(op)) stage_ended(op);
  session.serve();
}

/// What the end of a part means for flushes.
void DeviceQueue::count_end(Part& part, Errc status) {
  Op& op = *part.op;
  if (!is_change(op)) {
    // Any answer of a server that has tried. What it has not done comes again, or is recalled.
    const bool tried = status != Errc::kOk && status != Errc::kDisconnected &&
                       status != Errc::kCanceled && status != Errc::kNotSupported;
    op.flush_failed = tried && op.request->op != BlockOp::kRead;
    return;
  }
  const bool durable = durable_by_itself(part);
  if (status == Errc::kOk && !durable) op.durable = false;
  const bool at_stake = status == Errc::kOk && !durable && view_.info.write_cache;
  // The server that is there now may have no FUA.
  if (at_stake && !part.counted) part.era = ledger_.sent(index_);
  if (at_stake) {
    ledger_.acknowledged(part.era, op.untold, index_);
  } else if (part.counted) {
    ledger_.ended(part.era, index_);
  }
}

/// What went on the wire counts, not what the server of the present path could do: a part sent
/// without FUA is sent again without it.
bool DeviceQueue::durable_by_itself(const Part& part) const {
  return (part.message.operation_flags & wire::kFlagForceUnitAccess) != 0 && view_.server_fua;
}

/// What is left of the part goes again, or on, when the device is open.
void DeviceQueue::send_again(Part& part) {
  SessionQueue& session = session_;
  retry_.push_back(part);
  session.need_permit(*this);
  session.serve();
}

void DeviceQueue::stage_ended(Op& op) {
  const BlockRequest& request = *op.request;
  if (op.status != Errc::kOk) {
    const bool behind = op.stage == Stage::kPostflush;
    if (op.flush_failed) flush_failed(op, behind ? op.postflush : ticket_of(request));
    return finish(op, op.status);
  }
  switch (op.stage) {
    case Stage::kPreflush:
      if (const Errc status = judge_flush(op, ticket_of(request)); status != Errc::kOk) {
        return finish(op, status);
      }
      return go_on(op, Stage::kBody);
    case Stage::kBody:
      if (request.op == BlockOp::kFlush) return finish(op, judge_flush(op, ticket_of(request)));
      if (changes(request.op) && request.force_unit_access && !op.durable) {
        op.postflush = ledger_.begin_flush_behind(op.losses_before);
        return go_on(op, Stage::kPostflush);
      }
      return finish(op, Errc::kOk);
    case Stage::kPostflush:
      return finish(op, judge_flush(op, op.postflush));
  }
}

/// Not if all that is held has been ended: nobody would look at it again.
void DeviceQueue::go_on(Op& op, Stage stage) {
  if (view_.verdict != Errc::kOk) return finish(op, view_.verdict);
  enter(op, stage);
}

Errc DeviceQueue::judge_flush(Op& op, const DurabilityLedger::Ticket& ticket) {
  const bool planted = reactor_.host().mutant("flush-covers-late");
  const Errc status = ledger_.flushed(planted ? ledger_.begin_flush() : ticket, &op.untold);
  if (status != Errc::kOk) {
    log_.error(
        "{}: this flush fails, because the server's machine restarted, or one failed "
        "there, with acknowledged writes not flushed; they may be lost",
        name_);
  }
  return status;
}

void DeviceQueue::flush_failed(Op& op, const DurabilityLedger::Ticket& ticket) {
  if (reactor_.host().mutant("failure-stakes-ignored")) return;
  if (!ledger_.flush_failed(ticket, &op.untold)) return;
  log_.error(
      "{}: a flush failed at the server while writes were under way that it does not speak for; "
      "the next flush fails, too",
      name_);
}

/// Its user hears now of what it has done, or who submitted it says when.
void DeviceQueue::tell(Op& op) {
  BlockRequest& request = *op.request;
  if (!request.told_later || told_early_) return ledger_.told(op.untold, index_);
  DurabilityLedger::add(request.untold.words, op.untold);
}

void DeviceQueue::count_latency(LatencyKind kind, uint64_t ns) {
  const auto index = static_cast<size_t>(kind);
  if (!latency_.has(index)) [[unlikely]]
    latency_.make(index);
  latency_[index].record(ns);
}

void DeviceQueue::finish(Op& op, Errc status) {
  BlockRequest& request = *op.request;
  tell(op);
  op.request = nullptr;
  op.ListNode::unlink();
  base::subtract_shared(in_progress_, 1);
  if (BlockRequest* next = waiting_.pop_front()) {
    base::subtract_shared(waiting_count_, 1);
    begin(op, *next);
  } else {
    free_ops_.push_front(op);
  }
  const uint64_t began_ns = request.device_words[kSubmittedNs];
  count_latency(latency_kind(request.op), reactor_.now_ns() - began_ns);
  statistics_.count(request, status);
  if (closing_) look_whether_quiet();
  if (request.op == BlockOp::kFlush && reactor_.host().mutant("double-completion")) {
    request.done(request, status);
  }
  request.done(request, status);
}

/// The server answered that it does not know the device: closed there, or a request that was held
/// for a device that could not be opened again. The home opens it again, if it is news to it.
void DeviceQueue::lost_at_server() {
  if (!view_.open) return;
  view_.open = false;
  base::Reactor& home = device_.home();
  if (&home == &reactor_) return device_.lost_at_server(view_.epoch);
  home.post(
      [self = shared_from_this(), epoch = view_.epoch] { self->device_.lost_at_server(epoch); });
}

}  // namespace braid::bnbd::client
