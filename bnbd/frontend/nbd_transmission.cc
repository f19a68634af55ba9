// NbdServer: from a stream's bytes to requests.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "bnbd/frontend/nbd_server.h"

namespace braid::bnbd {

namespace {

constexpr int kRequestsPerRound = 64;
// A write of more than this goes to its slot without a stay in the input.
constexpr uint32_t kLongWriteBytes = 32 << 10;

/// Whether a socket of which nothing more can be received still sends.
bool sends(int socket_fd) {
  struct pollfd state = {.fd = socket_fd, .events = 0, .revents = 0};
  return ::poll(&state, 1, 0) == 0;
}

}  // namespace

bool NbdServer::receive(Connection& connection) {
  connection.more = false;
  if (!connection.socket.valid() || !connection.readable || !may_receive(connection)) return false;
  // What is in the input comes before what is in the socket.
  if (connection.incoming != nullptr && !connection.input.empty()) return false;
  struct iovec pieces[2];
  int count = 0;
  size_t asked = 0;
  const auto add = [&](std::byte* to, size_t length) {
    pieces[count++] = {to, length};
    asked += length;
  };
  bool whole = true;  // what is to be received before the next request
  if (Slot* const slot = connection.incoming) {
    const bool skips = slot->skips();
    const size_t part = part_bytes(*slot);
    const size_t left = part - connection.received_bytes;
    // What is skipped may be longer than a payload: it is received over itself.
    const size_t length = std::min<size_t>(left, pool_->payload_bytes());
    std::byte* const to = skips ? slot->payload : slot->operation.buffer.address;
    add(to + (skips ? 0 : connection.received_bytes), length);
    whole = length == left && slot->done_bytes + part == slot->verdict.payload_bytes;
  }
  const size_t payload = asked;
  if (whole) {
    const std::span<std::byte> room = connection.input.room();
    // After a long write comes another one, as a rule: its payload shall not stay in the input.
    const bool head_only = connection.long_writes && connection.input.empty();
    const size_t length = head_only ? sizeof(NbdRequest) : room.size();
    if (length > 0) add(room.data(), length);
  }
  if (asked == 0) return false;
  struct msghdr message = {};
  message.msg_iov = pieces;
  message.msg_iovlen = static_cast<size_t>(count);
  QuietMoment before;
  before.is_now(device_);
  const ssize_t result = ::recvmsg(connection.socket.get(), &message, MSG_DONTWAIT);
  if (result <= 0) {
    if (result < 0 && errno == EAGAIN) connection.emptied = before;
    if (result < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    return receive_failed(connection, result == 0);
  }
  const auto got = static_cast<size_t>(result);
  connection.active_ns = reactor_.now_ns();
  connection.more = got == asked;
  if (!connection.more) connection.emptied = before;
  connection.received_bytes += std::min(got, payload);
  if (got > payload) connection.input.received(got - payload);
  return true;
}

/// `finished`: by the client's end of what it sends. Who still listens gets what it is owed.
bool NbdServer::receive_failed(Connection& connection, bool finished) {
  const bool owed = connection.slots > 0 || !connection.input.empty();
  if (finished && owed && sends(connection.socket.get())) return connection.finished = true;
  // Many clients just go when they have all their answers. The kernel does not.
  const bool rests = options_.connections_max > 0 && !owed;
  end(connection, rests ? nullptr : "the client closed the connection");
  return false;
}

bool NbdServer::parse(Connection& connection) {
  bool worked = false;
  for (int i = 0; i < kRequestsPerRound && taking_ && connection.socket.valid(); ++i) {
    if (connection.leaving) break;
    const bool did =
        connection.incoming != nullptr ? parse_payload(connection) : begin_request(connection);
    if (!did) break;
    worked = true;
  }
  return worked;
}

/// What there is makes no whole request. False, for callers that have done nothing.
bool NbdServer::wait_for_more(Connection& connection) {
  if (!connection.finished) return false;
  if (connection.incoming == nullptr && connection.input.empty()) {
    leave(connection);
  } else {
    end(connection, "the client closed the connection in the middle of a request");
  }
  return false;
}

/// Of what a request brings: as much as the device is given at once, all of what nobody wants.
size_t NbdServer::part_bytes(const Slot& slot) const {
  const size_t left = slot.verdict.payload_bytes - slot.done_bytes;
  return slot.skips() ? left : std::min<size_t>(left, part_max(BlockOp::kWrite));
}

/// True: a part of the payload is whole.
bool NbdServer::parse_payload(Connection& connection) {
  Slot& slot = *connection.incoming;
  if (slot.at_device) {
    // What follows the present part may be in the input.
    const uint64_t behind =
        slot.verdict.payload_bytes - slot.done_bytes - slot.operation.length_bytes;
    return connection.input.pending().size() < behind ? wait_for_more(connection) : false;
  }
  const std::span<const std::byte> pending = connection.input.pending();
  const size_t left = part_bytes(slot) - connection.received_bytes;
  const size_t length = std::min(left, pending.size());
  if (length > 0) {
    if (!slot.skips()) {
      std::memcpy(slot.operation.buffer.address + connection.received_bytes, pending.data(),
                  length);
    }
    connection.input.consume(length);
    connection.received_bytes += length;
  }
  if (length < left) return wait_for_more(connection);
  payload_done(connection);
  return true;
}

void NbdServer::payload_done(Connection& connection) {
  Slot& slot = *connection.incoming;
  slot.at_device = slot.done_bytes + connection.received_bytes < slot.verdict.payload_bytes;
  connection.received_bytes = 0;
  if (!slot.at_device) connection.incoming = nullptr;
  if (slot.skips()) {
    answer_skipped(slot);
  } else {
    run(slot);
  }
}

/// What its client has not sent to the end; the device has the slot for as long as it has a part.
void NbdServer::drop_incoming(Connection& connection) {
  Slot* const slot = std::exchange(connection.incoming, nullptr);
  if (slot != nullptr && !slot->at_device) release(*slot);
}

/// A whole request is there, and a slot for it: of those that there may be in the end it has its
/// share, and one of those that are made already is free.
bool NbdServer::may_begin(const Connection& connection) const {
  if (connection.incoming != nullptr || connection.leaving) return false;
  if (connection.input.pending().size() < sizeof(NbdRequest)) return false;
  if (pool_->empty() || is_others_last(connection)) return false;
  return shares_.may_take(connection.slots, pool_->most() - pool_->in_use());
}

/// The last slot, while more are to be made, is for who has none: there may be no memory for more.
bool NbdServer::is_others_last(const Connection& connection) const {
  const bool others = options_.connections_max > 0 && open_ > 1;
  const bool last = pool_->size() - pool_->in_use() == 1 && pool_->size() < pool_->most();
  return others && last && connection.slots > 0;
}

/// The slot's own memory, or for what is long the device's, if it is memory.
BufferRef NbdServer::buffer_of(const Slot& slot) const {
  const NbdVerdict& verdict = slot.verdict;
  const bool placed = !slot.skips() && verdict.payload_bytes > kLongWriteBytes &&
                      verdict.offset_bytes + verdict.length_bytes <= content_.size();
  if (placed) return {.address = content_.data() + verdict.offset_bytes + slot.done_bytes};
  return {.region = slot.region, .address = slot.payload};
}

bool NbdServer::begin_request(Connection& connection) {
  const std::span<const std::byte> pending = connection.input.pending();
  if (pending.size() < sizeof(NbdRequest)) return wait_for_more(connection);
  if (!may_begin(connection)) {
    if (!std::exchange(connection.starved, true)) base::add_shared(statistics_.starved, 1);
    if (pool_->empty() || is_others_last(connection)) pool_->grow(reactor_);
    return false;
  }
  connection.starved = false;
  const NbdVerdict verdict = parse_nbd_request(pending.first<sizeof(NbdRequest)>(), device_.info(),
                                               pool_->payload_bytes(), connection.terms);
  if (verdict.kind == NbdVerdict::Kind::kBroken) return end(connection, verdict.reason), false;
  if (verdict.kind == NbdVerdict::Kind::kDisconnect) return leave(connection), false;
  connection.input.consume(sizeof(NbdRequest));
  Slot& slot = *pool_->acquire();
  shares_.take(connection.slots++);
  base::add_shared(statistics_.requests, 1);
  slot.connection = &connection;
  slot.verdict = verdict;
  slot.done_bytes = 0;
  slot.status = base::Errc::kOk;
  slot.at_device = slot.more = slot.streams = false;
  slot.outlives = slot.failed_flush = false;
  slot.operation.buffer = buffer_of(slot);
  const bool runs = verdict.kind == NbdVerdict::Kind::kRun;
  if (!runs) base::add_shared(statistics_.refused, 1);
  connection.long_writes = verdict.payload_bytes > kLongWriteBytes;
  if (verdict.payload_bytes != 0) {
    connection.incoming = &slot;
  } else if (runs) {
    run(slot);
  } else {
    answer_skipped(slot);
  }
  return true;
}

void NbdServer::leave(Connection& connection) {
  if (connection.slots == 0) return end(connection, nullptr);
  connection.leaving = true;
  connection.active_ns = reactor_.now_ns();
  sends_no_more(connection);
  if (!leave_timer_.pending()) reactor_.schedule_after(leave_timer_, options_.linger_ns);
}

/// Of those for whom nothing is left to do but to send.
void NbdServer::end_slow_leavers() {
  bool wait = false;
  for (const auto& connection : connections_) {
    if (!connection->socket.valid() || !connection->leaving) continue;
    const bool ready = connection->answer_count == connection->slots;
    if (ready && reactor_.now_ns() - connection->active_ns >= options_.linger_ns) {
      end(*connection, "the client does not take the answers that it waits for");
    } else {
      wait = true;
    }
  }
  if (wait) reactor_.schedule_after(leave_timer_, options_.linger_ns);
}

}  // namespace braid::bnbd
