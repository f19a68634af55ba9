#include "trs/heartbeat.h"

#include <algorithm>
#include <utility>

namespace braid::trs {

Heartbeat::Verdict Heartbeat::check(uint64_t now_ns, const Signs& signs, uint64_t lateness_ns) {
  const uint64_t half_ns = options_.interval_ns / 2;
  const bool too_soon = now_ns - last_check_ns_ < half_ns;  // checks piled up by a pause
  last_check_ns_ = now_ns;
  const Signs before = std::exchange(last_, signs);
  if (signs.received != before.received || signs.bytes != before.bytes) {
    missed_ = 0;
    return signs.sent != before.sent ? Verdict::kAlive : Verdict::kAsk;
  }
  if (too_soon || lateness_ns > half_ns) return Verdict::kAlive;
  ++missed_;
  if (missed_ >= std::max(options_.missed_max, 2u)) return Verdict::kSilent;
  return missed_ == 1 ? Verdict::kAsk : Verdict::kAlive;
}

bool Heartbeat::rest(uint64_t now_ns) {
  last_check_ns_ = now_ns;
  missed_ = 0;
  // A peer asks at its first miss, and gives up missed_max - 1 intervals later.
  const unsigned every = std::clamp(options_.missed_max, 3u, kListenEveryMax + 2) - 2;
  return ++rests_ % every == 0;
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
  if (self.owner_.heartbeat_rests()) {
    if (self.heartbeat_->rest(now_ns)) (void)self.owner_.listen();
    return;
  }
  Heartbeat::Verdict verdict = self.heartbeat_->check(now_ns, self.owner_.listen(), late_ns);
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
