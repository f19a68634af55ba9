#include "vhca/soft/inhost/link.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "vhca/soft/copy.h"
#include "vhca/soft/inhost/access.h"
#include "vhca/soft/remote_check.h"

namespace braid::vhca::soft::inhost {
namespace {

using Room = OutboundRing::Room;

constexpr uint32_t kReceiveBytesMax = kUnusableReceive - 1;

constexpr Execution failed(ibv_wc_status status) {
  return {.outcome = Outcome::kFailed, .status = status};
}

}  // namespace

// --- InHostLink: life

InHostLink::InHostLink(base::Host& host, CopyTable& table, LinkEnd& end, LinkParts parts)
    : Link(LinkFamily::kDirect),
      copies_(std::make_shared<PeerCopies>(std::move(parts.own_segment), parts.peer)),
      outbound_(SegmentView(parts.peer_segment->data(), parts.peer_geometry), *mark_,
                parts.heavy_fence_exists, parts.peer_shares_receives),
      inbound_(SegmentView(copies_->inbound(), parts.own_geometry), parts.own_shares_receives),
      peer_(std::move(parts.peer)),
      peer_event_(std::move(parts.peer_event)),
      peer_send_event_(std::move(parts.peer_send_event)),
      wakes_peer_sends_(peer_send_event_ != nullptr ? peer_send_event_.get() : peer_event_.get()),
      peer_qp_number_(parts.peer_qp_number),
      own_shares_receives_(parts.own_shares_receives),
      peer_shares_receives_(parts.peer_shares_receives),
      port_(*parts.port),
      retry_ns_(parts.retry_ns),
      host_(host),
      table_(table),
      end_(end),
      pd_(end.info().pd),
      channel_(std::move(parts.channel)),
      peer_segment_(std::move(parts.peer_segment)) {
  peer_->add_mark(mark_);
  table_.add(copies_);
  channel_->set_user(this);
  port_.join(*this);
  port_changed();
}

InHostLink::~InHostLink() {
  port_.leave(*this);
  channel_->forget_user();
  (void)close();
  table_.remove(*copies_);
  peer_->remove_mark(*mark_);
}

void InHostLink::peer_gone() {
  gone_.store(true, std::memory_order_release);
  end_.wake();
}

bool InHostLink::close() {
  if (!std::exchange(closed_, true)) {
    const auto close_gate = [this] {
      const std::lock_guard guard(gate_mutex_);
      gate_ = {.state = EndState::kClosed};
      publish_gate();
    };
    last_copy_ = withdraw(
        close_gate, [this] { host_.heavy_fence(); },
        [this] { return copies_->under_way(kAnyKey); });
  }
  if (last_copy_ != 0 && copies_->ended(last_copy_)) last_copy_ = 0;
  return last_copy_ == 0;
}

std::unique_ptr<PeerFence> InHostLink::fence_window(uint32_t key) {
  const uint64_t copy = inhost::fence_window(*copies_, key);
  return copy == 0 ? nullptr : fence_copy(copies_, copy);
}

void InHostLink::qp_changed(uint32_t access, uint8_t min_rnr_timer) {
  if (closed_) return;
  const std::lock_guard guard(gate_mutex_);
  gate_ = {.state = EndState::kOpen,
           .access = static_cast<uint8_t>(access),
           .rnr_timer = static_cast<uint8_t>(min_rnr_timer & 31),
           .pd = pd_};
  publish_gate();
}

// --- receive side

Next InHostLink::next_arrival(Arrival& arrival) {
  Next next = inbound_.next(arrival);
  if (next == Next::kNone) [[likely]] {
    if (!gone_.load(std::memory_order_acquire)) [[likely]]
      return Next::kNone;
    // What the peer had sent before it went is delivered, also what came after our look.
    next = inbound_.next(arrival);
    if (next == Next::kNone) return Next::kBroken;
  }
  if (next == Next::kBroken && !gone_.exchange(true)) {
    channel_->fail(fmt::format("the peer broke a rule of the ring: {}", inbound_.broken_rule()));
  }
  return next;
}

void InHostLink::receive_posted(uint32_t length_bytes, bool usable,
                                std::span<const uint32_t> lkeys) {
  inbound_.post(std::min(length_bytes, kReceiveBytesMax), usable, lkeys);
  if (own_shares_receives_) answered_wish();
}

void InHostLink::no_receive() {
  inbound_.refuse_wish();
  answered_wish();
}

void InHostLink::answered_wish() {
  if (outbound_.peer_waits_asleep() && wakes_peer_sends_ != nullptr) wakes_peer_sends_->signal();
}

void InHostLink::arm(bool armed, bool solicited_only) {
  const ArmMode mode = solicited_only ? ArmMode::kSolicited : ArmMode::kAny;
  inbound_.arm(armed ? mode : ArmMode::kPolls);
}

bool InHostLink::arm_sends(bool armed) {
  if (!peer_shares_receives_) return false;
  inbound_.arm_sends(armed);
  return true;
}

// --- send side

Execution InHostLink::execute(const Request& request) {
  const bool gone = gone_.load(std::memory_order_relaxed);
  const bool hindered = hindered_.load(std::memory_order_relaxed);
  if (closed_ | gone | hindered) [[unlikely]] {
    return closed_ || gone ? failed(IBV_WC_RETRY_EXC_ERR) : execute_hindered(request);
  }
  return execute_now(request);
}

Execution InHostLink::execute_now(const Request& request) {
  if (is_send(request.opcode)) return execute_send(request);
  if (is_atomic(request.opcode)) [[unlikely]]
    return execute_atomic(request);
  return execute_rdma(request);
}

/// After a message was pushed: wakes the peer if it sleeps.
Execution InHostLink::pushed(bool solicited) {
  if (outbound_.must_signal(solicited) && peer_event_) peer_event_->signal();
  return {};
}

Execution InHostLink::execute_rdma(const Request& request) {
  const bool with_imm = request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  Execution moved;
  Room room = Room::kReady;
  const Gate gate = visit(outbound_, request.rkey, [&](const Gate& seen) {
    if (!passes(seen)) [[unlikely]]
      return;
    const ibv_wc_status allowed = check_qp_access(request.opcode, seen.access);
    if (allowed != IBV_WC_SUCCESS) {
      moved = failed(allowed);
      return;
    }
    if (with_imm) room = outbound_.ready();
    if (room == Room::kReady && request.length != 0) moved = move_data(request, seen.pd);
  });
  if (!passes(gate)) [[unlikely]]
    return not_open(request, gate);
  if (moved.outcome != Outcome::kDone) [[unlikely]]
    return moved.outcome == Outcome::kFailed ? refuse(moved.status, IBV_WC_SUCCESS) : moved;
  if (!with_imm) return {};
  if (room != Room::kReady) return no_room(room, gate);
  outbound_.push_write_imm(request.imm, request.remote_address, request.length, request.solicited);
  return pushed(request.solicited);
}

Execution InHostLink::execute_send(const Request& request) {
  const Gate gate = outbound_.gate();
  if (!passes(gate)) [[unlikely]]
    return not_open(request, gate);
  if (!outbound_.in_fragments()) {
    if (const Room room = outbound_.ready(); room != Room::kReady) return no_room(room, gate);
    const OutboundRing::Receive receive = outbound_.next_receive();
    if (request.length > receive.capacity_bytes) {
      return refuse(IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
    }
    if (!receive.usable || !outbound_.next_receive_stands([this](uint32_t key) {
          return peer_->entry(key).key.load(std::memory_order_acquire) == key;
        })) {
      return refuse(IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
    }
    if (request.opcode == IBV_WR_SEND_WITH_INV && !can_invalidate(request.imm)) {
      return refuse(IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS);
    }
  }
  const auto flags =
      static_cast<uint8_t>((request.opcode == IBV_WR_SEND_WITH_IMM ? kSlotHasImm : 0) |
                           (request.opcode == IBV_WR_SEND_WITH_INV ? kSlotInvalidates : 0) |
                           (request.solicited ? kSlotSolicited : 0));
  const Room room = outbound_.push_send(request, flags);
  if (room == Room::kReady) return pushed(request.solicited);
  return no_room(room, gate);
}

/// Whether the key is that of a window of the peer's QP. The peer looks again.
bool InHostLink::can_invalidate(uint32_t key) const {
  MrView window;
  return read_mr(peer_->entry(key), key, window) && window.pd == window_scope(peer_qp_number_);
}

/// The peer's memory as mapped here, if the rkey allows it; null: foreign memory.
Execution InHostLink::resolve(const Request& request, uint32_t pd, std::byte*& memory) {
  MrView mr;
  const ibv_wc_status status =
      look_up(peer_->entry(request.rkey), request, pd, peer_qp_number_, mr);
  if (status != IBV_WC_SUCCESS) return failed(status);
  memory = nullptr;
  if (mr.place.segment == kForeignMemory) return {};
  const PeerDevice::Mapping* mapping = peer_->mapping(mr.place.segment);
  if (mapping == nullptr) [[unlikely]] {
    // It was announced before its first rkey could be known to anyone.
    const bool read_all = channel_->read_announcements();
    mapping = peer_->mapping(mr.place.segment);
    if (mapping == nullptr && !read_all) return {.outcome = Outcome::kFull};
  }
  if (mapping == nullptr) return failed(IBV_WC_REM_ACCESS_ERR);
  const auto offset = offset_in_mapping(mr, request, mapping->size_bytes);
  if (!offset.has_value()) return failed(IBV_WC_REM_ACCESS_ERR);
  memory = mapping->data + *offset;
  return {};
}

/// Copies between the request's pieces and the peer's memory, if the rkey allows it.
Execution InHostLink::move_data(const Request& request, uint32_t pd) {
  std::byte* memory = nullptr;
  const Execution resolved = resolve(request, pd, memory);
  if (resolved.outcome != Outcome::kDone) return resolved;
  if (memory == nullptr) return move_foreign(request);
  for (const Piece& piece : request.pieces) {
    if (is_read(request.opcode)) {
      copy_last_word_last(piece.address, memory, piece.length);
    } else {
      copy_last_word_last(memory, piece.address, piece.length);
    }
    memory += piece.length;
  }
  return {};
}

/// Memory of the peer that lies in no segment: the kernel copies.
Execution InHostLink::move_foreign(const Request& request) {
  constexpr size_t kPieces = 16;
  constexpr uint32_t kLast = sizeof(uint64_t);
  uint64_t address = request.remote_address;
  const bool read = is_read(request.opcode);
  for (size_t next = 0; next < request.pieces.size();) {
    std::array<std::span<std::byte>, kPieces + 1> spans;
    size_t count = 0;
    uint64_t bytes = 0;
    for (; next < request.pieces.size() && count < kPieces; ++next) {
      const Piece& piece = request.pieces[next];
      // The last bytes are a piece of their own: the kernel copies the pieces one by one, in order.
      const uint32_t tail = piece.length > kLast && next + 1 == request.pieces.size() ? kLast : 0;
      spans[count++] = {piece.address, piece.length - tail};
      if (tail != 0) spans[count++] = {piece.address + piece.length - tail, tail};
      bytes += piece.length;
    }
    base::Errc result = base::Errc::kOk;
    if (read) {
      result = peer_->process().read(address, std::span(spans).first(count));
    } else {
      std::array<std::span<const std::byte>, kPieces + 1> sources;
      std::copy_n(spans.begin(), count, sources.begin());
      result = peer_->process().write(address, std::span(sources).first(count));
    }
    if (result == base::Errc::kDisconnected) return failed(IBV_WC_RETRY_EXC_ERR);
    if (result != base::Errc::kOk) return failed(IBV_WC_REM_OP_ERR);
    address += bytes;
  }
  return {};
}

Execution InHostLink::refuse(ibv_wc_status status, ibv_wc_status for_receive) {
  if (status == IBV_WC_RETRY_EXC_ERR) return failed(status);
  outbound_.push_fault(status, for_receive);
  (void)pushed(true);
  return failed(status);
}

Execution InHostLink::not_open(const Request& request, const Gate& gate) {
  if (gate.state == EndState::kPreparing) return {.outcome = Outcome::kFull};
  if (gate.state == EndState::kTroubled) return execute_hindered(request);
  return failed(IBV_WC_RETRY_EXC_ERR);
}

Execution InHostLink::no_room(Room room, const Gate& gate) {
  switch (room) {
    case Room::kNoReceive:
      return {.outcome = Outcome::kNoReceive, .rnr_timer = gate.rnr_timer};
    case Room::kBroken:
      return ring_broken();
    default:
      break;
  }
  // A sleeper must drain fragments, or give us a receive, and then be woken for the message as
  // well.
  const bool moves_first = outbound_.take_asked() || outbound_.in_fragments();
  if (moves_first && outbound_.peer_sleeps() && peer_event_) peer_event_->signal();
  return {.outcome = Outcome::kFull};
}

Execution InHostLink::ring_broken() {
  if (!gone_.exchange(true)) channel_->fail("the peer published impossible credit");
  return failed(IBV_WC_RETRY_EXC_ERR);
}

}  // namespace braid::vhca::soft::inhost
