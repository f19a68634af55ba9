// Queue: how an answer goes back. No allocation, no lock, no system call beyond what the device
// needs.
#include <array>

#include "base/single_writer.h"
#include "trs/server/path.h"
#include "trs/server/queue.h"
#include "trs/server/server_impl.h"
#include "trs/server/session.h"

namespace braid::trs::server {

using base::Errc;

namespace {

/// The work requests of one answer, in the order in which they go. Their SGEs are the caller's.
class AnswerChain {
 public:
  vhca::SendWr& add(ibv_wr_opcode opcode) {
    vhca::SendWr& wr = requests_[count_++];
    wr = {};
    wr.opcode = opcode;
    return wr;
  }
  vhca::SendWr& add_write(vhca::Sge& piece, uint64_t address, uint32_t key) {
    vhca::SendWr& wr = add(IBV_WR_RDMA_WRITE);
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = key;
    return wr;
  }
  void add(const vhca::SendWr& wr) { requests_[count_++] = wr; }
  std::span<vhca::SendWr> requests() { return std::span(requests_).first(count_); }

 private:
  std::array<vhca::SendWr, Queue::kAnswerSends> requests_;  // as far as count_
  size_t count_ = 0;
};

}  // namespace

void Request::answer(Errc result, const DataBuffer* from) {
  BRAID_ASSERT(state == State::kAtUser);
  status = result;
  source = {};
  if (direction == Direction::kRead && result == Errc::kOk && !data.empty()) {
    const auto length = static_cast<uint32_t>(data.size());
    source = from != nullptr ? *from : DataBuffer{nullptr, data.data(), length};
    BRAID_ASSERT(source.length_bytes == length);
  }
  slice->ended(*this);
}

void Queue::answer(Request& request) {
  request.unlink();
  request.sent_bytes = 0;
  if (closing_ || !connection_->open()) {
    request.give_back();
  } else if (request.repeats && request.connection != number()) {
    request.follows = false;
    give_to_user(request);
  } else if (waits_for_turn(request)) {
    request.state = Request::State::kWaiting;
    keep_long(request);
  } else if (waiting_.empty() && room_for_answer()) {
    send_answer(request);
  } else {
    request.state = Request::State::kWaiting;
    request.queue = this;
    waiting_.push_back(request);
  }
}

/// A device in software copies what it sends, here and now. A Braid client checks the length of
/// what comes with the answer, which is that of all data or of an answer slot: without these there
/// are no parts.
bool Queue::waits_for_turn(const Request& request) const {
  const uint32_t bytes = request.source.length_bytes;
  if (bytes == 0 || worker_.takes_bytes(bytes)) return false;
  return bytes <= kPartBytes || path_.answers().has_value() || !session_.braid_peer();
}

bool Queue::has_part() {
  if (long_.empty() || closing_ || !connection_->open()) return false;
  return long_.front()->state == Request::State::kArriving || room_for_answer();
}

void Queue::do_part() {
  Request& request = *long_.front();
  if (request.state == Request::State::kArriving) return copy_part(request);
  send_part(request);
}

void Queue::send_part(Request& request) {
  const uint32_t left_bytes = request.source.length_bytes - request.sent_bytes;
  if (left_bytes <= kPartBytes || request.deferred_to != nullptr) {
    return send_waiting(let_long_go());
  }
  AnswerChain chain;
  vhca::Sge data = data_to_send(request);
  data.length = kPartBytes;
  chain.add_write(data, request.target.address + request.sent_bytes, request.target.key);
  request.sent_bytes += kPartBytes;
  base::add_shared(served_.read_bytes, kPartBytes);
  connection_->post(chain.requests());
}

/// What of a read's data has not been sent yet.
vhca::Sge Queue::data_to_send(const Request& request) const {
  const DataBuffer& source = request.source;
  return {reinterpret_cast<uint64_t>(source.address) + request.sent_bytes,
          source.length_bytes - request.sent_bytes,
          source.mr != nullptr ? path_.lent_lkey(*source.mr) : path_.chunk_lkey()};
}

/// One RDMA WRITE_WITH_IMM: the data of a read, if there is any, and the status. The data goes
/// ahead, in a write of its own, where more has to be said after it: the invalidation of its key,
/// which the client asked for, or an answer slot. The chunk is the client's as soon as it is
/// posted: a request for it can only be an answer to this.
void Queue::send_answer(Request& request) {
  const bool with_data = request.source.length_bytes > 0;
  const bool invalidate = request.invalidate && path_.invalidates();
  const bool needs_slot =
      request.status != Errc::kOk || request.has_answer_words || request.sent_bytes > 0;
  const bool with_slot = path_.answers() && needs_slot;
  AnswerChain chain;
  if (path_.guard() == ChunkGuard::kWindows) chain.add(open_window(request.index));
  vhca::SendWr* last = nullptr;
  vhca::Sge data{}, said{};
  if (with_data) {
    data = data_to_send(request);
    last = &chain.add_write(data, request.target.address + request.sent_bytes, request.target.key);
  }
  if (invalidate) {
    vhca::SendWr& wr = chain.add(IBV_WR_SEND_WITH_INV);
    wr.invalidate_rkey = request.target.key;
  }
  wire::AnswerSlot slot;
  if (with_slot) {
    fill_slot(request, slot);
    said = {reinterpret_cast<uint64_t>(&slot), sizeof(slot), 0};
    last = &chain.add_write(said, path_.answers()->address + request.index * sizeof(slot),
                            path_.answers()->key);
    last->send_flags = IBV_SEND_INLINE;
  } else if (invalidate || !with_data) {
    last = &chain.add(IBV_WR_RDMA_WRITE);
  }
  last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  const auto sys_errno = static_cast<uint32_t>(base::errno_from_errc(request.status));
  last->imm_data = to_network(
      encode_answer({request.index, with_slot ? kSeeAnswerSlot : sys_errno, invalidate}));
  count(request);
  request.give_back();
  connection_->post(chain.requests());  // on failure the path is closed, and the client asks again
}

void Queue::count(const Request& request) {
  if (request.status != Errc::kOk) return base::add_shared(served_.errors, 1);
  const bool read = request.direction == Direction::kRead;
  base::add_shared(read ? served_.reads : served_.writes, 1);
  const size_t bytes = request.data.size() - request.sent_bytes;  // the others are counted
  base::add_shared(read ? served_.read_bytes : served_.write_bytes, bytes);
}

ServedStatistics Queue::statistics() const {
  ServedStatistics told;
  told.reads = base::read_shared(served_.reads);
  told.read_bytes = base::read_shared(served_.read_bytes);
  told.writes = base::read_shared(served_.writes);
  told.write_bytes = base::read_shared(served_.write_bytes);
  told.errors = base::read_shared(served_.errors);
  told.copied_bytes = base::read_shared(served_.copied_bytes);
  return told;
}

void Queue::fill_slot(const Request& request, wire::AnswerSlot& slot) {
  slot.status = wire::status_code(request.status);
  slot.sequence = request.sequence;
  if (!request.has_answer_words) return;
  slot.flags = uint32_t{wire::kHasWords};
  slot.words[0] = request.answer_words[0];
  slot.words[1] = request.answer_words[1];
}

}  // namespace braid::trs::server
