// Queue: the data path: a request comes out of its chunk, an answer goes back. No allocation, no
// lock, no system call beyond what the device needs (a peer that breaks the protocol apart).
#include <fmt/format.h>

#include "trs/server/queue.h"
#include "trs/server/server_impl.h"
#include "trs/server/session.h"

namespace braid::trs::server {

using base::Errc;

void Request::answer(Errc result, const DataBuffer* from) {
  queue->answer(*this, result, from);
}

void Queue::received_imm(Connection& connection, uint32_t value, uint32_t) {
  received_.store(received_count() + 1, std::memory_order_relaxed);
  if (closing_) return;
  const Imm imm = decode_imm(value);
  switch (imm.type) {
    case ImmType::kRequest:
      request_arrived(session_.codec().decode(imm.payload));
      return;
    case ImmType::kHeartbeat:
      if (connection.open() && connection.can_send()) {
        connection.post_imm(encode_imm({ImmType::kHeartbeatAck, 0}));
      }
      return;
    case ImmType::kHeartbeatAck:
      return;
    case ImmType::kAnswer:
    case ImmType::kAnswerInvalidated:
      break;
  }
  violation("immediate of an unknown type",
            fmt::format("immediate {:#010x} is none for a server", value));
}

const char* Queue::check_request(const RequestImm& imm) const {
  if (!open_) return "came before the session was open, or after it broke the protocol";
  if (imm.chunk >= session_.queue_depth()) return "names a chunk that does not exist";
  const std::optional<uint16_t> owner = session_.owner_of(imm.chunk);
  if (owner && *owner != cid_) return "came by a connection that does not own its chunk";
  if (session_.request_of(imm.chunk)->state != Request::State::kFree) {
    return "names a chunk whose request is still running";
  }
  return nullptr;
}

void Queue::request_arrived(RequestImm imm) {
  const char* wrong = check_request(imm);
  wire::ParsedRequest parsed;
  if (wrong == nullptr) {
    wrong =
        wire::parse_request(session_.chunk(imm.chunk), imm.offset_bytes, session_.max_io_bytes(),
                            session_.request_of(imm.chunk)->header, parsed);
  }
  if (wrong != nullptr) {
    violation(wrong, fmt::format("request for chunk {}, message at {}: {}", imm.chunk,
                                 imm.offset_bytes, wrong));
    return;
  }
  Request& request = *session_.request_of(imm.chunk);
  request.state = Request::State::kAtUser;
  request.queue = this;
  request.target = parsed.target;
  request.direction = parsed.direction;
  request.user_header = std::span(request.header).first(parsed.user_header_bytes);
  request.data = session_.chunk(imm.chunk).first(parsed.data_bytes);
  request.session = &session_;
  request.reactor = &worker_.reactor();
  request.context = nullptr;
  count_at_user(1);
  session_.server().user().request(request);
}

void Queue::answer(Request& request, Errc status, const DataBuffer* source) {
  BRAID_ASSERT(request.state == Request::State::kAtUser);
  count_at_user(-1);
  request.status = status;
  request.source = {};
  if (request.direction == Direction::kRead && status == Errc::kOk && !request.data.empty()) {
    request.source = source != nullptr ? *source
                                       : DataBuffer{nullptr, request.data.data(),
                                                    static_cast<uint32_t>(request.data.size())};
    BRAID_ASSERT(request.source.length_bytes == request.data.size());
  }
  if (closing_ || !connection_->open()) {
    end(request);
    report_quiet();
  } else if (waiting_.empty() && connection_->can_send()) {
    send_answer(request);
  } else {
    request.state = Request::State::kWaiting;
    waiting_.push_back(request);
  }
}

/// One RDMA WRITE_WITH_IMM: the data of a read, if there is any, and the status. The chunk is the
/// client's as soon as it is posted: a request for it can only be an answer to this.
void Queue::send_answer(Request& request) {
  const DataBuffer& source = request.source;
  vhca::Sge piece{};
  vhca::SendWr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = to_network(
      encode_answer({request.index, static_cast<uint32_t>(base::errno_from_errc(request.status))}));
  if (source.length_bytes > 0) {
    piece.addr = reinterpret_cast<uint64_t>(source.address);
    piece.length = source.length_bytes;
    piece.lkey = source.mr != nullptr ? session_.lent_lkey(*source.mr) : session_.chunk_lkey();
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = request.target.address;
    wr.wr.rdma.rkey = request.target.key;
  }
  end(request);
  connection_->post(wr);  // on failure the session is closed, and the client asks again
}

void Queue::end(Request& request) {
  request.state = Request::State::kFree;
}

}  // namespace braid::trs::server
