// SoftQp, the responder's half: receives, requests of message links, arrivals of direct links.
#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "vhca/soft/copy.h"
#include "vhca/soft/qp_queues.h"
#include "vhca/soft/remote_check.h"
#include "vhca/soft/srq.h"

namespace braid::vhca::soft {
namespace {

/// What the responder's program hears of a request that was refused with `status`.
ibv_event_type refusal_event(ibv_wc_status status) {
  if (status == IBV_WC_REM_INV_REQ_ERR) return IBV_EVENT_QP_REQ_ERR;
  return status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_FATAL;
}

}  // namespace

// --- receives

int SoftQp::post_recv(const RecvWr* wr, const RecvWr** bad) {
  const std::lock_guard guard(lock_);
  for (; wr != nullptr; wr = wr->next) {
    if (const int error = post_one(*wr); error != 0) {
      if (bad != nullptr) *bad = wr;
      return error;
    }
  }
  return 0;
}

int SoftQp::post_one(const RecvWr& wr) {
  if (state_ == IBV_QPS_RESET || srq_ != nullptr) return EINVAL;
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > cap_.max_recv_sge) return EINVAL;
  if (state_ == IBV_QPS_ERR && stall_ != Stall::kPeerCopies) {
    recv_cq_->push(true, [&](Wc& wc) {
      wc = {.wr_id = wr.wr_id,
            .status = IBV_WC_WR_FLUSH_ERR,
            .opcode = IBV_WC_RECV,
            .qp_num = number_};
    });
    return 0;
  }
  if (rq_head_ - rq_tail_ >= cap_.max_recv_wr) return ENOMEM;
  const RecvEntry& entry = rq_.write(rq_head_++, wr);
  if (direct_link_ != nullptr && state_ != IBV_QPS_INIT && state_ != IBV_QPS_ERR) {
    tell_of_receive(entry);
  }
  return 0;
}

void SoftQp::tell_of_receive(const RecvEntry& entry) {
  const auto length = static_cast<uint32_t>(std::min<uint64_t>(entry.length, UINT32_MAX));
  uint32_t keys[kMaxSge];
  size_t count = 0;
  for (const Sge& sge : entry.sges()) {
    if (sge.length > 0) keys[count++] = sge.lkey;
  }
  direct_link_->receive_posted(length, receive_usable(entry), {keys, count});
}

/// Whether there is a receive for the next message. Takes one from the SRQ for it.
bool SoftQp::have_receive() {
  if (rq_tail_ != rq_head_) return true;
  if (srq_ == nullptr || !srq_->take(rq_, rq_head_)) return false;
  ++rq_head_;
  return true;
}

/// Whether all of a receive's memory is registered in its PD and may be written.
bool SoftQp::receive_usable(const RecvEntry& entry) const {
  for (const Sge& sge : entry.sges()) {
    MrView mr;
    if (sge.length == 0) continue;
    if (!mr_table_.find(sge.lkey, mr) || mr.pd != receive_pd_id_ ||
        !mr.holds(sge.addr, sge.length) || (mr.access & IBV_ACCESS_LOCAL_WRITE) == 0) {
      return false;
    }
  }
  return true;
}

/// Whether the oldest receive can take so much.
ibv_wc_status SoftQp::check_receive(uint64_t length) const {
  const RecvEntry& entry = rq_.at(rq_tail_);
  if (length > entry.length) return IBV_WC_LOC_LEN_ERR;
  // Keys are resolved now, not when the receive was posted: the memory may be gone since.
  return receive_usable(entry) ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
}

ibv_wc_status SoftQp::scatter(const RecvEntry& entry, std::span<const std::byte> payload) const {
  const ibv_wc_status status = check_receive(payload.size());
  if (status != IBV_WC_SUCCESS) return status;
  for (const Sge& sge : entry.sges()) {
    const size_t bytes = std::min<size_t>(sge.length, payload.size());
    copy_last_word_last(reinterpret_cast<std::byte*>(sge.addr), payload.data(), bytes);
    payload = payload.subspan(bytes);
  }
  return IBV_WC_SUCCESS;
}

/// Nothing to be fenced: a window is used through this QP only, whose peer has done so before.
bool SoftQp::invalidate_for_peer(uint32_t key) {
  if (!mr_table_.invalidate(key, number_)) return false;
  mr_table_.fenced(key);
  return true;
}

