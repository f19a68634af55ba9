// InHostLink: requests that go through a port with faults, our own or the peer's
// (docs/port-faults.md). The core brings a request that was lost again (kFull), as it does when the
// ring has no room, until it is answered or its time is over.
#include <algorithm>
#include <array>

#include "vhca/soft/atomic.h"
#include "vhca/soft/inhost/link.h"
#include "vhca/soft/remote_check.h"

namespace braid::vhca::soft::inhost {
namespace {

constexpr Execution kLater{.outcome = Outcome::kFull};

}  // namespace

/// Under gate_mutex_.
void InHostLink::publish_gate() {
  Gate gate = gate_;
  const uint32_t trouble = port_.trouble();
  if ((trouble & Port::kLosesReceived) != 0) gate.faults |= kRequestsLost;
  if ((trouble & (Port::kLosesSent | Port::kLosesAnswers)) != 0) gate.faults |= kAnswersLost;
  if (gate.state == EndState::kOpen && gate.faults != 0) gate.state = EndState::kTroubled;
  inbound_.set_gate(gate);
}

void InHostLink::port_changed() {
  {
    const std::lock_guard guard(gate_mutex_);
    if (gate_.state != EndState::kPreparing) publish_gate();
  }
  const uint32_t trouble = port_.trouble();
  needs_post_times.store((trouble & Port::kDelays) != 0, std::memory_order_relaxed);
  if (trouble != 0) hindered_.store(true, std::memory_order_seq_cst);
}

Execution InHostLink::execute_hindered(const Request& request) {
  hindered_.store(false, std::memory_order_seq_cst);  // port_changed() may come right now
  const uint32_t own = port_.trouble();
  const Gate gate = outbound_.gate();
  const uint8_t peers = gate.state == EndState::kTroubled ? gate.faults : uint8_t{0};
  const bool held = unanswered_.sequence != UINT64_MAX;
  if (own == 0 && peers == 0 && !held && gate.state != EndState::kTroubled) {
    return execute_now(request);
  }
  hindered_.store(true, std::memory_order_relaxed);

  const uint64_t now_ns = host_.now_ns();
  if ((own & Port::kDelays) != 0 && !unanswered_.executed && is_early(request, now_ns)) {
    return kLater;
  }
  const bool arrives = (own & Port::kLosesSent) == 0 && (peers & kRequestsLost) == 0;
  const bool answered = (own & Port::kLosesReceived) == 0 && (peers & kAnswersLost) == 0;
  if (!arrives) {
    port_.lost.fetch_add(1, std::memory_order_relaxed);
    return unanswered(request, now_ns);
  }
  const Execution execution = execute_once(request, answered);
  if (execution.outcome == Outcome::kFull && !unanswered_.executed) {
    // No room in the ring is no loss, a READ whose data cannot come is one.
    return answered || !is_read(request.opcode) ? kLater : unanswered(request, now_ns);
  }
  if (!answered) return unanswered(request, now_ns);
  unanswered_ = {};
  return execution;
}

/// Whether the port's delay holds the request back.
bool InHostLink::is_early(const Request& request, uint64_t now_ns) {
  if (delayed_.sequence != request.sequence) {
    delayed_ = {.sequence = request.sequence,
                .since_ns = request.posted_ns != 0 ? request.posted_ns : now_ns};
    port_.delayed.fetch_add(1, std::memory_order_relaxed);
  }
  return now_ns - delayed_.since_ns < port_.delay_ns();
}

/// A request that comes again was executed before, and is answered as it was then.
Execution InHostLink::execute_once(const Request& request, bool answered) {
  const bool atomic = is_atomic(request.opcode);
  if (unanswered_.executed && unanswered_.sequence == request.sequence) {
    if (answered && atomic && unanswered_.execution.outcome == Outcome::kDone) {
      land_atomic(request.pieces, unanswered_.word);
    }
    return unanswered_.execution;
  }
  if (!answered && is_read(request.opcode)) return kLater;
  // What an atomic finds comes with its answer.
  uint64_t word = 0;
  const std::array<Piece, 1> aside{{{reinterpret_cast<std::byte*>(&word), kAtomicBytes}}};
  Request going = request;
  if (atomic && !answered) going.pieces = aside;
  judged_ = true;
  const Execution execution = execute_now(going);
  judged_ = false;
  const bool over = execution.outcome == Outcome::kDone || execution.outcome == Outcome::kFailed;
  if (answered || !over) return execution;
  unanswered_.executed = true;
  unanswered_.execution = execution;
  unanswered_.word = word;
  port_.answers_lost.fetch_add(1, std::memory_order_relaxed);
  return execution;
}

/// The request, or its answer, was lost: it comes again, for as long as it may.
Execution InHostLink::unanswered(const Request& request, uint64_t now_ns) {
  if (unanswered_.sequence != request.sequence) {
    unanswered_.sequence = request.sequence;
    unanswered_.since_ns = now_ns;
  }
  if (retry_ns_ == 0 || now_ns - unanswered_.since_ns < retry_ns_) return kLater;
  return {.outcome = Outcome::kFailed, .status = IBV_WC_RETRY_EXC_ERR};
}

}  // namespace braid::vhca::soft::inhost
