// SoftQp, the requester's half: posting sends, handing them to the link, completing them in order.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "vhca/soft/copy.h"
#include "vhca/soft/qp_queues.h"
#include "vhca/soft/remote_check.h"
#include "vhca/soft/rnr_timer.h"

namespace braid::vhca::soft {
namespace {

/// How long a send that met a full wire waits before a sleeping owner is woken to try again. An
/// owner that polls tries at each poll.
constexpr uint64_t kNoRoomRetryNs = 100 * base::kMicrosecond;

/// The opcode as the number that it is in the caller's memory, which may be none of the
/// enumeration.
uint32_t raw_opcode(const SendWr& wr) {
  uint32_t raw = 0;
  static_assert(sizeof(raw) == sizeof(wr.opcode));
  std::memcpy(&raw, &wr.opcode, sizeof(raw));
  return raw;
}

ibv_wc_opcode wc_opcode(ibv_wr_opcode opcode) {
  if (is_write(opcode)) return IBV_WC_RDMA_WRITE;
  if (is_send(opcode)) return IBV_WC_SEND;
  if (is_read(opcode)) return IBV_WC_RDMA_READ;
  if (is_local(opcode)) return opcode == IBV_WR_BIND_MW ? IBV_WC_BIND_MW : IBV_WC_LOCAL_INV;
  return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP;
}

/// What a Request or an SqEntry holds of an atomic, which lies elsewhere in the work request.
template <typename To>
void take_atomic(const SendWr& wr, To& to) {
  to.remote_address = wr.wr.atomic.remote_addr;
  to.rkey = wr.wr.atomic.rkey;
  to.compare_add = wr.wr.atomic.compare_add;
  to.swap = wr.wr.atomic.swap;
}

}  // namespace

int SoftQp::post_send(const SendWr* wr, const SendWr** bad) {
  const std::lock_guard guard(lock_);
  int error = 0;
  for (; wr != nullptr && error == 0; wr = wr->next) {
    error = post_one(*wr);
    if (error != 0 && bad != nullptr) *bad = wr;
  }
  if (stream_link_ == nullptr) return error;
  hand_over_sends();
  // A stream takes a chain as one, and more than that if the owner says when.
  if (!posts_with_poll_) stream_link_->flush(*this);
  return error;
}

int SoftQp::post_one(const SendWr& wr) {
  if (state_ != IBV_QPS_RTS && state_ != IBV_QPS_SQD) [[unlikely]] {
    return state_ == IBV_QPS_ERR ? post_in_error(wr) : EINVAL;
  }
  if (const int error = check_post(wr); error != 0) [[unlikely]]
    return error;
  if (head_ - tail_ >= cap_.max_send_wr) [[unlikely]]
    return ENOMEM;
  if (is_local(wr.opcode)) [[unlikely]]
    return post_local(wr);

  Piece pieces[kMaxSge];
  uint32_t length = 0;
  const ibv_wc_status status = gather(wr, pieces, length);
  const std::span<const Piece> span(pieces, static_cast<size_t>(wr.num_sge));
  const bool now = sent_ == head_ && stall_ == Stall::kNone && state_ == IBV_QPS_RTS &&
                   status == IBV_WC_SUCCESS && stream_link_ == nullptr &&
                   !must_wait(wr.opcode, (wr.send_flags & IBV_SEND_FENCE) != 0);
  if (!now) [[unlikely]] {
    store(wr, span, length, status);
    if (stream_link_ == nullptr) progress_sends();
    return 0;
  }
  const bool signaled = signal_all_ || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  Request request{.opcode = wr.opcode,
                  .solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0,
                  .signaled = signaled,
                  .imm = wr.imm_data,
                  .rkey = wr.wr.rdma.rkey,
                  .remote_address = wr.wr.rdma.remote_addr,
                  .length = length,
                  .sequence = head_ - locals_sent_,
                  .pieces = span};
  if (is_atomic(wr.opcode)) [[unlikely]]
    take_atomic(wr, request);
  const Execution execution = link_->execute(request);
  if (execution.outcome == Outcome::kDone && done_ == head_) [[likely]] {
    done_ = sent_ = ++head_;
    if (signaled) {
      tail_ = head_;
      complete_send(wr.wr_id, wr.opcode, length, IBV_WC_SUCCESS);
    }
    return 0;
  }
  store(wr, span, length, IBV_WC_SUCCESS);
  settle(head_ - 1, execution);
  return 0;
}

int SoftQp::check_post(const SendWr& wr) const {
  switch (raw_opcode(wr)) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      break;
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      if ((wr.send_flags & IBV_SEND_INLINE) != 0) return EINVAL;
      break;
    case IBV_WR_LOCAL_INV:
      return 0;
    case IBV_WR_BIND_MW:
      if (wr.bind_mw.mw == nullptr || wr.bind_mw.bind_info.mr == nullptr) return EINVAL;
      return wr.bind_mw.mw->type == IBV_MW_TYPE_2 ? 0 : EINVAL;
    case IBV_WR_TSO:
      return EOPNOTSUPP;
    default:
      return EINVAL;
  }
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > cap_.max_send_sge) return EINVAL;
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    uint64_t length = 0;
    for (int i = 0; i < wr.num_sge; ++i) length += wr.sg_list[i].length;
    if (length > cap_.max_inline_data) return EINVAL;
  }
  return 0;
}

