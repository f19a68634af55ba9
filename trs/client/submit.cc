// Queue: the data path. No allocation, no lock, no system call beyond what the device needs.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "trs/client/domain.h"
#include "trs/client/path.h"
#include "trs/client/queue.h"
#include "trs/client/session.h"

namespace braid::trs::client {

using base::Errc;
using base::make_error;

namespace {

// With kMinLatency one request in so many goes in turn: a path that was slow may have got better.
constexpr size_t kProbeEvery = 32;

}  // namespace

Permit Queue::acquire() {
  if (returned_ > 0) pay_debts();
  if (reserve_ > 0 && permits_->free_count() <= reserve_) return {};
  return acquire_first();
}

Permit Queue::acquire_first() {
  if (!permits_) return {};
  const std::optional<uint32_t> index = permits_->acquire();
  return index ? Permit(*this, *index) : Permit();
}

void Queue::wait_for_permit(PermitWaiter& waiter) {
  BRAID_ASSERT(!waiter.linked());
  waiters_.push_back(waiter);
  wake();
}

void Queue::give_back(uint32_t index) {
  permits_->release(index);
  if (debts_open_ > 0) ++returned_;
  if (returned_ > 0) wake();
}

/// The next one for whom there are enough, or null.
PermitWaiter* Queue::next_waiter() {
  const uint32_t free = permits_->free_count();
  PermitWaiter* waiter = waiters_.front();
  while (waiter != nullptr && waiter->leaves >= free) waiter = waiters_.next(*waiter);
  return waiter;
}

/// As many waiters as there are permits, in turn; who takes none loses his turn.
bool Queue::serve_waiters() {
  uint32_t turns = permits_ ? permits_->free_count() : 0;
  bool did = false;
  while (turns-- > 0) {
    PermitWaiter* const waiter = next_waiter();
    if (waiter == nullptr) break;
    waiter->unlink();
    waiter->permit_free(*waiter);
    did = true;
  }
  return did;
}

void Queue::submit(ClientRequest& request) {
  BRAID_ASSERT(request.permit && permits_->owns(request.permit.index()));
  base::add_shared(statistics_.in_flight, 1);
  request.outcome = Errc::kOk;
  request.sequence = 0;
  request.has_answer_words = false;
  const bool fits = request.user_header.size() <= session_.user_header_bytes_max(cid_) &&
                    request.data.length_bytes <= session_.limits().max_io_bytes &&
                    (request.data.length_bytes == 0 || request.data.mr != nullptr);
  if (stopped_) {  // nobody polls any more
    request.outcome = Errc::kCanceled;
    finish(request, request.outcome);
    return;
  }
  if (!fits || refuse_ != Errc::kOk) {
    request.outcome = fits ? refuse_ : Errc::kInvalid;
    ending_.push_back(request);
    wake();
    return;
  }
  Lane* const lane = held_.empty() ? pick() : nullptr;
  if (lane != nullptr) {
    put_on_wire(request, *lane);
  } else if (service_ && up_.empty()) {
    request.outcome = Errc::kDisconnected;
    ending_.push_back(request);
    wake();
  } else {
    hold(request);
  }
}

/// A lane that is up and has a send slot, or null.
Lane* Queue::pick() {
  if (up_.size() == 1) return up_[0]->can_send() ? up_[0] : nullptr;
  if (up_.empty()) return nullptr;
  const bool probe = policy_ == PathPolicy::kMinLatency && ++requests_ % kProbeEvery == 0;
  if (policy_ == PathPolicy::kRoundRobin || probe) return pick_in_turn();
  Lane* best = nullptr;
  uint64_t least = UINT64_MAX;
  for (Lane* lane : up_) {
    const uint64_t cost = policy_ == PathPolicy::kMinInflight ? lane->statistics.in_flight.get()
                                                              : lane->latency_ns(reactor_.now_ns());
    if (cost >= least || !lane->can_send()) continue;
    best = lane;
    least = cost;
  }
  return best;
}

Lane* Queue::pick_in_turn() {
  for (size_t i = 0; i < up_.size(); ++i) {
    Lane* const lane = up_[++turn_ % up_.size()];
    if (lane->can_send()) return lane;
  }
  return nullptr;
}

void Queue::hold(ClientRequest& request) {
  base::add_shared(statistics_.held, 1);
  held_.push_back(request);
  wake();
}

/// Ends a held request in the next poll.
void Queue::end_request(ClientRequest& request, Errc status) {
  base::subtract_shared(statistics_.held, 1);
  request.outcome = status;
  request.unlink();
  ending_.push_back(request);
  wake();
}

bool Queue::cancel(ClientRequest& request) {
  if (request.outcome != Errc::kOk) return true;  // is ending already
  // It was on the wire of a lost path, and the server may be at it. It goes by another path, or
  // comes back with the end of the incarnation.
  const bool in_flight = table_[request.permit.index()].request == &request;
  if (in_flight || (request.sequence != 0 && request.sent_in == epoch_)) return false;
  end_request(request, Errc::kCanceled);
  return true;
}

/// User header and message; their length. The message's place is right behind the user header.
uint32_t Queue::fill_header(const ClientRequest& request, const Lane& lane, std::byte* at) const {
  const auto user_bytes = static_cast<uint32_t>(request.user_header.size());
  if (user_bytes > 0) std::memcpy(at, request.user_header.data(), user_bytes);
  std::byte* const message = at + user_bytes;
  return user_bytes + (lane.map().sequenced ? fill_sequenced(request, lane, message)
                                            : fill_plain(request, lane, message));
}

namespace {

wire::SgDescriptor target_of(const ClientRequest& request, const Lane& lane) {
  wire::SgDescriptor target;
  target.address = reinterpret_cast<uint64_t>(request.data.address);
  target.key = Memory::rkey_of(*request.data.mr, lane.device());
  target.length = request.data.length_bytes;
  return target;
}

}  // namespace

uint32_t Queue::fill_plain(const ClientRequest& request, const Lane& lane, std::byte* at) const {
  const auto user_bytes = static_cast<uint16_t>(request.user_header.size());
  if (request.direction == Direction::kWrite) {
    wire::WriteMsg write;
    write.usr_len = user_bytes;
    std::memcpy(at, &write, sizeof(write));
    return sizeof(write);
  }
  wire::ReadMsg read;
  read.usr_len = user_bytes;
  const bool with_data = request.data.length_bytes > 0;
  read.sg_cnt = static_cast<uint16_t>(with_data ? 1 : 0);
  std::memcpy(at, &read, sizeof(read));
  if (!with_data) return sizeof(read);
  const wire::SgDescriptor target = target_of(request, lane);
  std::memcpy(at + sizeof(read), &target, sizeof(target));
  return sizeof(read) + sizeof(target);
}

uint32_t Queue::fill_sequenced(const ClientRequest& request, const Lane& lane,
                               std::byte* at) const {
  const bool read = request.direction == Direction::kRead;
  wire::SequencedMsg message;
  message.type = static_cast<uint16_t>(read ? wire::MessageType::kSequencedRead
                                            : wire::MessageType::kSequencedWrite);
  message.usr_len = static_cast<uint16_t>(request.user_header.size());
  message.flags = request.has_words ? wire::kHasWords : uint16_t{0};
  const bool with_target = read && request.data.length_bytes > 0;
  message.sg_cnt = static_cast<uint16_t>(with_target ? 1 : 0);
  message.epoch = request.epoch;
  message.sequence = request.sequence;
  std::memcpy(at, &message, sizeof(message));
  uint32_t bytes = sizeof(message);
  if (with_target) {
    const wire::SgDescriptor target = target_of(request, lane);
    std::memcpy(at + bytes, &target, sizeof(target));
    bytes += static_cast<uint32_t>(sizeof(target));
  }
  if (request.has_words) {
    wire::UpperWords words;
    words.words[0] = request.words[0];
    words.words[1] = request.words[1];
    std::memcpy(at + bytes, &words, sizeof(words));
    bytes += static_cast<uint32_t>(sizeof(words));
  }
  return bytes;
}

void Queue::put_on_wire(ClientRequest& request, Lane& lane) {
  const uint32_t index = request.permit.index();
  Slot& slot = table_[index];
  if (lane.map().sequenced && request.sequence == 0) {
    if (slot.epoch != epoch_) {
      slot.epoch = epoch_;
      if (!reactor_.host().mutant("numbers-kept")) slot.sequence = 0;
    }
    slot.sequence = wire::next_sequence(slot.sequence);
    request.epoch = epoch_;
    request.sequence = slot.sequence;
  }
  request.sent_in = epoch_;
  slot.request = &request;
  slot.lane = &lane;
  lane.in_flight.push_back(request);
  lane.statistics.in_flight.add(1);
  request.sent_at_ns = reactor_.now_ns();
  lane.count_request(request.sent_at_ns);
  request.sent_from = session_.processor();

  Connection& connection = lane.connection();
  const uint32_t data_bytes = request.data.length_bytes;
  const bool carries_data = request.direction == Direction::kWrite && data_bytes > 0;
  std::byte small[Connection::kInlineBytes];
  const size_t message_bytes =
      wire::kMessageBytesMax - (request.has_words ? 0 : sizeof(wire::UpperWords));
  const bool fits_inline =
      !carries_data && request.user_header.size() + message_bytes <= sizeof(small);
  // Its user may have changed it since submit(), but not beyond the room.
  BRAID_ASSERT(request.user_header.size() <= session_.user_header_bytes_max(cid_));
  std::byte* const header = fits_inline ? small : connection.next_header();
  const uint32_t header_bytes = fill_header(request, lane, header);
  vhca::Sge pieces[2];
  vhca::Sge* end = pieces;
  if (carries_data) {
    *end++ = {reinterpret_cast<uint64_t>(request.data.address), data_bytes,
              Memory::lkey_of(*request.data.mr, lane.device())};
  }
  *end++ = {reinterpret_cast<uint64_t>(header), header_bytes, connection.header_lkey()};

  const wire::ChunkRegion& chunk = lane.map().chunks[index];
  const auto user_bytes = static_cast<uint32_t>(request.user_header.size());
  vhca::SendWr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.sg_list = pieces;
  wr.num_sge = static_cast<int>(end - pieces);
  wr.wr.rdma.remote_addr = chunk.address + (carries_data ? 0 : data_bytes);
  wr.wr.rdma.rkey = lane.chunk_key(index);
  wr.imm_data = to_network(lane.map().codec.encode({index, data_bytes + user_bytes}));
  if (fits_inline) wr.send_flags = IBV_SEND_INLINE;
  lane.statistics.sent.add(1);
  connection.post(wr);  // on failure the path goes down, and the request is kept with the others
}

bool Queue::send_held() {
  bool did = false;
  while (!held_.empty()) {
    Lane* const lane = pick();
    if (lane == nullptr) break;
    ClientRequest* const request = held_.pop_front();
    base::subtract_shared(statistics_.held, 1);
    put_on_wire(*request, *lane);
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
  base::subtract_shared(statistics_.in_flight, 1);
  request.permit.release();
  request.done(request, status);
}

void Queue::answered(Lane& lane, AnswerImm answer, uint32_t bytes) {
  Slot* const slot =
      permits_ && permits_->owns(answer.request_id) ? &table_[answer.request_id] : nullptr;
  if (slot == nullptr || slot->lane != &lane) {
    lane.breach(make_error(Errc::kProtocol,
                           "connection {}: answer to request {}, which is not in flight there",
                           cid_, answer.request_id));
    return;
  }
  LaneStatistics& counts = lane.statistics;
  ClientRequest& request = *slot->request;
  const bool read = request.direction == Direction::kRead;
  std::optional<Errc> status = base::errc_from_errno(static_cast<int>(answer.sys_errno));
  uint32_t due_bytes = read && answer.sys_errno == 0 ? request.data.length_bytes : 0;
  if (lane.map().answer_slots && answer.sys_errno == kSeeAnswerSlot) {
    due_bytes = wire::kAnswerSlotBytes;
    if (bytes == due_bytes) status = read_slot(request, answer.request_id);
  }
  if ((lane.map().braid_peer && bytes != due_bytes) || !status) {
    lane.breach(make_error(Errc::kProtocol,
                           "connection {}: answer to request {} carries {} bytes, not {}, or is "
                           "of another request",
                           cid_, answer.request_id, bytes, due_bytes));
    return;
  }
  slot->request = nullptr;
  slot->lane = nullptr;
  reactor_.count_answer();
  lane.chunk_answered(answer.request_id);
  request.unlink();
  counts.in_flight.subtract(1);
  lane.count_answer(reactor_.now_ns() - request.sent_at_ns);
  if (session_.processor() != request.sent_from) counts.moved.add(1);
  if (status == Errc::kOk) {
    (read ? counts.reads : counts.writes).add(1);
    (read ? counts.read_bytes : counts.write_bytes).add(request.data.length_bytes);
  } else {
    counts.errors.add(1);
  }
  finish(request, *status);
}

/// What the server wrote beside the answer: its own status and words. Nothing: it is of another
/// request, or has no status.
std::optional<Errc> Queue::read_slot(ClientRequest& request, uint32_t index) const {
  wire::AnswerSlot slot;
  std::memcpy(&slot, session_.answer_slot(index), sizeof(slot));
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (slot.sequence != request.sequence) return std::nullopt;
  request.has_answer_words = (slot.flags & wire::kHasWords) != 0;
  request.answer_words = {slot.words[0], slot.words[1]};
  return wire::status_of(slot.status);
}

}  // namespace braid::trs::client
