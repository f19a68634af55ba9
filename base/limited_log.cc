#include "base/limited_log.h"

#include <algorithm>
#include <vector>

namespace braid::base {

namespace {

constexpr size_t kNamesTold = 4;  // with the most lines; the rest is told together

}  // namespace

LimitedLog::LimitedLog(Reactor& reactor, Logger log, Limits limits)
    : reactor_(reactor),
      log_(std::move(log)),
      burst_(std::max(limits.burst, 1U)),
      line_ns_(kSecond / std::max(limits.per_second, 1U)),
      tell_timer_([](Timer& timer) { static_cast<LimitedLog*>(timer.context)->tell(); }, this) {}

LimitedLog::~LimitedLog() {
  tell();
}

bool LimitedLog::Bucket::allows(uint64_t now_ns, uint64_t line_ns, uint64_t burst) const {
  return std::max(full_at_ns, now_ns) - now_ns <= (burst - 1) * line_ns;
}

void LimitedLog::Bucket::take(uint64_t now_ns, uint64_t line_ns) {
  full_at_ns = std::max(full_at_ns, now_ns) + line_ns;
}

bool LimitedLog::allow(std::string_view peer) {
  const uint64_t now_ns = reactor_.now_ns();
  const uint64_t together_ns = line_ns_ / kTogether;
  Peer& its = place_of(peer, now_ns);
  if (its.bucket.allows(now_ns, line_ns_, burst_) &&
      together_.allows(now_ns, together_ns, kTogether * burst_)) {
    its.bucket.take(now_ns, line_ns_);
    together_.take(now_ns, together_ns);
    return true;
  }
  ++its.left_out;
  if (!tell_timer_.pending()) reactor_.schedule_after(tell_timer_, kTellNs);
  return false;
}

/// Its own, or one that nobody uses any more, or else that of all others.
LimitedLog::Peer& LimitedLog::place_of(std::string_view peer, uint64_t now_ns) {
  if (peer.empty()) return others_;
  Peer* free = &others_;
  for (Peer& each : peers_) {
    if (each.name == peer) return each;
    if (each.bucket.full_at_ns <= now_ns && each.left_out == 0) free = &each;
  }
  if (free != &others_) free->name = peer;
  return *free;
}

void LimitedLog::tell() {
  std::vector<Peer*> silenced;
  uint64_t sum = others_.left_out;
  for (Peer& each : peers_) {
    if (each.left_out == 0) continue;
    silenced.push_back(&each);
    sum += each.left_out;
  }
  if (sum == 0) return;
  const auto more = [](const Peer* a, const Peer* b) { return a->left_out > b->left_out; };
  std::stable_sort(silenced.begin(), silenced.end(), more);
  std::string text = fmt::format("{} lines of this kind were not logged", sum);
  uint64_t unnamed = sum;
  for (size_t i = 0; i < std::min(silenced.size(), kNamesTold); ++i) {
    text +=
        fmt::format("{} {} of {}", i == 0 ? ":" : ",", silenced[i]->left_out, silenced[i]->name);
    unnamed -= silenced[i]->left_out;
  }
  if (unnamed > 0 && unnamed < sum) text += fmt::format(", {} of others", unnamed);
  log_.warning("{}", text);
  others_.left_out = 0;
  for (Peer* each : silenced) each->left_out = 0;
}

}  // namespace braid::base