int SoftQp::post_in_error(const SendWr& wr) {
  if (const int error = check_post(wr); error != 0) return error;
  if (stall_ == Stall::kPeerCopies) {  // flushed in its turn
    if (head_ - tail_ >= cap_.max_send_wr) return ENOMEM;
    store(wr, {}, 0, IBV_WC_WR_FLUSH_ERR);
    return 0;
  }
  complete_send(wr.wr_id, wr.opcode, 0, IBV_WC_WR_FLUSH_ERR);
  return 0;
}

/// Whether our memory is registered in our PD, and may be written if data lands there.
bool SoftQp::holds(const Sge& sge, bool lands) const {
  if (sge.length == 0) return true;
  MrView mr;
  return mr_table_.find(sge.lkey, mr) && mr.pd == pd_id_ && mr.holds(sge.addr, sge.length) &&
         (!lands || (mr.access & IBV_ACCESS_LOCAL_WRITE) != 0);
}

/// What gather() found may be gone since: a key is looked up each time before its memory is
/// touched.
bool SoftQp::stand(std::span<const Piece> pieces, bool lands) const {
  for (const Piece& piece : pieces) {
    const Sge sge{reinterpret_cast<uint64_t>(piece.address), piece.length, piece.lkey};
    if (piece.lkey != 0 && !holds(sge, lands)) return false;
  }
  return true;
}

/// Resolves the SGEs to `pieces`, one each. The order of the errors is that of the SGEs.
ibv_wc_status SoftQp::gather(const SendWr& wr, Piece* pieces, uint32_t& length) const {
  const bool in_line = (wr.send_flags & IBV_SEND_INLINE) != 0;
  const bool lands = returns_data(wr.opcode);
  if (lands && attr_.max_rd_atomic == 0) return IBV_WC_LOC_QP_OP_ERR;
  uint64_t sum = 0;
  for (int i = 0; i < wr.num_sge; ++i) {
    const Sge& sge = wr.sg_list[i];
    pieces[i] = {reinterpret_cast<std::byte*>(sge.addr), sge.length, in_line ? 0 : sge.lkey};
    sum += sge.length;
    if (!in_line && !holds(sge, lands)) return IBV_WC_LOC_PROT_ERR;
  }
  if (sum > kMaxMessageBytes || (is_atomic(wr.opcode) && sum != kAtomicBytes)) {
    return IBV_WC_LOC_LEN_ERR;
  }
  length = static_cast<uint32_t>(sum);
  return IBV_WC_SUCCESS;
}

bool SoftQp::must_wait(ibv_wr_opcode opcode, bool fence) const {
  if (reads_outstanding_ == 0) [[likely]]
    return false;
  return fence || (returns_data(opcode) && reads_outstanding_ >= attr_.max_rd_atomic);
}

