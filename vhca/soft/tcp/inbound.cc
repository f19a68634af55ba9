// TcpStream, what comes from the peer: requests for the responder, answers for the requester.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "vhca/soft/remote_check.h"
#include "vhca/soft/tcp/stream.h"

namespace braid::vhca::soft::tcp {

using base::Errc;

namespace {

/// Between looks of polls at a word that somebody else is at, who needs a few microseconds, unless
/// he was stopped.
constexpr uint64_t kWordPollMinNs = 2 * base::kMicrosecond;
constexpr uint64_t kWordPollMaxNs = base::kMillisecond;
/// It says that it is ready, and before that perhaps what its port does. Until then whoever accepts
/// it cannot bound what it costs.
constexpr uint32_t kFramesBeforeReadyMax = 64;

}  // namespace

/// Handles all frames that the buffer holds whole, and what it holds of a longer one.
void TcpStream::parse() {
  waits_for_word_.store(false, std::memory_order_relaxed);
  while (dead_ == Errc::kOk) {
    if (into_ != Into::kBuffer) {
      land_from_buffer();
      if (landed_ < landing_.length) return;
      landing_done();
      continue;
    }
    const size_t here = filled_ - begin_;
    if (here < sizeof(FrameHeader)) return;
    FrameHeader header;
    std::memcpy(&header, buffer_.get() + begin_, sizeof header);
    if (!check(header)) return;
    if (changes_memory(header) && out_.responses() > 0) send();
    // Only a peer that asks for more at a time than it may gets here: what it is owed has room.
    stuck_ = static_cast<FrameKind>(header.kind) == FrameKind::kRequest && !out_.room_for_answer();
    if (stuck_) return events_.want_write();
    const uint64_t total = sizeof header + header.length;
    if (total > kBufferBytes) {
      begin_ += sizeof header;
      if (budget_) budget_->handled_frame();
      begin_landing(header);
      continue;
    }
    if (here < total) return;
    const std::span<const std::byte> data(buffer_.get() + begin_ + sizeof header, header.length);
    begin_ += total;
    if (budget_) budget_->handled_frame();
    dispatch(header, data);
    if (!waits_for_word()) continue;
    begin_ -= total;  // comes again, as if it had not been received
    return events_.word_is_claimed();
  }
}

/// Somebody is at the word of the next request. Polls leave it alone for a while, the longer the
/// more often that was so: each look is system calls under the QP's lock.
void TcpStream::wait_for_word() {
  waits_for_word_.store(true, std::memory_order_relaxed);
  word_wait_ns_ = std::clamp(2 * word_wait_ns_, kWordPollMinNs, kWordPollMaxNs);
  word_again_ns_ = host_.now_ns() + word_wait_ns_;
}

/// A request that READs before it had better not see: their data goes first, if the socket takes
/// it. Nothing waits for that: two ends that do would wait for each other.
bool TcpStream::changes_memory(const FrameHeader& header) {
  return static_cast<FrameKind>(header.kind) == FrameKind::kRequest &&
         !is_read(static_cast<ibv_wr_opcode>(header.opcode));
}

bool TcpStream::check(const FrameHeader& header) {
  if (const auto wrong = validate(header); wrong.has_value()) {
    violate(fmt::format("a frame with {}", *wrong));
  } else if (header.epoch != options_.epoch) {
    violate(fmt::format("a frame of another connection (epoch {:#x}, this is {:#x})",
                        uint32_t{header.epoch}, options_.epoch));
  } else if (header.acknowledged > out_.requests_sent() && !closed_) {
    violate(fmt::format("{} requests were acknowledged; {} were sent",
                        uint64_t{header.acknowledged}, out_.requests_sent()));
  } else if (awaits_ready_ && static_cast<FrameKind>(header.kind) != FrameKind::kReady &&
             static_cast<FrameKind>(header.kind) != FrameKind::kDisconnect &&
             static_cast<FrameKind>(header.kind) != FrameKind::kPort &&
             static_cast<FrameKind>(header.kind) != FrameKind::kGone) {
    violate(fmt::format("a frame of kind {} before the peer was ready", header.kind));
  } else if (awaits_ready_ && ++frames_before_ready_ > kFramesBeforeReadyMax) {
    violate(fmt::format("more than {} frames before the peer was ready", kFramesBeforeReadyMax));
  }
  return dead_ == Errc::kOk;
}

void TcpStream::dispatch(const FrameHeader& header, std::span<const std::byte> data) {
  const auto kind = static_cast<FrameKind>(header.kind);
  if (kind == FrameKind::kDisconnect) {
    in_order_ = true;
    return fail(Errc::kDisconnected);
  }
  if (closed_ || end_ == nullptr) return;
  if (header.acknowledged > acknowledged_) acknowledged_ = header.acknowledged;
  switch (kind) {
    case FrameKind::kRequest:
      advance();
      return respond(header, data);
    case FrameKind::kAnswer:
      return advance();
    case FrameKind::kResponse:
      return response(header, data, /*landed=*/false);
    case FrameKind::kNoReceive:
    case FrameKind::kError:
      return refused(header);
    case FrameKind::kReady:
      if (!std::exchange(awaits_ready_, false)) return violate("a second word that it is ready");
      (void)end_->start_sending_locked();
      return events_.peer_ready();
    case FrameKind::kPort:
      return port_word(header.status != 0);
    case FrameKind::kGone:
      advance();
      peer_gone_ = true;
      if (answered_ < next_ && !closed_) end_->broken_locked();
      return;
    default:
      return violate(fmt::format("a frame of kind {} on an established connection", header.kind));
  }
}

// --- as responder

void TcpStream::respond(const FrameHeader& header, std::span<const std::byte> data) {
  if (closed_) return;
  Request request = request_of(header);
  if (returns_data(request.opcode) && request.sequence == executed_ &&
      out_.responses() >= kReadsMax) {
    out_.push_error(request.sequence, IBV_WC_REM_INV_REQ_ERR);
    return end_->refused_locked(IBV_WC_REM_INV_REQ_ERR,
                                "the peer has more READs and atomics under way than it may");
  }
  if (is_atomic(request.opcode)) {
    Operands operands;
    std::memcpy(&operands, data.data(), sizeof operands);
    request.compare_add = operands.compare_add;
    request.swap = operands.swap;
    data = {};
  }
  std::span<const std::byte> result;
  const Answer verdict = end_->respond_locked(request, data, &result);
  if (verdict.kind == Answer::Kind::kBusy) return wait_for_word();
  word_wait_ns_ = 0;
  answer(request, verdict, result);
  if (hindered()) [[unlikely]]
    respond_again(request, data, verdict);
}

void TcpStream::answer(const Request& request, const Answer& answer,
                       std::span<const std::byte> result) {
  if (answer.kind == Answer::Kind::kOutOfSequence) return;
  const bool executed = answer.kind == Answer::Kind::kAck;
  if (executed && request.sequence == executed_) ++executed_;
  if (withholds()) [[unlikely]]
    return withhold(request, answer, result);
  push_answer(request, answer, result);
}

void TcpStream::push_answer(const Request& request, const Answer& answer,
                            std::span<const std::byte> result) {
  switch (answer.kind) {
    case Answer::Kind::kNoReceive:
      return out_.push_no_receive(request.sequence, answer.rnr_timer);
    case Answer::Kind::kError:
      return out_.push_error(request.sequence, answer.status);
    case Answer::Kind::kOutOfSequence:
    case Answer::Kind::kBusy:
      return;
    case Answer::Kind::kAck:
      break;
  }
  if (is_read(request.opcode)) return out_.push_read_response(request);
  if (is_atomic(request.opcode)) return out_.push_response(request, result);
  if (executed_ == out_.told() + 1) unacknowledged_since_ns_ = host_.now_ns();
  const bool pending = executed_ > out_.told() + 1;
  urgent_ = request.signaled || (urgent_ && pending);
  told_owner_ = needs_receive(request.opcode) || (told_owner_ && pending);
}

// --- as requester

/// Tells the core of all that is answered by an acknowledgement alone.
void TcpStream::advance() {
  while (!closed_ && answered_ < acknowledged_) {
    const bool waits_for_data =
        reads_head_ != reads_tail_ && reads_[reads_tail_ % reads_.size()].sequence == answered_;
    if (waits_for_data) return;
    end_->answered_locked(answered_++, {}, {});
  }
}

/// Whether the response of this READ or atomic is what is waited for. If it was had before it is to
/// be dropped; anything else is a violation.
bool TcpStream::outstanding(uint64_t sequence, uint32_t length) {
  if (sequence >= out_.requests_sent()) {
    violate(fmt::format("a response to request {}; {} were sent", sequence, out_.requests_sent()));
    return false;
  }
  acknowledged_ = std::max(acknowledged_, sequence);
  advance();
  if (closed_ || sequence < answered_) return false;
  const bool next = reads_head_ != reads_tail_ && answered_ == sequence &&
                    reads_[reads_tail_ % reads_.size()].sequence == sequence;
  if (!next) {
    violate(fmt::format("a response to request {}, which returns no data", sequence));
  } else if (const uint32_t wanted = reads_[reads_tail_ % reads_.size()].length; wanted != length) {
    violate(fmt::format("a response of {} bytes to a request of {}", length, wanted));
  }
  return dead_ == Errc::kOk;
}

void TcpStream::response(const FrameHeader& header, std::span<const std::byte> data, bool landed) {
  const auto length = static_cast<uint32_t>(header.length);
  if (closed_ || (!landed && !outstanding(header.sequence, length))) return;
  ++reads_tail_;
  answered_ = header.sequence + 1;
  end_->answered_locked(header.sequence, {.landed = landed}, data);
  advance();
}

void TcpStream::refused(const FrameHeader& header) {
  const uint64_t sequence = header.sequence;
  if (sequence >= out_.requests_begun()) {
    return violate(
        fmt::format("request {} was refused; {} were sent", sequence, out_.requests_begun()));
  }
  acknowledged_ = std::max(acknowledged_, sequence);
  advance();
  if (closed_ || sequence < answered_) return;
  if (answered_ != sequence) {
    return violate(
        fmt::format("request {} was refused before {} was answered", sequence, answered_));
  }
  if (static_cast<FrameKind>(header.kind) == FrameKind::kNoReceive) {
    out_.go_back(sequence);
    acknowledged_ = sequence;
    return end_->answered_locked(
        sequence, {.kind = Answer::Kind::kNoReceive, .rnr_timer = header.rnr_timer}, {});
  }
  end_->answered_locked(
      sequence, {.kind = Answer::Kind::kError, .status = static_cast<ibv_wc_status>(header.status)},
      {});
}

}  // namespace braid::vhca::soft::tcp
