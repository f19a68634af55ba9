// Queue: the data path. No allocation, no lock, no system call beyond what the device needs.
#include <algorithm>
#include <cstring>

#include "trs/client/queue.h"
#include "trs/client/session.h"

namespace braid::trs::client {

using base::Errc;
using base::make_error;

Permit Queue::acquire() {
  if (!permits_) return {};
  const std::optional<uint32_t> index = permits_->acquire();
  return index ? Permit(*this, *index) : Permit();
}

void Queue::wait_for_permit(PermitWaiter& waiter) {
  BRAID_ASSERT(!waiter.linked());
  waiters_.push_back(waiter);
}

void Queue::give_back(uint32_t index) {
  permits_->release(index);
}

/// As many waiters as there are permits, in turn; who takes none loses his turn.
bool Queue::serve_waiters() {
  uint32_t turns = permits_ ? permits_->free_count() : 0;
  bool did = false;
  while (turns-- > 0 && permits_->free_count() > 0) {
    PermitWaiter* const waiter = waiters_.pop_front();
    if (waiter == nullptr) break;
    waiter->permit_free(*waiter);
    did = true;
  }
  return did;
}

void Queue::submit(ClientRequest& request) {
  BRAID_ASSERT(request.permit && permits_->owns(request.permit.index()));
  ++statistics_.in_flight;
  request.outcome = Errc::kOk;
  const bool fits = request.user_header.size() <= wire::kUserHeaderBytesMax &&
                    request.data.length_bytes <= session_.limits().max_io_bytes &&
                    (request.data.length_bytes == 0 || request.data.mr != nullptr);
  if (stopped_) {  // nobody polls any more
    request.outcome = Errc::kCanceled;
    finish(request, request.outcome);
  } else if (!fits || refuse_ != Errc::kOk) {
    request.outcome = fits ? refuse_ : Errc::kInvalid;
    ending_.push_back(request);
  } else if (up_ && held_.empty() && connection_->can_send()) {
    put_on_wire(request);
  } else if (service_ && !up_) {
    request.outcome = Errc::kDisconnected;
    ending_.push_back(request);
  } else {
    hold(request);
  }
}

void Queue::hold(ClientRequest& request) {
  ++statistics_.held;
  held_.push_back(request);
}

bool Queue::cancel(ClientRequest& request) {
  if (table_[permits_->slot_of(request.permit.index())] == &request) return false;
  if (request.outcome != Errc::kOk) return true;  // is ending already
  --statistics_.held;
  request.outcome = Errc::kCanceled;
  request.unlink();
  ending_.push_back(request);
  return true;
}

/// User header and message; their length. The message's place is right behind the user header.
uint32_t Queue::fill_header(const ClientRequest& request, std::byte* at) const {
  const auto user_bytes = static_cast<uint32_t>(request.user_header.size());
  if (user_bytes > 0) std::memcpy(at, request.user_header.data(), user_bytes);
  std::byte* const message = at + user_bytes;
  if (request.direction == Direction::kWrite) {
    wire::WriteMsg write;
    write.usr_len = static_cast<uint16_t>(user_bytes);
    std::memcpy(message, &write, sizeof(write));
    return user_bytes + static_cast<uint32_t>(sizeof(write));
  }
  wire::ReadMsg read;
  read.usr_len = static_cast<uint16_t>(user_bytes);
  if (request.data.length_bytes == 0) {
    std::memcpy(message, &read, sizeof(read));
    return user_bytes + static_cast<uint32_t>(sizeof(read));
  }
  read.sg_cnt = uint16_t{1};
  wire::SgDescriptor target;
  target.address = reinterpret_cast<uint64_t>(request.data.address);
  target.key = request.data.mr->rkey;
  target.length = request.data.length_bytes;
  std::memcpy(message, &read, sizeof(read));
  std::memcpy(message + sizeof(read), &target, sizeof(target));
  return user_bytes + wire::kMessageBytesMax;
}

void Queue::put_on_wire(ClientRequest& request) {
  const uint32_t index = request.permit.index();
  in_flight_.push_back(request);
  table_[permits_->slot_of(index)] = &request;

  const uint32_t data_bytes = request.data.length_bytes;
  const bool carries_data = request.direction == Direction::kWrite && data_bytes > 0;
  std::byte small[Connection::kInlineBytes];
  const bool fits_inline =
      !carries_data && request.user_header.size() + wire::kMessageBytesMax <= sizeof(small);
  std::byte* const header = fits_inline ? small : connection_->next_header();
  const uint32_t header_bytes = fill_header(request, header);
  vhca::Sge pieces[2];
  vhca::Sge* end = pieces;
  if (carries_data) {
    *end++ = {reinterpret_cast<uint64_t>(request.data.address), data_bytes, request.data.mr->lkey};
  }
  *end++ = {reinterpret_cast<uint64_t>(header), header_bytes, connection_->header_lkey()};

  const wire::ChunkRegion& chunk = map_->chunks[index];
  const auto user_bytes = static_cast<uint32_t>(request.user_header.size());
  vhca::SendWr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.sg_list = pieces;
  wr.num_sge = static_cast<int>(end - pieces);
  wr.wr.rdma.remote_addr = chunk.address + (carries_data ? 0 : data_bytes);
  wr.wr.rdma.rkey = chunk_keys_[permits_->slot_of(index)];
  wr.imm_data = to_network(map_->codec.encode({index, data_bytes + user_bytes}));
  if (fits_inline) wr.send_flags = IBV_SEND_INLINE;
  ++statistics_.messages_sent;
  connection_->post(wr);  // on failure the path goes down, and the request is kept with the others
}

bool Queue::send_held() {
  bool did = false;
  while (up_ && connection_->can_send()) {
    ClientRequest* const request = held_.pop_front();
    if (request == nullptr) break;
    --statistics_.held;
    put_on_wire(*request);
    did = true;
  }
  return did;
}

bool Queue::end_refused() {
  bool did = false;
  while (ClientRequest* const request = ending_.pop_front()) {
    finish(*request, request->outcome);
    did = true;
  }
  return did;
}

void Queue::finish(ClientRequest& request, Errc status) {
  --statistics_.in_flight;
  request.permit.release();
  request.done(request, status);
}

void Queue::received_imm(Connection& connection, uint32_t value, uint32_t bytes) {
  count_received();
  if (poisoned_) return;
  const Imm imm = decode_imm(value);
  switch (imm.type) {
    case ImmType::kAnswer:
    case ImmType::kAnswerInvalidated:
      answered(decode_answer(imm.payload), bytes);
      return;
    case ImmType::kHeartbeat:
      if (connection.open() && connection.can_send()) {
        connection.post_imm(encode_imm({ImmType::kHeartbeatAck, 0}));
      }
      return;
    case ImmType::kHeartbeatAck:
      return;  // counted, which is all it is for
    case ImmType::kRequest:
      break;
  }
  poison(make_error(Errc::kProtocol, "immediate {:#010x} is none for a client", value));
}

/// Nothing more of the peer is believed.
void Queue::poison(base::Error why) {
  poisoned_ = true;
  trouble(why.with("connection {}", cid_));
}

/// A server that gives its chunks new keys answers so.
void Queue::received_answer(Connection&, uint32_t value, std::span<const std::byte> message) {
  count_received();
  if (poisoned_) return;
  const Imm imm = decode_imm(value);
  if (imm.type != ImmType::kAnswer && imm.type != ImmType::kAnswerInvalidated) {
    return poison(
        make_error(Errc::kProtocol, "immediate {:#010x} with a new key is no answer", value));
  }
  const AnswerImm answer = decode_answer(imm.payload);
  auto key = wire::parse_rkey_rsp(message, answer.request_id);
  if (!key.ok()) return poison(key.error());
  // Before the answer is: its permit may be used again at once.
  if (permits_ && permits_->owns(answer.request_id) && !chunk_keys_.empty()) {
    chunk_keys_[permits_->slot_of(answer.request_id)] = *key;
  }
  answered(answer, 0);
}

void Queue::answered(AnswerImm answer, uint32_t bytes) {
  ClientRequest* const request = permits_ && permits_->owns(answer.request_id)
                                     ? table_[permits_->slot_of(answer.request_id)]
                                     : nullptr;
  if (request == nullptr) {
    poisoned_ = true;
    trouble(make_error(Errc::kProtocol,
                       "connection {}: answer to request {}, which is not in "
                       "flight there",
                       cid_, answer.request_id));
    return;
  }
  const bool read = request->direction == Direction::kRead;
  const uint32_t due_bytes = read && answer.sys_errno == 0 ? request->data.length_bytes : 0;
  if (map_->braid_peer && bytes != due_bytes) {
    poisoned_ = true;
    trouble(make_error(Errc::kProtocol,
                       "connection {}: answer to request {} carries {} bytes, not "
                       "{}",
                       cid_, answer.request_id, bytes, due_bytes));
    return;
  }
  table_[permits_->slot_of(answer.request_id)] = nullptr;
  request->unlink();
  if (answer.sys_errno == 0) {
    ++(read ? statistics_.reads : statistics_.writes);
    (read ? statistics_.read_bytes : statistics_.write_bytes) += request->data.length_bytes;
  }
  finish(*request, base::errc_from_errno(static_cast<int>(answer.sys_errno)));
}

}  // namespace braid::trs::client
