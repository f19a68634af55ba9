#include "vhca/soft/tcp/outbound.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "vhca/soft/remote_check.h"

namespace braid::vhca::soft::tcp {

using base::Errc;

Outbound::Outbound(base::StreamSocket& socket, uint32_t requests_max)
    : socket_(socket),
      mask_(std::bit_ceil(std::clamp(requests_max, 1u, 128u) + kAnswers) - 1),
      frames_(std::make_unique<Frame[]>(mask_ + 1)) {}

Outbound::Frame& Outbound::add(FrameKind kind, uint64_t sequence, Body body) {
  BRAID_ASSERT(count() <= mask_);  // the caller asked for room
  Frame& added = frame(head_++);
  added.header = {};
  added.header.magic = kFrameMagic;
  added.header.version = kFrameVersion;
  added.header.kind = static_cast<uint8_t>(kind);
  added.header.epoch = epoch_;
  added.header.sequence = sequence;
  added.body = body;
  added.due_ns = due_ns_;
  return added;
}

void Outbound::hold(Hold hold, uint64_t now_ns, uint64_t delay_ns) {
  hold_ = hold;
  now_ns_ = now_ns;
  due_ns_ = hold == Hold::kUntilDue ? now_ns + delay_ns : 0;
}

uint32_t Outbound::held_limit() {
  uint32_t at = tail_ + (offset_ > 0 ? 1 : 0);
  if (hold_ == Hold::kAll || (urgent_left_ > 0 && offset_ > 0)) return at;
  if (hold_ == Hold::kNone) return head_;
  while (at != head_ && frame(at).due_ns <= now_ns_) ++at;
  return at;
}

bool Outbound::push_port(bool loses) {
  if (urgent_left_ != 0 && urgent_left_ != sizeof urgent_) return false;
  urgent_ = {};
  urgent_.magic = kFrameMagic;
  urgent_.version = kFrameVersion;
  urgent_.kind = static_cast<uint8_t>(FrameKind::kPort);
  urgent_.epoch = epoch_;
  urgent_.status = loses ? 1 : 0;
  urgent_left_ = sizeof urgent_;
  return true;
}

Errc Outbound::send_urgent() {
  urgent_.acknowledged = told_;
  const auto* const bytes = reinterpret_cast<const std::byte*>(&urgent_);
  iovec piece{const_cast<std::byte*>(bytes) + sizeof urgent_ - urgent_left_, urgent_left_};
  size_t taken = 0;
  if (const Errc failed = socket_.send({&piece, 1}, taken); failed != Errc::kOk) return failed;
  urgent_left_ -= taken;
  return Errc::kOk;
}

void Outbound::push(FrameKind kind, uint64_t sequence) {
  add(kind, sequence, Body::kNone);
}

void Outbound::push_request(const Request& request) {
  const bool atomic = is_atomic(request.opcode);
  const Body body = atomic ? Body::kInline : is_read(request.opcode) ? Body::kNone : Body::kPieces;
  Frame& added = add(FrameKind::kRequest, request.sequence, body);
  FrameHeader& header = added.header;
  header.flags = static_cast<uint8_t>((request.solicited ? kFlagSolicited : 0) |
                                      (request.signaled ? kFlagSignaled : 0));
  header.opcode = static_cast<uint8_t>(request.opcode);
  header.length = bytes_behind(request.opcode, request.length);
  header.remote_address = request.remote_address;
  header.rkey = request.rkey;
  header.imm = request.imm;
  header.requested = request.length;
  added.pieces = request.pieces;
  added.round = round_;
  if (!atomic) return;
  Operands operands;
  operands.compare_add = request.compare_add;
  operands.swap = request.swap;
  std::memcpy(added.bytes, &operands, sizeof operands);
}

void Outbound::push_error(uint64_t sequence, ibv_wc_status status) {
  add(FrameKind::kError, sequence, Body::kNone).header.status = static_cast<uint8_t>(status);
}

void Outbound::push_no_receive(uint64_t sequence, uint8_t rnr_timer) {
  add(FrameKind::kNoReceive, sequence, Body::kNone).header.rnr_timer = rnr_timer;
}

void Outbound::push_response(const Request& request, std::span<const std::byte> word) {
  Frame& added = add(FrameKind::kResponse, request.sequence, Body::kInline);
  added.header.length = word.size();
  ++responses_;
  std::memcpy(added.bytes, word.data(), word.size());
}

void Outbound::push_read_response(const Request& request) {
  const Body body = request.length == 0 ? Body::kNone : Body::kMemory;
  Frame& added = add(FrameKind::kResponse, request.sequence, body);
  added.header.length = request.length;
  added.read = request;
  ++responses_;
}

Errc Outbound::flush(LockedEnd* end, uint64_t executed, uint64_t most, uint64_t& sent) {
  for (sent = 0; sendable() && sent < most;) {
    if (urgent_left_ > 0 && offset_ == 0) [[unlikely]] {
      if (const Errc failed = send_urgent(); failed != Errc::kOk) return failed;
      continue;
    }
    Gathered out;
    if (!gather(out, end, executed)) return Errc::kStale;
    out.trim(std::min(kBytesPerCall, most - sent));
    size_t taken = 0;
    if (const Errc failed = socket_.send({out.iov, out.count}, taken); failed != Errc::kOk) {
      return failed;
    }
    sent += taken;
    count_sent(taken);
  }
  return Errc::kOk;
}

bool Outbound::gather(Gathered& out, LockedEnd* end, uint64_t executed) {
  uint64_t skip = offset_;
  const uint32_t end_at = limit();
  for (uint32_t at = tail_; at != end_at && !out.full(); ++at) {
    Frame& next = frame(at);
    if (skip == 0) next.header.acknowledged = executed;
    const uint64_t of_header = std::min<uint64_t>(skip, sizeof(FrameHeader));
    out.add(reinterpret_cast<const std::byte*>(&next.header) + of_header,
            sizeof(FrameHeader) - of_header);
    const uint64_t before = out.bytes;
    if (!gather_body(next, skip - of_header, out, end)) {
      if (at == tail_) return false;
      // What stands before it goes first.
      out.bytes -= sizeof(FrameHeader);
      --out.count;
      break;
    }
    BRAID_ASSERT(out.bytes - before == next.header.length - (skip - of_header));
    skip = 0;
  }
  return true;
}

bool Outbound::gather_body(Frame& frame, uint64_t skip, Gathered& out, LockedEnd* end) {
  switch (frame.body) {
    case Body::kNone:
      return true;
    case Body::kInline:
      out.add(frame.bytes + skip, frame.header.length - skip);
      return true;
    case Body::kMemory: {
      const std::span<const std::byte> memory =
          end != nullptr ? end->readable(frame.read) : std::span<const std::byte>();
      if (memory.empty()) return false;
      out.add(memory.data() + skip, memory.size() - skip);
      return true;
    }
    case Body::kPieces:
      if (end == nullptr || !end->stand(frame.pieces, /*lands=*/false)) return false;
      break;
  }
  for (const Piece& piece : frame.pieces) {
    const uint64_t skipped = std::min<uint64_t>(skip, piece.length);
    out.add(piece.address + skipped, piece.length - skipped);
    skip -= skipped;
  }
  return true;
}

void Outbound::count_sent(uint64_t bytes) {
  while (bytes > 0) {
    const Frame& oldest = frame(tail_);
    const uint64_t total = sizeof(FrameHeader) + oldest.header.length;
    const uint64_t taken = std::min(bytes, total - offset_);
    told_ = oldest.header.acknowledged;
    offset_ += taken;
    bytes -= taken;
    count_request(oldest);
    if (offset_ < total) return;
    drop_oldest();
  }
}

void Outbound::drop_oldest() {
  offset_ = 0;
  if (is(frame(tail_), FrameKind::kResponse)) --responses_;
  ++tail_;
}

void Outbound::refuse_oldest(ibv_wc_status status) {
  Frame& oldest = frame(tail_);
  BRAID_ASSERT(offset_ == 0 && oldest.body == Body::kMemory);
  --responses_;
  oldest.body = Body::kNone;
  oldest.header.kind = static_cast<uint8_t>(FrameKind::kError);
  oldest.header.status = static_cast<uint8_t>(status);
  oldest.header.length = 0;
}

/// The oldest frame, of which more has been sent.
void Outbound::count_request(const Frame& frame) {
  if (frame.header.kind != static_cast<uint8_t>(FrameKind::kRequest)) return;
  if (frame.round != round_ || offset_ < sizeof(FrameHeader)) return;
  requests_begun_ = frame.header.sequence + 1;
  if (offset_ == sizeof(FrameHeader) + frame.header.length) requests_sent_ = requests_begun_;
}

void Outbound::go_back(uint64_t sequence) {
  ++round_;
  requests_sent_ = requests_begun_ = sequence;
}

std::optional<uint64_t> Outbound::oldest_request() {
  if (!is(frame(tail_), FrameKind::kRequest)) return std::nullopt;
  return frame(tail_).header.sequence;
}

/// Of the frames from `from` on.
template <typename Keeps>
void Outbound::keep(uint32_t from, Keeps&& keeps) {
  uint32_t kept = from;
  for (uint32_t at = from; at != head_; ++at) {
    if (!keeps(frame(at))) continue;
    if (kept != at) frame(kept) = frame(at);
    ++kept;
  }
  head_ = kept;
}

bool Outbound::drop_requests() {
  BRAID_ASSERT(offset_ == 0);
  if (frame(tail_).round != round_) {
    drop_oldest();
    return false;
  }
  keep(tail_, [](const Frame& each) { return !is(each, FrameKind::kRequest); });
  return true;
}

bool Outbound::drop_data() {
  const auto stays = [](const Frame& each) {
    return each.body == Body::kNone ||
           (each.body == Body::kInline && is(each, FrameKind::kResponse));
  };
  const bool begun = !empty() && offset_ > 0;
  if (begun && !stays(frame(tail_))) return false;
  keep(tail_ + (begun ? 1 : 0),
       [stays](const Frame& each) { return stays(each) && !is(each, FrameKind::kRequest); });
  responses_ = 0;
  for (uint32_t at = tail_; at != head_; ++at) {
    responses_ += is(frame(at), FrameKind::kResponse) ? 1 : 0;
  }
  return true;
}

}  // namespace braid::vhca::soft::tcp
