// TcpStream, faults of ports: our own, and the peer's as it tells them (docs/port-faults.md).
#include <algorithm>
#include <cstring>

#include "vhca/soft/remote_check.h"
#include "vhca/soft/tcp/stream.h"

namespace braid::vhca::soft::tcp {

using base::Errc;

namespace {
/// Of one peer: its READs and atomics, and what sends it back or ends it. A peer that asks for more
/// loses them for good.
constexpr size_t kWithheldMax = 32;
}  // namespace

/// The peer's. A device without faults believes none: it is no use to anybody but a test.
void TcpStream::port_word(bool loses) {
  if (options_.port == nullptr) return;
  peer_port_loses_ = loses;
  if (!loses) return;
  hindered_.store(true, std::memory_order_seq_cst);
  const bool waits = answered_ < next_;
  if (waits && !looks_.exchange(true, std::memory_order_seq_cst)) events_.ports_changed();
}

/// Before anything is sent or received while ports have faults, and once after.
void TcpStream::look_at_ports() {
  hindered_.store(false, std::memory_order_seq_cst);  // port_changed() may come right now
  const uint32_t own = own_trouble();
  const bool loses = (own & Port::kConcernsPeers) != 0;
  if (port_told_ != loses && out_.push_port(loses)) port_told_ = loses;
  if (own != 0 || peer_port_loses_ || port_told_ != loses) {
    hindered_.store(true, std::memory_order_seq_cst);
  }
  if (dead_ != Errc::kOk) return looks_.store(false, std::memory_order_seq_cst);

  const uint64_t now_ns = host_.now_ns();
  if ((own & Port::kLosesSent) != 0) {
    out_.hold(Outbound::Hold::kAll, now_ns, 0);
  } else if ((own & Port::kDelays) != 0) {
    out_.hold(Outbound::Hold::kUntilDue, now_ns, options_.port->delay_ns());
  } else {
    out_.hold(Outbound::Hold::kNone, now_ns, 0);
  }
  if ((own & Port::kLosesAnswers) == 0) answer_withheld();
  judge_silence(own, now_ns);

  const bool waits = peer_port_loses_ && answered_ < next_ && !closed_;
  const bool looks = own != 0 || port_told_ != loses || !withheld_.empty() || waits;
  const bool looked = looks_.exchange(looks, std::memory_order_seq_cst);
  if (looks && !looked) events_.ports_changed();
}

/// A request that stays without an answer for too long, while a port may have lost one of the two.
void TcpStream::judge_silence(uint32_t own, uint64_t now_ns) {
  const bool loses = peer_port_loses_ || (own & (Port::kLosesSent | Port::kLosesReceived)) != 0;
  if (!loses || closed_ || answered_ >= next_) {
    waits_since_ns_ = 0;
    return;
  }
  if (waits_since_ns_ == 0 || waits_for_ != answered_) {
    waits_since_ns_ = now_ns;
    waits_for_ = answered_;
    return;
  }
  if (retry_ns_ != 0 && now_ns - waits_since_ns_ >= retry_ns_) {
    fail(Errc::kTimedOut);
    events_.want_read();  // told by the next run()
  }
}

/// Before a request is queued.
void TcpStream::note_request() {
  look_at_ports();
  const uint32_t own = own_trouble();
  if ((own & Port::kLosesSent) != 0) options_.port->lost.fetch_add(1, std::memory_order_relaxed);
  if ((own & Port::kDelays) != 0) options_.port->delayed.fetch_add(1, std::memory_order_relaxed);
}

/// What an acknowledgement tells is told by the first one that passes; the rest is kept for then.
void TcpStream::withhold(const Request& request, const Answer& answer,
                         std::span<const std::byte> result) {
  options_.port->answers_lost.fetch_add(1, std::memory_order_relaxed);
  const bool carried = answer.kind != Answer::Kind::kAck || returns_data(request.opcode);
  if (!carried || withheld_.size() >= kWithheldMax) return;
  Withheld kept{.request = request, .answer = answer, .word = {}};
  kept.request.pieces = {};
  if (is_atomic(request.opcode)) std::memcpy(kept.word.data(), result.data(), kept.word.size());
  withheld_.push_back(kept);
}

void TcpStream::answer_withheld() {
  if (withheld_.empty()) return;
  auto at = withheld_.begin();
  for (; at != withheld_.end() && !closed_ && out_.room_for_answer(); ++at) {
    push_answer(at->request, at->answer, at->word);
  }
  withheld_.erase(withheld_.begin(), closed_ ? withheld_.end() : at);
  acknowledgement_due();
  if (!withheld_.empty()) hindered_.store(true, std::memory_order_seq_cst);
}

/// A request that came twice: the second is told from the first by its sequence.
void TcpStream::respond_again(const Request& request, std::span<const std::byte> data,
                              const Answer& first) {
  if ((own_trouble() & Port::kDuplicates) == 0 || first.kind != Answer::Kind::kAck || closed_ ||
      !out_.room_for_answer()) {
    return;
  }
  options_.port->duplicated.fetch_add(1, std::memory_order_relaxed);
  Landing place;
  std::span<const std::byte> result;
  // Data that was received in place comes to none again.
  const bool landed = data.size() != request.length && !returns_data(request.opcode);
  const Answer second = landed ? end_->land(request, /*begun=*/false, place)
                               : end_->respond_locked(request, data, &result);
  answer(request, second, result);
}

}  // namespace braid::vhca::soft::tcp
