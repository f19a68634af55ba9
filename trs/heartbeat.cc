#include "trs/heartbeat.h"

#include <algorithm>
#include <utility>

namespace braid::trs {

Heartbeat::Verdict Heartbeat::check(uint64_t now_ns, uint64_t received, uint64_t bytes,
                                    uint64_t lateness_ns) {
  const uint64_t half_ns = options_.interval_ns / 2;
  const bool too_soon = now_ns - last_check_ns_ < half_ns;  // checks piled up by a pause
  last_check_ns_ = now_ns;
  const bool moves = bytes != std::exchange(last_bytes_, bytes);
  if (received != last_received_) {
    last_received_ = received;
    missed_ = parts_ = 0;
    return Verdict::kAlive;
  }
  if (moves) {
    missed_ = 0;
    return parts_++ % 2 == 0 ? Verdict::kAsk : Verdict::kAlive;
  }
  if (too_soon || lateness_ns > half_ns) return Verdict::kAlive;
  ++missed_;
  if (missed_ >= std::max(options_.missed_max, 2u)) return Verdict::kSilent;
  return missed_ == 1 ? Verdict::kAsk : Verdict::kAlive;
}

void HeartbeatDriver::start() {
  heartbeat_.emplace(options_, reactor_.now_ns());
  reactor_.schedule_after(timer_, options_.interval_ns);
}

void HeartbeatDriver::stop() {
  reactor_.cancel(timer_);
}

void HeartbeatDriver::tick(base::Timer& timer) {
  auto& self = *static_cast<HeartbeatDriver*>(timer.context);
  base::Reactor& reactor = self.reactor_;
  const uint64_t now_ns = reactor.now_ns();
  const uint64_t late_ns =
      std::max(reactor.last_lateness_ns(), now_ns - std::min(now_ns, timer.deadline_ns()));
  const uint64_t due_ns = timer.deadline_ns();
  const uint64_t interval_ns = self.options_.interval_ns;
  // From one deadline to the next, so that small delays do not add up; but a whole interval after a
  // check that was late.
  reactor.schedule(timer, (late_ns > interval_ns / 2 ? now_ns : due_ns) + interval_ns);
  const uint64_t received = self.owner_.listen();
  Heartbeat::Verdict verdict =
      self.heartbeat_->check(now_ns, received, self.owner_.arrived_bytes(), late_ns);
  if (self.heartbeat_->missed() > 1 && reactor.host().mutant("impatient")) {
    verdict = Heartbeat::Verdict::kSilent;
  }
  if (verdict == Heartbeat::Verdict::kSilent && !reactor.host().mutant("silence-ignored")) {
    self.stop();
    self.owner_.peer_silent(interval_ns * (self.heartbeat_->missed() + 1));
  } else if (verdict == Heartbeat::Verdict::kAsk) {
    self.owner_.send_heartbeat();
  }
}

}  // namespace braid::trs