SoftQp::SqEntry& SoftQp::store(const SendWr& wr, std::span<const Piece> pieces, uint32_t length,
                               ibv_wc_status status) {
  const uint64_t sequence = head_++;
  SqEntry& entry = sq_entry(sequence);
  entry = {.wr_id = wr.wr_id,
           .remote_address = wr.wr.rdma.remote_addr,
           .length = length,
           .imm = wr.imm_data,
           .rkey = wr.wr.rdma.rkey,
           .piece_count = static_cast<uint16_t>(pieces.size()),
           .opcode = static_cast<uint8_t>(wr.opcode),
           .signaled = signal_all_ || (wr.send_flags & IBV_SEND_SIGNALED) != 0,
           .solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0,
           .fence = (wr.send_flags & IBV_SEND_FENCE) != 0,
           .status = status};
  if (link_ != nullptr && link_->needs_post_times.load(std::memory_order_relaxed)) [[unlikely]]
    entry.posted_ns = device_.host().now_ns();
  if (is_atomic(wr.opcode)) take_atomic(wr, entry);
  if (status != IBV_WC_SUCCESS) {
    entry.piece_count = 0;
  } else if ((wr.send_flags & IBV_SEND_INLINE) == 0) {
    std::copy(pieces.begin(), pieces.end(), sq_pieces(sequence));
  } else if (length > 0) {
    // The caller may reuse its buffers when the post returns.
    std::byte* const copy = sq_inline_data(sequence);
    uint32_t at = 0;
    for (const Piece& piece : pieces) {
      if (piece.length > 0) std::memcpy(copy + at, piece.address, piece.length);
      at += piece.length;
    }
    *sq_pieces(sequence) = {copy, length, 0};
    entry.piece_count = 1;
  } else {
    entry.piece_count = 0;
  }
  return entry;
}

/// In RTS; in SQD what had begun goes on to its end.
bool SoftQp::may_send() const {
  return state_ == IBV_QPS_RTS || (state_ == IBV_QPS_SQD && sent_ < drain_end_);
}

/// Hands stored requests to the link for as long as it takes them.
void SoftQp::progress_sends() {
  hand_over_sends();
  if (stream_link_ != nullptr) stream_link_->flush(*this);
}

void SoftQp::hand_over_sends() {
  bool flushed = false;
  while (may_send() && stall_ == Stall::kNone && sent_ != head_) {
    const uint64_t sequence = sent_;
    SqEntry& entry = sq_entry(sequence);
    const auto opcode = static_cast<ibv_wr_opcode>(entry.opcode);
    const std::span<const Piece> pieces(sq_pieces(sequence), entry.piece_count);
    // A stream looks each time it touches them.
    if (stream_link_ == nullptr && !stand(pieces, returns_data(opcode))) [[unlikely]]
      entry.status = IBV_WC_LOC_PROT_ERR;
    if (entry.status != IBV_WC_SUCCESS) {
      if (done_ == sequence) fail_at(sequence, entry.status);
      return;  // else those before it complete first
    }
    if (must_wait(opcode, entry.fence)) return;
    if (is_local(opcode)) {
      // One behind a request that goes again has been executed before.
      if (!settle(sequence, entry.done ? Execution{} : run_local(entry))) return;
      ++locals_sent_;
      continue;
    }
    const Request request{.opcode = opcode,
                          .solicited = entry.solicited,
                          .signaled = entry.signaled,
                          .imm = entry.imm,
                          .rkey = entry.rkey,
                          .remote_address = entry.remote_address,
                          .length = entry.length,
                          .sequence = sequence - locals_sent_,
                          .posted_ns = entry.posted_ns,
                          .pieces = pieces,
                          .compare_add = entry.compare_add,
                          .swap = entry.swap};
    const Execution execution = link_->execute(request);
    if (execution.outcome == Outcome::kFull && stream_link_ != nullptr && !flushed) {
      // It may be full of what was posted since the last poll. What cannot be sent may end the QP.
      flushed = true;
      stream_link_->flush(*this);
      continue;
    }
    flushed = false;
    if (!settle(sequence, execution)) return;
  }
}

