// The data path: a request from TRS to the backend, and its answer.
//
// Refusals and what they are on the wire (TRS sends errno_from_errc):
//   malformed message, wrong direction, length against data   kInvalid       EINVAL
//   unknown device id (closed, or of an earlier session)      kDisconnected  ENOTCONN
//   change of a device opened ro                              kReadOnly      EROFS
//   past the end                                              kOutOfRange    ERANGE
//   operation that the backend cannot do                      kNotSupported  EOPNOTSUPP
//   everything else is the backend's own status
#include "bnbd/server/server_impl.h"

namespace braid::bnbd::server {

using base::Errc;

void ServerImpl::request(trs::ServerRequest& request) {
  auto* const session = static_cast<Session*>(request.session->context);
  BRAID_ASSERT(session != nullptr);
  SlotPool* const pool = session->pool(request.reactor);
  RequestSlot* const slot = pool == nullptr ? nullptr : pool->take();
  if (slot == nullptr) {
    request.answer(Errc::kBusy);  // more requests than the session has chunks
    return;
  }
  slot->request = &request;
  slot->device = nullptr;
  if (request.reactor == &home_) {
    dispatch(*slot);
  } else {
    slot->run = &ServerImpl::message_at_home;
    home_.post(*slot);
  }
}

void ServerImpl::message_at_home(base::Message& message) {
  auto& slot = static_cast<RequestSlot&>(message);
  ServerImpl& server = slot.pool->server;
  ++server.statistics_.handed_over;
  if (!server.door_.keeps_handed_over(slot)) server.dispatch(slot);
}

void ServerImpl::dispatch(RequestSlot& slot) {
  ++statistics_.requests[slot.pool->index];
  if (slot.request->follows) slot.pool->session.answer_seen(*slot.request);
  auto type = wire::request_type(slot.request->user_header);
  if (!type.ok()) return refuse(slot, Errc::kInvalid, type.error().message());
  if (*type == wire::MessageType::kIo) return begin_io(slot);
  if (!door_.keeps_control(slot)) do_control(slot);
}

void ServerImpl::do_control(RequestSlot& slot) {
  switch (wire::request_type(slot.request->user_header).value()) {
    case wire::MessageType::kSessionInfo:
      return session_info(slot);
    case wire::MessageType::kNews:
      return session_news(slot);
    case wire::MessageType::kOpen:
      slot.control = open(slot);
      return slot.control.start();
    case wire::MessageType::kClose:
      slot.control = close(slot);
      return slot.control.start();
    case wire::MessageType::kIo:
    case wire::MessageType::kSessionInfoAnswer:
    case wire::MessageType::kOpenAnswer:
    case wire::MessageType::kNewsAnswer:
      break;
  }
  refuse(slot, Errc::kInvalid, "an answer where a request belongs");
}

void ServerImpl::begin_io(RequestSlot& slot) {
  wire::Io io;
  if (const char* why = wire::parse_io(slot.request->user_header, io)) {
    return refuse(slot, Errc::kInvalid, why);
  }
  SessionDevice* const device = slot.pool->session.find(io.device_id);
  if (device == nullptr) return refuse(slot, Errc::kDisconnected, "unknown device id");
  slot.device = device;
  if (const char* why = fill_block(slot, io)) return refuse(slot, Errc::kInvalid, why);
  BlockDevice& backend = *device->exported.device;
  const bool changes = slot.block.op != BlockOp::kRead && slot.block.op != BlockOp::kFlush;
  if (changes && device->mode == wire::AccessMode::kReadOnly) {
    return refuse(slot, Errc::kReadOnly, "a change of a device that is open for reading");
  }
  if (const Errc status = check(backend.info(), slot.block); status != Errc::kOk) {
    return refuse(slot, status, "outside what the device allows");
  }
  slot.flushes_failed = device->exported.failures->flushes;
  ++device->in_flight;
  if (door_.keeps_long(slot)) return;
  backend.submit(slot.block);
}

/// A write to memory: what came is moved there, each byte once. Other devices read the buffer when
/// and as often as they like, and control messages are looked at.
bool ServerImpl::moves_data(const trs::ServerSession& session, const base::Reactor& reactor,
                            std::span<const std::byte> user_header) {
  if (&reactor != &home_) return false;
  wire::Io io;
  if (wire::parse_io(user_header, io) != nullptr) return false;
  if (wire::operation_of(io) != wire::Operation::kWrite) return false;
  const SessionDevice* const device = static_cast<Session*>(session.context)->find(io.device_id);
  return device != nullptr && device->exported.works_inside_submit;
}

/// The block request of an IO message; null, or what is wrong. Lengths are those of the data that
/// came or was asked for; the message's own must agree.
const char* ServerImpl::fill_block(RequestSlot& slot, const wire::Io& io) const {
  const trs::ServerRequest& request = *slot.request;
  const std::span<std::byte> data = request.data;
  BlockRequest& block = slot.block;
  const uint32_t rw = io.operation_flags;
  block.offset_bytes = io.sector * wire::kSectorBytes;
  block.length_bytes = io.length_bytes;
  block.force_unit_access = (rw & wire::kFlagForceUnitAccess) != 0;
  block.preflush = (rw & wire::kFlagPreflush) != 0;
  block.no_unmap = (rw & wire::kFlagNoUnmap) != 0;
  const bool has_priority = slot.pool->session.version >= wire::kVersionMajor;
  block.priority = has_priority ? wire::heeded_priority(io.priority) : uint16_t{0};
  block.may_lend = false;
  block.lent = nullptr;
  block.buffer = {nullptr, data.data()};
  block.context = &slot;
  block.done = &ServerImpl::io_done;
  const bool reads = request.direction == trs::Direction::kRead;
  const wire::Operation operation = wire::operation_of(io);
  // A flush has no data, so either direction will do: Braid's goes as a write, Linux's as a read.
  if (reads != (operation == wire::Operation::kRead) && operation != wire::Operation::kFlush)
    return "operation against direction";
  if (operation == wire::Operation::kRead || operation == wire::Operation::kWrite) {
    if (data.size() != io.length_bytes) return "length is not that of the data";
  } else if (!data.empty()) {
    return "data with an operation that has none";
  }
  switch (operation) {
    case wire::Operation::kRead:
      block.op = BlockOp::kRead;
      block.may_lend = slot.device->lends;
      return nullptr;
    case wire::Operation::kWrite:
      block.op = BlockOp::kWrite;
      if (io.length_bytes > 0 || !block.preflush) return nullptr;
      [[fallthrough]];  // a write of nothing with a preflush is a flush
    case wire::Operation::kFlush:
      block.op = BlockOp::kFlush;
      block.offset_bytes = block.length_bytes = 0;
      return nullptr;
    case wire::Operation::kDiscard:
      block.op = BlockOp::kDiscard;
      return nullptr;
    case wire::Operation::kWriteZeroes:
      block.op = BlockOp::kWriteZeroes;
      return nullptr;
    case wire::Operation::kSecureErase:
      block.op = BlockOp::kSecureErase;
      return nullptr;
  }
  return "unknown operation";
}

/// On the wire some codes speak of the path, or say "unknown device, ask again": a disk's own
/// ENOTCONN or ECANCELED (a dead file system behind an export) must not pass for them.
Errc ServerImpl::disk_status(Errc status) {
  switch (status) {
    case Errc::kDisconnected:
    case Errc::kCanceled:
    case Errc::kProtocol:
    case Errc::kWouldBlock:
    case Errc::kStale:
      return Errc::kIo;
    default:
      return status;
  }
}

void ServerImpl::io_done(BlockRequest& block, Errc status) {
  status = disk_status(status);
  auto& slot = *static_cast<RequestSlot*>(block.context);
  SessionDevice& device = *slot.device;
  ServerImpl& server = slot.pool->server;
  if (server.exports_.holds_back(slot, status)) return;
  if (status != Errc::kOk && server.home_.host().mutant("disk-error-hidden")) status = Errc::kOk;
  if (block.op == BlockOp::kFlush && server.home_.host().mutant("failed-flush-hidden"))
    status = Errc::kOk;
  if (block.op == BlockOp::kFlush || block.preflush || block.force_unit_access)
    status = server.exports_.settle_flush(slot, status);
  device.statistics.count(block, status);
  if (block.lent != nullptr && status == Errc::kOk) {
    slot.source.mr = device.exported.lendable.get();
    slot.source.address = block.lent;
    slot.source.length_bytes = static_cast<uint32_t>(block.length_bytes);
  }
  if (--device.in_flight == 0) {
    device.idle.notify_all();
    if (device.left) server.release(device.session.take_retired(device));
  }
  server.finish(slot, status);
}

void ServerImpl::finish(RequestSlot& slot, Errc status) {
  slot.status = status;
  if (&slot.pool->reactor == &home_) {
    answer(slot);
  } else {
    slot.run = &ServerImpl::message_back;
    slot.pool->reactor.post(slot);
  }
}

void ServerImpl::message_back(base::Message& message) {
  answer(static_cast<RequestSlot&>(message));
}

/// On the request's reactor. The slot is free before TRS hears of it, as the answer may bring the
/// next request or the session's end.
void ServerImpl::answer(RequestSlot& slot) {
  trs::ServerRequest& request = *slot.request;
  const Errc status = slot.status;
  const trs::DataBuffer source = std::exchange(slot.source, {});
  slot.request = nullptr;
  slot.device = nullptr;
  slot.pool->free.push_back(slot);
  request.answer(status, source.mr != nullptr ? &source : nullptr);
}

void ServerImpl::refuse(RequestSlot& slot, Errc status, std::string_view why) {
  ++statistics_.requests_refused;
  const Session& session = slot.pool->session;
  refusals_.of(session.client())
      .warning("session '{}' from {}: request refused ({}): {}", session.name(), session.peer(),
               to_string(status), why);
  finish(slot, status);
}

}  // namespace braid::bnbd::server