ibv_wc_status SoftQp::receive(const Arrival& arrival) {
  ibv_wc_status status = IBV_WC_SUCCESS;
  if (arrival.opcode == IBV_WC_RECV) status = scatter(rq_.at(rq_tail_), arrival.payload);
  if (arrival.invalidates && status == IBV_WC_SUCCESS && !invalidate_for_peer(arrival.imm)) {
    return IBV_WC_REM_ACCESS_ERR;
  }
  if (status == IBV_WC_SUCCESS) {
    complete_receive(arrival, status);
    return status;
  }
  receive_failure_ = status;
  return status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR;
}

/// Completes the oldest receive.
void SoftQp::complete_receive(const Arrival& arrival, ibv_wc_status status) {
  const bool urgent = arrival.solicited || status != IBV_WC_SUCCESS;
  const unsigned flags = (arrival.has_imm ? unsigned{IBV_WC_WITH_IMM} : 0u) |
                         (arrival.invalidates ? unsigned{IBV_WC_WITH_INV} : 0u);
  const bool room = recv_cq_->push(urgent, [&](Wc& wc) {
    wc = {.wr_id = rq_.at(rq_tail_).wr_id,
          .status = status,
          .opcode = arrival.opcode,
          .byte_len = arrival.length,
          .imm_data = flags != 0 ? arrival.imm : 0,
          .qp_num = number_,
          .src_qp = attr_.dest_qp_num,
          .wc_flags = flags};
  });
  ++rq_tail_;
  if (srq_ != nullptr) srq_->settle();
  if (!room && state_ != IBV_QPS_ERR) fail(IBV_EVENT_QP_FATAL, "its receive CQ is overrun");
}

void SoftQp::flush_receives() {
  Arrival flushed;
  if (srq_ != nullptr) {
    if (receive_failure_ != IBV_WC_WR_FLUSH_ERR && rq_tail_ != rq_head_) {
      complete_receive(flushed, receive_failure_);
    }
    return return_receives();
  }
  while (rq_tail_ != rq_head_) {
    complete_receive(flushed, std::exchange(receive_failure_, IBV_WC_WR_FLUSH_ERR));
  }
}

/// What was taken from the SRQ for messages that will not come any more.
void SoftQp::return_receives() {
  while (rq_head_ != rq_tail_) srq_->give_back(rq_.at(--rq_head_));
}

// --- direct links

/// The peer has a message and asks for a receive of the SRQ.
void SoftQp::answer_wish() {
  if (have_receive()) {
    tell_of_receive(rq_.at(rq_tail_));
  } else {
    direct_link_->no_receive();
  }
}

uint32_t SoftQp::drain_arrivals(uint32_t budget) {
  uint32_t count = 0;
  Arrival arrival;
  while (count < budget && direct_link_ != nullptr && state_ != IBV_QPS_ERR) {
    // What there is no room for stays in the link: receives never overrun a CQ here.
    if (recv_cq_->room() == 0) break;
    switch (direct_link_->next_arrival(arrival)) {
      case Next::kNone:
        return count;
      case Next::kWish:
        answer_wish();
        ++count;
        break;
      case Next::kArrival: {
        if (state_ == IBV_QPS_RTR) heard_of_peer();
        if (rq_tail_ == rq_head_) {
          fail(IBV_EVENT_QP_FATAL, "the peer sent what no receive was posted for");
          return count;
        }
        const ibv_wc_status refused = receive(arrival);
        ++count;
        if (state_ == IBV_QPS_ERR) return count;
        if (refused != IBV_WC_SUCCESS) {
          (void)refuse(refused, "a receive failed");
          return count;
        }
        direct_link_->pop_arrival();
        break;
      }
      case Next::kFault:
        if (arrival.fault != IBV_WC_SUCCESS && rq_tail_ != rq_head_) {
          receive_failure_ = arrival.fault;
        }
        (void)refuse(arrival.refused, "a request of the peer was refused");
        return count;
      case Next::kBroken:
        if (done_ != head_) {
          fail_at(done_, IBV_WC_RETRY_EXC_ERR);
        } else {
          enter_error("the peer or the way to it is gone");
        }
        return count;
    }
  }
  return count;
}

// --- message links

Answer SoftQp::respond(const Request& request, std::span<const std::byte> payload,
                       std::span<const std::byte>* read_result) {
  const std::lock_guard guard(lock_);
  return respond_locked(request, payload, read_result);
}