/// Does what the link's verdict on a stored request asks for. False: no more can be sent now.
bool SoftQp::settle(uint64_t sequence, const Execution& execution) {
  SqEntry& entry = sq_entry(sequence);
  switch (execution.outcome) {
    case Outcome::kDone:
      sent_ = sequence + 1;
      entry.done = true;
      // The peer has taken a message, not this one's own work.
      if (!is_local(static_cast<ibv_wr_opcode>(entry.opcode))) rnr_left_ = attr_.rnr_retry;
      complete_in_order();
      return true;
    case Outcome::kSent:
      entry.wire_sequence = sequence - locals_sent_;
      sent_ = sequence + 1;
      if (returns_data(static_cast<ibv_wr_opcode>(entry.opcode))) ++reads_outstanding_;
      return true;
    case Outcome::kNoReceive:
      no_receive(sequence, execution.rnr_timer);
      return false;
    case Outcome::kFull:
      stall(Stall::kNoRoom, kNoRoomRetryNs);
      return false;
    case Outcome::kFailed:
      break;
  }
  entry.status = execution.status;
  if (done_ == sequence) fail_at(sequence, execution.status);
  return false;
}

/// That one and all behind it count as not handed to the link.
void SoftQp::go_back(uint64_t sequence) {
  for (uint64_t at = sequence; at < sent_; ++at) {
    const auto opcode = static_cast<ibv_wr_opcode>(sq_entry(at).opcode);
    if (returns_data(opcode)) --reads_outstanding_;
    if (is_local(opcode)) --locals_sent_;
  }
  sent_ = sequence;
}

/// The peer had no receive for `sequence`: that one and all behind it go again after the timer.
void SoftQp::no_receive(uint64_t sequence, uint8_t rnr_timer) {
  go_back(sequence);
  const bool planted = device_.host().mutant("rnr-fatal");
  if (attr_.rnr_retry != kRnrRetryForEver || planted) {
    if (rnr_left_ == 0 || planted) {
      sq_entry(sequence).status = IBV_WC_RNR_RETRY_EXC_ERR;
      if (done_ == sequence) fail_at(sequence, IBV_WC_RNR_RETRY_EXC_ERR);
      return;
    }
    --rnr_left_;
  }
  stall(Stall::kNoReceive, rnr_timer_ns(rnr_timer));
}

void SoftQp::stall(Stall why, uint64_t delay_ns) {
  stall_ = why;
  retry_at_ns_ = device_.host().now_ns() + delay_ns;
  update_needs_progress();
  // A Td's owner that is awake polls. Everybody else is helped by the clock.
  if (lock_.enabled() || send_cq_->armed() || recv_cq_->armed()) {
    device_.stall_clock().watch(*this, retry_at_ns_);
  }
}

void SoftQp::end_stall() {
  stall_ = Stall::kNone;
  update_needs_progress();
}

/// The oldest outstanding request fails, and with it the QP.
void SoftQp::fail_at(uint64_t sequence, ibv_wc_status status) {
  BRAID_ASSERT(sequence == done_ && done_ != head_ && state_ != IBV_QPS_ERR);
  send_failure_ = status;
  enter_error(wc_status_text(status));
}

void SoftQp::complete_in_order() {
  while (done_ != sent_) {
    const SqEntry& entry = sq_entry(done_);
    if (!entry.done) break;
    ++done_;
    if (!entry.signaled) continue;
    tail_ = done_;
    complete_send(entry.wr_id, static_cast<ibv_wr_opcode>(entry.opcode), entry.length,
                  IBV_WC_SUCCESS);
  }
  check_drained();
}

