// Queue: the data path: a request comes out of its chunk, an answer goes back. No allocation, no
// lock, no system call beyond what the device needs (a peer that breaks the protocol apart).
#include <fmt/format.h>

#include <cstring>

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

void Queue::received_imm(Connection& connection, uint32_t value, uint32_t) {
  received_.store(received_count() + 1, std::memory_order_relaxed);
  if (closing_) return;
  const Imm imm = decode_imm(value);
  switch (imm.type) {
    case ImmType::kRequest:
      turn_share_.asked = true;
      request_arrived(session_.codec().decode(imm.payload));
      return;
    case ImmType::kHeartbeat:
      if (connection.open() && room(1)) {
        connection.post_imm(encode_imm({ImmType::kHeartbeatAck, 0}));
      }
      return;
    case ImmType::kHeartbeatAck:
      return;
    case ImmType::kAnswer:
    case ImmType::kAnswerInvalidated:
    case ImmType::kNotice:
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
  if (session_.lends() && session_.is_admin(imm.chunk) != (cid_ == 0)) {
    return "came by a connection that may not use its chunk";
  }
  return nullptr;
}

/// From here on, until Request::give_back, no other thread touches the request. It may have been
/// another connection's.
const char* Queue::take_chunk(Request& request) {
  if (!request.lent) return nullptr;
  uint32_t holder = request.holder.load(std::memory_order_acquire);
  if (holder == (cid_ | Request::kBusy)) return nullptr;  // a path of it is lost
  if ((holder & Request::kBusy) != 0 ||
      !request.holder.compare_exchange_strong(holder, cid_ | Request::kBusy,
                                              std::memory_order_acq_rel)) {
    return "names a chunk whose request is still running at another connection";
  }
  if (holder != cid_) {
    request.slice = &session_.slice(cid_);
    request.reactor = &worker_.reactor();
  }
  return nullptr;
}

void Queue::request_arrived(RequestImm imm) {
  if (const char* const wrong = check_request(imm)) return refuse(imm, wrong);
  if (path_.guard() != ChunkGuard::kWindows) return take(imm);
  if (const char* const wrong = close_window(imm)) refuse(imm, wrong);
}

void Queue::take(RequestImm imm) {
  Request& request = session_.request_of(imm.chunk);
  const char* wrong = take_chunk(request);
  if (wrong == nullptr) {
    wrong = take_request(request, imm);
    if (wrong != nullptr && request.state == Request::State::kFree) request.give_back();
  }
  if (wrong != nullptr) refuse(imm, wrong);
}

void Queue::refuse(RequestImm imm, const char* wrong) {
  violation(wrong, fmt::format("request for chunk {}, message at {}: {}", imm.chunk,
                               imm.offset_bytes, wrong));
}

const char* Queue::take_request(Request& request, const RequestImm& imm) {
  const bool busy = request.state != Request::State::kFree;
  wire::ParsedRequest parsed;
  const char* const wrong =
      wire::parse_request(path_.landing(imm.chunk), imm.offset_bytes, session_.max_io_bytes(),
                          busy ? arriving_ : request.header, parsed);
  if (wrong != nullptr) return wrong;
  if (parsed.sequenced != session_.sequenced()) {
    return "has a number where none was agreed on, or none where it was";
  }
  if (parsed.sequenced) return take_sequenced(request, parsed);
  if (busy) return defer(request, imm);
  begin(request, parsed);
  return nullptr;
}

/// Of a peer without numbers: it has given up the other path, and sends its request again. So it
/// has the one by which it came again before, if there is one: what came there never begins.
const char* Queue::defer(Request& request, const RequestImm& imm) {
  if (request.queue == this || request.deferred_to == this) {
    return "names a chunk whose request is still running";
  }
  for (Queue* const former : {request.queue, request.deferred_to}) {
    if (former == nullptr) continue;
    former->path_.post_home([&path = former->path_] {
      path.close("its client sends by another path what it had sent by this one");
    });
  }
  request.deferred_to = this;
  request.deferred_offset = imm.offset_bytes;
  return nullptr;
}

void Queue::resume(Request& request) {
  if (!closing_) request_arrived({request.index, request.deferred_offset});
}

const char* Queue::take_sequenced(Request& request, const wire::ParsedRequest& parsed) {
  if (parsed.epoch != session_.epoch() && !mutant("epoch-unchecked")) {
    return "is of another epoch than its session";
  }
  if (parsed.sequence == request.sequence) return take_again(request, parsed);
  if (request.state != Request::State::kFree) return "names a chunk whose request is still running";
  const bool in_sequence = parsed.sequence == wire::next_sequence(request.sequence);
  if (!in_sequence && !mutant("sequence-unchecked")) return "is out of sequence";
  request.follows = request.sequence != 0;
  request.sequence = parsed.sequence;
  begin(request, parsed);
  return nullptr;
}

/// What was sent by a path that is lost, sent again: it is not done twice.
const char* Queue::take_again(Request& request, const wire::ParsedRequest& parsed) {
  const bool same =
      parsed.direction == request.direction &&
      (parsed.direction == Direction::kWrite || parsed.data_bytes == request.data.size());
  if (!same) return "comes again as another one";
  if (request.cid != cid_) return "comes again by another connection";
  const bool busy = request.state != Request::State::kFree;
  if (busy && request.queue != nullptr) return "comes again while its path is up";
  request.target = parsed.target;
  if (busy) {
    request.queue = this;
    running_.push_back(request);
  } else if (request.source.mr != nullptr || mutant("done-twice")) {
    request.follows = false;
    begin(request, parsed);  // the memory that it was read from may have changed: read again
  } else {
    answer(request);
  }
  return nullptr;
}

bool Queue::mutant(const char* name) const {
  return worker_.reactor().host().mutant(name);
}

void Queue::begin(Request& request, const wire::ParsedRequest& parsed) {
  request.target = parsed.target;
  request.invalidate = parsed.invalidate;
  request.direction = parsed.direction;
  request.user_header = std::span(request.header).first(parsed.user_header_bytes);
  request.data = data_of(request, parsed);
  request.has_words = parsed.has_words;
  if (parsed.has_words) request.words = parsed.words;
  give_to_user(request);
}

void Queue::give_to_user(Request& request) {
  request.state = Request::State::kAtUser;
  request.queue = this;
  request.cid = cid_;
  running_.push_back(request);
  request.connection = number();
  request.repeats = false;
  request.context = nullptr;
  request.has_answer_words = false;
  request.slice->begin(request);
}

/// With a guard it is where no key reaches it: a write whose window is closed lies there already.
std::span<std::byte> Queue::data_of(const Request& request, const wire::ParsedRequest& parsed) {
  const auto landed = path_.landing(request.index).first(parsed.data_bytes);
  const bool write = parsed.direction == Direction::kWrite;
  if (path_.guard() == ChunkGuard::kWindows && write) return landed;
  const auto kept = session_.chunk(request.index).first(parsed.data_bytes);
  if (path_.guard() != ChunkGuard::kCopy || !write) return kept;
  if (mutant("copy-skipped")) return landed;
  if (!kept.empty()) std::memcpy(kept.data(), landed.data(), kept.size());
  return kept;
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
    request.queue = this;
    long_.push_back(request);
    worker_.long_answer_waits();
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

bool Queue::can_send_part() const {
  return !long_.empty() && !closing_ && connection_->open() && room_for_answer();
}

void Queue::send_part() {
  Request& request = *long_.front();
  const uint32_t left_bytes = request.source.length_bytes - request.sent_bytes;
  if (left_bytes <= kPartBytes || request.deferred_to != nullptr) {
    long_.pop_front();
    worker_.long_answer_went();
    return send_waiting(request);
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