Answer SoftQp::respond_locked(const Request& request, std::span<const std::byte> payload,
                              std::span<const std::byte>* read_result) {
  *read_result = {};
  if (state_ != IBV_QPS_RTR && state_ != IBV_QPS_RTS && state_ != IBV_QPS_SQD) {
    return {.kind = Answer::Kind::kError, .status = IBV_WC_RETRY_EXC_ERR};
  }
  if (request.sequence > expected_) return {.kind = Answer::Kind::kOutOfSequence};
  if (request.sequence < expected_) {
    // A duplicate: executed before. What returned data returns it again: a READ by reading anew.
    Answer answer;
    if (is_read(request.opcode)) {
      const ibv_wc_status status = access_memory(request, payload, read_result);
      if (status != IBV_WC_SUCCESS) return refuse(status, "a repeated read was refused");
    } else if (is_atomic(request.opcode)) {
      repeat_atomic(request.sequence, answer, read_result);
    }
    return answer;
  }
  if (state_ == IBV_QPS_RTR) heard_of_peer();
  const Answer answer = respond_checked(request, payload, read_result);
  if (answer.kind == Answer::Kind::kAck) ++expected_;
  return answer;
}

/// In RTR: the peer sends, so it is connected, whatever the connection manager knows.
void SoftQp::heard_of_peer() {
  if (std::exchange(heard_of_peer_, true)) return;
  device_.async_events().raise(established_event_, {.type = IBV_EVENT_COMM_EST, .qp = this});
}

/// To ERR. A failed receive tells of it, or an event.
Answer SoftQp::refuse(ibv_wc_status requester_status, std::string_view cause) {
  if (state_ != IBV_QPS_ERR) {
    if (receive_failure_ != IBV_WC_WR_FLUSH_ERR) {
      enter_error(cause);
    } else {
      fail(refusal_event(requester_status), cause);
    }
  }
  return {.kind = Answer::Kind::kError, .status = requester_status};
}

/// The checks that need none of a request's data. kAck: go on.
Answer SoftQp::checked_before_data(const Request& request) {
  if (check_qp_access(request.opcode, remote_access()) != IBV_WC_SUCCESS) {
    return refuse(IBV_WC_REM_INV_REQ_ERR, "the peer asked for what the QP does not allow");
  }
  if (needs_receive(request.opcode) && !have_receive()) {
    return {.kind = Answer::Kind::kNoReceive, .rnr_timer = attr_.min_rnr_timer};
  }
  return {};
}

Answer SoftQp::respond_checked(const Request& request, std::span<const std::byte> payload,
                               std::span<const std::byte>* read_result) {
  if (const Answer early = checked_before_data(request); early.kind != Answer::Kind::kAck) {
    return early;
  }
  const bool fits =
      is_atomic(request.opcode) ? request.length == kAtomicBytes : payload.size() == request.length;
  if (!is_read(request.opcode) && !fits) {
    return refuse(IBV_WC_REM_INV_REQ_ERR, "a message of the wire has another length than it says");
  }
  if (is_atomic(request.opcode)) return change_word(request, read_result);
  if (!is_send(request.opcode)) {
    const ibv_wc_status status = access_memory(request, payload, read_result);
    if (status != IBV_WC_SUCCESS) return refuse(status, "the peer may not access this memory");
  }
  if (!needs_receive(request.opcode)) return {};
  const bool send = is_send(request.opcode);
  const Arrival arrival{.opcode = send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
                        .solicited = request.solicited,
                        .has_imm = has_imm(request.opcode),
                        .invalidates = request.opcode == IBV_WR_SEND_WITH_INV,
                        .imm = request.imm,
                        .length = request.length,
                        .payload = payload};
  const ibv_wc_status status = receive(arrival);
  if (status != IBV_WC_SUCCESS) return refuse(status, "a receive failed");
  return {};
}

// --- stream links: a request whose data comes in several steps