void SoftQp::complete_send(uint64_t wr_id, ibv_wr_opcode opcode, uint32_t length,
                           ibv_wc_status status) {
  const bool room = send_cq_->push(status != IBV_WC_SUCCESS, [&](Wc& wc) {
    wc = {.wr_id = wr_id,
          .status = status,
          .opcode = wc_opcode(opcode),
          .byte_len = length,
          .qp_num = number_};
  });
  if (!room && state_ != IBV_QPS_ERR) fail(IBV_EVENT_QP_FATAL, "its send CQ is overrun");
}

void SoftQp::flush_sends() {
  while (done_ != head_) {
    const SqEntry& entry = sq_entry(done_);
    ++done_;
    complete_send(entry.wr_id, static_cast<ibv_wr_opcode>(entry.opcode), 0,
                  std::exchange(send_failure_, IBV_WC_WR_FLUSH_ERR));
  }
  sent_ = tail_ = head_;
  reads_outstanding_ = 0;
  invalidation_.reset();
}

// --- answers of message links

/// The outstanding request with this name. False: there is none.
bool SoftQp::find_sent(uint64_t wire_sequence, uint64_t& sequence) const {
  for (sequence = wire_sequence + locals_sent_; sequence >= done_ && sequence < sent_; --sequence) {
    const SqEntry& entry = sq_entry(sequence);
    if (is_local(static_cast<ibv_wr_opcode>(entry.opcode))) continue;
    if (entry.wire_sequence <= wire_sequence) return entry.wire_sequence == wire_sequence;
  }
  return false;
}

void SoftQp::answered(uint64_t wire_sequence, const Answer& answer,
                      std::span<const std::byte> read_data) {
  const std::lock_guard guard(lock_);
  answered_locked(wire_sequence, answer, read_data);
}

void SoftQp::answered_locked(uint64_t wire_sequence, const Answer& answer,
                             std::span<const std::byte> read_data) {
  const bool live = state_ == IBV_QPS_RTS || state_ == IBV_QPS_SQD;
  uint64_t sequence = 0;
  if (!live || !find_sent(wire_sequence, sequence)) return;  // of a life before
  SqEntry& entry = sq_entry(sequence);
  if (entry.done) return;  // answered before
  const bool lands = returns_data(static_cast<ibv_wr_opcode>(entry.opcode));
  switch (answer.kind) {
    case Answer::Kind::kOutOfSequence:
    case Answer::Kind::kBusy:
      return;
    case Answer::Kind::kNoReceive:
      no_receive(sequence, answer.rnr_timer);
      return;
    case Answer::Kind::kError:
      entry.status = answer.status;
      break;
    case Answer::Kind::kAck:
      if (lands) --reads_outstanding_;
      if (lands && !answer.landed) entry.status = land_data(entry, sequence, read_data);
      if (entry.status != IBV_WC_SUCCESS) break;
      entry.done = true;
      rnr_left_ = attr_.rnr_retry;
      complete_in_order();
      progress_sends();
      return;
  }
  // Answers come in order: all before this one are complete.
  if (sequence == done_) fail_at(sequence, entry.status);
}

/// Lands the data of a READ or an atomic, unless the peer sent another length than was asked for.
ibv_wc_status SoftQp::land_data(const SqEntry& entry, uint64_t sequence,
                                std::span<const std::byte> data) const {
  if (data.size() != entry.length) return IBV_WC_BAD_RESP_ERR;
  const std::span<const Piece> pieces(sq_pieces(sequence), entry.piece_count);
  if (!stand(pieces, /*lands=*/true)) return IBV_WC_LOC_PROT_ERR;
  const std::byte* from = data.data();
  for (const Piece& piece : pieces) {
    copy_last_word_last(piece.address, from, piece.length);
    from += piece.length;
  }
  return IBV_WC_SUCCESS;
}

void SoftQp::memory_gone_locked(uint64_t wire_sequence) {
  uint64_t sequence = 0;
  if (!find_sent(wire_sequence, sequence)) return;  // it waits to go again, and is looked at then
  go_back(sequence);
  sq_entry(sequence).status = IBV_WC_LOC_PROT_ERR;
  if (done_ == sequence) fail_at(sequence, IBV_WC_LOC_PROT_ERR);
}

}  // namespace braid::vhca::soft
