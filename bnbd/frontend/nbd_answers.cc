// NbdServer: requests at the device, and from its answers to a stream's bytes.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "bnbd/frontend/nbd_server.h"

namespace braid::bnbd {

using base::Errc;

namespace {

constexpr size_t kPiecesMax = 128;  // of one sendmsg: 64 answers with data
constexpr size_t kSendBytesMax = 1 << 20;
// Answers go out together, but not so many that the client has nothing to do meanwhile.
constexpr size_t kSendEarlyBytes = 256 << 10;
constexpr unsigned kSendEarlyAnswers = 4;

std::string_view words_for(Errc status) {
  switch (status) {
    case Errc::kOk:
      return {};
    case Errc::kNoSpace:
      return "the device has no space left";
    case Errc::kReadOnly:
    case Errc::kPermission:
      return "the device takes no writes";
    case Errc::kOutOfRange:
      return "past the end of the device";
    case Errc::kTimedOut:
    case Errc::kDisconnected:
      return "the device's server is away";
    case Errc::kCanceled:
      return "the device is being taken away";
    case Errc::kNotSupported:
      return "the device cannot do that";
    default:
      return "the device failed";
  }
}

}  // namespace

void NbdServer::run(Slot& slot) {
  DeviceOp& operation = slot.operation;
  operation.op = slot.verdict.op;
  operation.force_unit_access = slot.verdict.force_unit_access;
  operation.no_unmap = slot.verdict.no_unmap;
  operation.may_lend = slot.verdict.op == BlockOp::kRead;
  if (operation.op == BlockOp::kFlush) operation.flush_note = slot.connection->quiet.note();
  if (!latency_.empty() && slot.done_bytes == 0) slot.began_ns = reactor_.host().now_ns();
  start(slot);
}

/// How much of a range a device clears inside one turn (a memory device does so inside submit());
/// of data, what a slot holds. Whole blocks.
uint64_t NbdServer::part_max(BlockOp op) const {
  const BlockInfo& info = device_.info();
  const bool transfers = op == BlockOp::kRead || op == BlockOp::kWrite;
  uint64_t max = transfers ? pool_->payload_bytes() : UINT64_MAX;
  if (op == BlockOp::kDiscard) max = info.max_discard_bytes;
  if (op == BlockOp::kWriteZeroes) max = info.max_write_zeroes_bytes;
  const uint64_t whole = max - max % info.logical_block_bytes;
  if (whole != 0) return whole;
  return transfers ? max : UINT64_MAX;  // the device refuses
}

void NbdServer::start(Slot& slot) {
  DeviceOp& operation = slot.operation;
  operation.offset_bytes = slot.verdict.offset_bytes + slot.done_bytes;
  operation.length_bytes =
      std::min(slot.verdict.length_bytes - slot.done_bytes, part_max(operation.op));
  operation.start(device_);
}

/// A part of each long range, or read, per turn.
bool NbdServer::continue_parts() {
  if (parts_.empty()) return false;
  base::IntrusiveList<Slot> now;
  now.take_all(parts_);
  while (Slot* const slot = now.pop_front()) {
    if (slot->connection != nullptr || slot->outlives) {
      start(*slot);
    } else {
      release(*slot);
    }
  }
  return true;
}

void NbdServer::operation_done(DeviceOp& operation, Errc status) {
  auto& slot = *static_cast<Slot*>(operation.context);
  NbdServer& self = *slot.server;
  slot.done_bytes += operation.length_bytes;
  const bool ok = status == Errc::kOk;
  const bool goes_on = slot.done_bytes < slot.verdict.length_bytes;
  const bool wanted = slot.connection != nullptr || slot.outlives;
  if (!ok) base::add_shared(self.statistics_.errors, 1);
  if (goes_on && operation.op == BlockOp::kWrite) return self.part_written(slot, status);
  slot.more = ok && goes_on && operation.op == BlockOp::kRead;
  if (ok && goes_on && !slot.more && wanted && !self.stopped_) return self.parts_.push_back(slot);
  if (!self.latency_.empty() && !slot.more) {
    // Not the turn's time: a memory device ends within it.
    const auto kind = static_cast<size_t>(latency_kind(operation.op));
    self.latency_[kind].record(self.reactor_.host().now_ns() - slot.began_ns);
  }
  if (operation.lent() && !slot.more) base::add_shared(self.statistics_.lent_reads, 1);
  slot.failed_flush = !ok && operation.op == BlockOp::kFlush;
  self.answer(slot, nbd_error(status), words_for(status));
}

/// Of a write that is longer than a slot: its client may send the next part. When one has failed
/// the rest is skipped, as the answer comes behind all that was sent.
void NbdServer::part_written(Slot& slot, Errc status) {
  Connection* const connection = slot.connection;
  slot.at_device = false;
  if (connection == nullptr || connection->incoming != &slot) return release(slot);  // dropped
  slot.status = status;
  slot.operation.buffer = buffer_of(slot);
}

void NbdServer::answer_skipped(Slot& slot) {
  if (slot.status == Errc::kOk) return answer(slot, slot.verdict.error, slot.verdict.reason);
  answer(slot, nbd_error(slot.status), words_for(slot.status));
}

/// Who asks from now on knows of a failure that has just been sent.
void NbdServer::look_behind_failed_flush(Connection& connection) {
  const bool empty = connection.emptied.look(device_, connection.socket.get());
  if (empty && connection.input.empty()) connection.quiet = connection.emptied;
}

void NbdServer::answer(Slot& slot, uint32_t error, std::string_view words) {
  if (slot.connection == nullptr) return release(slot);
  Connection& connection = *slot.connection;
  if (slot.streams && error != 0) {
    // A reply that says that all is well has begun, and there is no other way to take it back.
    end(connection, "a read failed when a part of it was sent already");
    return release(slot);
  }
  const bool data = error == 0 && slot.verdict.op == BlockOp::kRead;
  const uint64_t length_bytes = data ? slot.operation.length_bytes : 0;
  if (slot.streams) {
    slot.head.length = 0;
  } else {
    const NbdPart part = {slot.operation.offset_bytes, length_bytes, !slot.more};
    make_nbd_answer(slot.verdict, part, error, words, connection.terms.structured, slot.head);
  }
  slot.answer_bytes = slot.head.length + length_bytes;
  slot.sent_bytes = 0;
  connection.answer_bytes += slot.answer_bytes;
  ++connection.answer_count;
  if (connection.leaving) connection.active_ns = reactor_.now_ns();
  if (slot.streams) {
    connection.answers.push_front(slot);
    connection.part_awaited = false;
  } else {
    connection.answers.push_back(slot);
  }
  const bool early =
      connection.answer_count >= kSendEarlyAnswers || connection.answer_bytes >= kSendEarlyBytes;
  if (early) (void)send(connection);
}

bool NbdServer::may_send(const Connection& connection) const {
  return !connection.answers.empty() && !connection.blocked && !connection.part_awaited;
}

bool NbdServer::send(Connection& connection) {
  bool worked = false;
  while (connection.socket.valid() && may_send(connection)) {
    struct iovec pieces[kPiecesMax];
    size_t count = 0;
    size_t bytes = 0;
    const auto add = [&](std::byte* from, size_t length) {
      if (length == 0) return;
      pieces[count++] = {from, length};
      bytes += length;
    };
    for (Slot* slot = connection.answers.front();
         slot != nullptr && count + 2 <= kPiecesMax && bytes < kSendBytesMax;
         slot = connection.answers.next(*slot)) {
      const size_t of_head = std::min(slot->sent_bytes, slot->head.length);
      const size_t of_data = slot->sent_bytes - of_head;
      const size_t data_bytes = slot->answer_bytes - slot->head.length;
      add(slot->head.bytes.data() + of_head, slot->head.length - of_head);
      add(data_bytes == 0 ? nullptr : slot->operation.data() + of_data, data_bytes - of_data);
      if (slot->more && !connection.terms.structured) break;  // its next part comes next
    }
    struct msghdr message = {};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    const ssize_t result =
        ::sendmsg(connection.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (result < 0) {
      if (errno == EINTR) continue;
      connection.blocked = true;
      if (errno != EAGAIN) end(connection, "the client does not take answers any more");
      return worked;
    }
    worked = true;
    connection.active_ns = reactor_.now_ns();
    connection.blocked = static_cast<size_t>(result) < bytes;
    sent(connection, static_cast<size_t>(result));
  }
  return worked;
}

void NbdServer::sent(Connection& connection, size_t bytes) {
  connection.answer_bytes -= bytes;
  bool failed_flush = false;
  while (bytes > 0) {
    Slot& slot = *connection.answers.front();
    const size_t part = std::min(bytes, slot.answer_bytes - slot.sent_bytes);
    bytes -= part;
    slot.sent_bytes += part;
    if (slot.sent_bytes < slot.answer_bytes) break;
    slot.unlink();
    --connection.answer_count;
    if (slot.more) {
      // Chunks of others may come between those of a long read; a simple reply is in one piece.
      slot.streams = connection.part_awaited = !connection.terms.structured;
      parts_.push_back(slot);
      continue;
    }
    failed_flush |= slot.failed_flush;
    release(slot, true);
  }
  if (failed_flush) look_behind_failed_flush(connection);
}

void NbdServer::release(Slot& slot, bool heard) {
  slot.operation.told(heard);
  if (Connection* const connection = std::exchange(slot.connection, nullptr)) {
    shares_.give_back(--connection->slots);
  }
  pool_->release(slot);
  if (pool_->in_use() != 0) return;
  completed_.notify_all();
  if (released_) delete this;
}

}  // namespace braid::bnbd