Answer SoftQp::land(const Request& request, bool begun, Landing& landing) {
  landing.count = 0;
  if (state_ != IBV_QPS_RTR && state_ != IBV_QPS_RTS && state_ != IBV_QPS_SQD) {
    return {.kind = Answer::Kind::kError, .status = IBV_WC_RETRY_EXC_ERR};
  }
  if (request.sequence != expected_) return {.kind = Answer::Kind::kOutOfSequence};
  if (!begun) {
    if (state_ == IBV_QPS_RTR) heard_of_peer();
    if (const Answer early = checked_before_data(request); early.kind != Answer::Kind::kAck) {
      return early;
    }
  }
  if (!is_send(request.opcode)) {
    MrView mr;
    const ibv_wc_status status = check_memory(request, mr);
    if (status != IBV_WC_SUCCESS) return refuse(status, "the peer may not access this memory");
    landing.pieces[landing.count++] = {reinterpret_cast<std::byte*>(request.remote_address),
                                       request.length};
    return {};
  }
  if (const ibv_wc_status status = check_receive(request.length); status != IBV_WC_SUCCESS) {
    receive_failure_ = status;
    return refuse(status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR,
                  "a receive failed");
  }
  uint32_t left = request.length;
  for (const Sge& sge : rq_.at(rq_tail_).sges()) {
    const uint32_t bytes = std::min(sge.length, left);
    if (bytes == 0) continue;
    landing.pieces[landing.count++] = {reinterpret_cast<std::byte*>(sge.addr), bytes};
    left -= bytes;
  }
  return {};
}

Answer SoftQp::respond_landed(const Request& request) {
  const bool invalidates = request.opcode == IBV_WR_SEND_WITH_INV;
  if (invalidates && !invalidate_for_peer(request.imm)) {
    return refuse(IBV_WC_REM_ACCESS_ERR, "a receive failed");
  }
  ++expected_;
  if (!needs_receive(request.opcode)) return {};
  const Arrival arrival{.opcode = is_send(request.opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
                        .solicited = request.solicited,
                        .has_imm = has_imm(request.opcode),
                        .invalidates = invalidates,
                        .imm = request.imm,
                        .length = request.length};
  complete_receive(arrival, IBV_WC_SUCCESS);
  return {};
}

std::span<const std::byte> SoftQp::readable(const Request& request) {
  MrView mr;
  if (request.length == 0 || check_memory(request, mr) != IBV_WC_SUCCESS) return {};
  return {reinterpret_cast<const std::byte*>(request.remote_address), request.length};
}

/// An atomic came again: its answer was lost on the way, or it was sent twice.
void SoftQp::repeat_atomic(uint64_t sequence, Answer& answer,
                           std::span<const std::byte>* result) const {
  const uint64_t kept = std::min<uint64_t>(atomics_executed_, atomic_results_.size());
  for (const AtomicResult& each : std::span(atomic_results_).first(kept)) {
    if (each.sequence != sequence) continue;
    *result = std::as_bytes(std::span(&each.before, 1));
    return;
  }
  answer.kind = Answer::Kind::kOutOfSequence;  // not to be known any more: say nothing
}

/// Whether the peer may do that, and to which memory.
ibv_wc_status SoftQp::check_memory(const Request& request, MrView& mr) const {
  if (!mr_table_.find(request.rkey, mr)) return IBV_WC_REM_ACCESS_ERR;
  return check_mr_access(request.opcode, mr, pd_id_, number_, request.remote_address,
                         request.length);
}

Answer SoftQp::change_word(const Request& request, std::span<const std::byte>* result) {
  MrView mr;
  if (const ibv_wc_status status = check_memory(request, mr); status != IBV_WC_SUCCESS) {
    return refuse(status, "the peer may not access this memory");
  }
  uint64_t before = 0;
  switch (device_.wire().change_word(request, mr, before)) {
    case Wire::WordChange::kDone:
      break;
    case Wire::WordChange::kBusy:
      return {.kind = Answer::Kind::kBusy};
    case Wire::WordChange::kFailed:
      return refuse(IBV_WC_REM_OP_ERR, "a word could not be kept from others");
  }
  AtomicResult& kept = atomic_results_[atomics_executed_++ % atomic_results_.size()];
  kept = {.sequence = request.sequence, .before = before};
  *result = std::as_bytes(std::span(&kept.before, 1));
  return {};
}

/// Reads or writes memory for the peer, if it may.
ibv_wc_status SoftQp::access_memory(const Request& request, std::span<const std::byte> payload,
                                    std::span<const std::byte>* read_result) {
  if (request.length == 0) return IBV_WC_SUCCESS;
  MrView mr;
  const ibv_wc_status status = check_memory(request, mr);
  if (status != IBV_WC_SUCCESS) return status;
  auto* const memory = reinterpret_cast<std::byte*>(request.remote_address);
  if (is_read(request.opcode)) {
    *read_result = {memory, request.length};
  } else {
    copy_last_word_last(memory, payload.data(), request.length);
  }
  return IBV_WC_SUCCESS;
}

}  // namespace braid::vhca::soft
