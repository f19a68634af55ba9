#include "trs/heartbeat.h"

#include <algorithm>
#include <utility>

namespace braid::trs {

Heartbeat::Verdict Heartbeat::check(uint64_t now_ns, const Signs& signs, uint64_t lateness_ns) {
  const uint64_t half_ns = options_.interval_ns / 2;
  const bool too_soon = now_ns - last_check_ns_ < half_ns;  // checks piled up by a pause
  last_check_ns_ = now_ns;
  const Signs before = std::exchange(last_, signs);
  seen_ = signs.received + signs.bytes;
  asked_ = false;
  if (signs.received != before.received || signs.bytes != before.bytes) {
    missed_ = 0;
    return signs.sent != before.sent ? Verdict::kAlive : Verdict::kAsk;
  }
  if (too_soon || lateness_ns > half_ns) return Verdict::kAlive;
  ++missed_;
  if (missed_ >= std::max(options_.missed_max, 2u)) return Verdict::kSilent;
  return missed_ == 1 ? Verdict::kAsk : Verdict::kAlive;
}

void Heartbeat::rest(uint64_t now_ns) {
  last_check_ns_ = now_ns;
  missed_ = 0;
}

bool Heartbeat::look(const Signs& signs) {
  const uint64_t seen = signs.received + signs.bytes;
  if (std::exchange(seen_, seen) != seen) return false;
  return !std::exchange(asked_, true);
}

void HeartbeatDriver::start() {
  heartbeat_.emplace(options_, reactor_.now_ns());
  begin_checks();
}

void HeartbeatDriver::stop() {
  reactor_.cancel(timer_);
  seldom_ = false;
}

/// A whole interval from now, and what was missed before is forgotten.
void HeartbeatDriver::begin_checks() {
  seldom_ = false;
  reactor_.schedule_after(timer_, options_.interval_ns);  // outside of a turn, too
  check_ns_ = timer_.deadline_ns();
  heartbeat_->rest(reactor_.now_ns());
}

void HeartbeatDriver::tick(base::Timer& timer) {
  auto& self = *static_cast<HeartbeatDriver*>(timer.context);
  const uint64_t now_ns = self.reactor_.now_ns();
  if (now_ns >= self.check_ns_) {
    const uint64_t late_ns = std::max(self.reactor_.last_lateness_ns(), now_ns - self.check_ns_);
    return self.check(now_ns, late_ns);
  }
  const bool awaits = self.owner_.traffic() == Traffic::kAwaited && self.heartbeat_->looks();
  self.schedule(now_ns, awaits);
  if (awaits && self.heartbeat_->look(self.owner_.listen())) self.owner_.send_heartbeat();
}

/// The timer, for the next check, or for a look before it.
void HeartbeatDriver::schedule(uint64_t now_ns, bool looks) {
  reactor_.schedule(timer_, looks ? std::min(now_ns + kLookNs, check_ns_) : check_ns_);
}

void HeartbeatDriver::check(uint64_t now_ns, uint64_t late_ns) {
  const uint64_t interval_ns = options_.interval_ns;
  const Traffic traffic = owner_.traffic();
  // From one deadline to the next, so that small delays do not add up; but a whole interval after a
  // check that was late.
  check_ns_ = (late_ns > interval_ns / 2 ? now_ns : check_ns_) + interval_ns;
  seldom_ = false;
  schedule(now_ns, traffic == Traffic::kAwaited);
  const Heartbeat::Signs signs = owner_.listen();
  if (traffic == Traffic::kNone) {
    heartbeat_->rest(now_ns);
  } else {
    conclude(heartbeat_->check(now_ns, signs, late_ns));
  }
  // A check that was late, or found something begun, is followed by another soon.
  const bool late = late_ns > interval_ns / 2;
  if (late || owner_.traffic() != traffic || heartbeat_->missed() > 0 || !timer_.pending()) return;
  if (traffic != Traffic::kNone && traffic != Traffic::kIdle) return;
  const uint64_t heard_ns = traffic == Traffic::kIdle ? owner_.heard_ns() : now_ns;
  const uint64_t next_ns = heard_ns + kSeldom * interval_ns;
  if (next_ns <= check_ns_) return;
  seldom_ = true;
  check_ns_ = next_ns;
  schedule(now_ns, false);
}

void HeartbeatDriver::conclude(Heartbeat::Verdict verdict) {
  if (heartbeat_->missed() > 1 && reactor_.host().mutant("impatient")) {
    verdict = Heartbeat::Verdict::kSilent;
  }
  if (verdict == Heartbeat::Verdict::kSilent && !reactor_.host().mutant("silence-ignored")) {
    stop();
    owner_.peer_silent(options_.interval_ns * (heartbeat_->missed() + 1));
  } else if (verdict == Heartbeat::Verdict::kAsk) {
    owner_.send_heartbeat();
  }
}

}  // namespace braid::trs
