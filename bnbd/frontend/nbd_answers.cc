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
  slot.done_bytes = 0;
  if (!latency_.empty()) slot.began_ns = reactor_.host().now_ns();
  start(slot);
}

/// How much of a range a device clears inside one turn. A memory device does so inside submit().
uint64_t NbdServer::range_max(BlockOp op) const {
  const BlockInfo& info = device_.info();
  uint64_t max = UINT64_MAX;
  if (op == BlockOp::kDiscard) max = info.max_discard_bytes;
  if (op == BlockOp::kWriteZeroes) max = info.max_write_zeroes_bytes;
  max -= max % info.logical_block_bytes;
  return max == 0 ? UINT64_MAX : max;
}

void NbdServer::start(Slot& slot) {
  DeviceOp& operation = slot.operation;
  operation.offset_bytes = slot.verdict.offset_bytes + slot.done_bytes;
  operation.length_bytes =
      std::min(slot.verdict.length_bytes - slot.done_bytes, range_max(operation.op));
  operation.start(device_);
}

/// A part of each long range per turn.
bool NbdServer::continue_ranges() {
  if (ranges_.empty()) return false;
  base::IntrusiveList<Slot> now;
  now.take_all(ranges_);
  while (Slot* const slot = now.pop_front()) start(*slot);
  return true;
}

void NbdServer::operation_done(DeviceOp& operation, Errc status) {
  auto& slot = *static_cast<Slot*>(operation.context);
  NbdServer& self = *slot.server;
  slot.done_bytes += operation.length_bytes;
  const bool wanted = slot.connection != nullptr || slot.outlives;
  const bool goes_on = status == Errc::kOk && wanted && !self.stopped_ &&
                       slot.done_bytes < slot.verdict.length_bytes;
  if (goes_on) return self.ranges_.push_back(slot);
  if (!self.latency_.empty()) {
    // Not the turn's time: a memory device ends within it.
    const auto kind = static_cast<size_t>(latency_kind(operation.op));
    self.latency_[kind].record(self.reactor_.host().now_ns() - slot.began_ns);
  }
  if (status != Errc::kOk) base::add_shared(self.statistics_.errors, 1);
  if (operation.lent()) base::add_shared(self.statistics_.lent_reads, 1);
  slot.failed_flush = status != Errc::kOk && operation.op == BlockOp::kFlush;
  self.answer(slot, nbd_error(status), words_for(status));
}

/// Who asks from now on knows of a failure that has just been sent.
void NbdServer::look_behind_failed_flush(Connection& connection) {
  const bool empty = connection.emptied.look(device_, connection.socket.get());
  if (empty && connection.input.empty()) connection.quiet = connection.emptied;
}

void NbdServer::answer(Slot& slot, uint32_t error, std::string_view words) {
  if (slot.connection == nullptr) return release(slot);
  Connection& connection = *slot.connection;
  const bool data = error == 0 && slot.verdict.op == BlockOp::kRead;
  make_nbd_answer(slot.verdict, error, words, connection.terms.structured, slot.head);
  slot.answer_bytes = slot.head.length + (data ? slot.verdict.length_bytes : 0);
  slot.sent_bytes = 0;
  connection.answer_bytes += slot.answer_bytes;
  ++connection.answer_count;
  if (connection.leaving) connection.active_ns = reactor_.now_ns();
  connection.answers.push_back(slot);
  const bool early =
      connection.answer_count >= kSendEarlyAnswers || connection.answer_bytes >= kSendEarlyBytes;
  if (early) (void)send(connection);
}

bool NbdServer::send(Connection& connection) {
  bool worked = false;
  while (connection.socket.valid() && !connection.blocked && !connection.answers.empty()) {
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
