#include "base/sim/world.h"

#include <xxhash.h>

#include <array>

#include "base/sim/fabric_impl.h"
#include "base/sim/host.h"

namespace braid::base::sim {

SimWorld::SimWorld(SimWorldOptions options)
    : options_(std::move(options)),
      timing_(options_.timing),
      random_(options_.seed),
      fabric_(make_fabric(*this)) {
  if (options_.log_sink == nullptr) options_.log_sink = make_null_sink();
}

SimWorld::~SimWorld() {
  // No event may outlive what it points to, and no destructor may reach outside.
  events_.clear();
  machines_.clear();
  events_.clear();
}

SimMachine& SimWorld::add_machine(const std::string& name) {
  machines_.push_back(std::make_unique<SimMachine>(*this, name));
  return *machines_.back();
}

void SimWorld::at(uint64_t at_ns, std::function<void()> action) {
  push(std::max(at_ns, now_ns_), EventKind::kScenario, 0, std::move(action));
}

bool SimWorld::run_until(const std::function<bool()>& done, uint64_t duration_max_ns) {
  const uint64_t end_ns = now_ns_ + duration_max_ns;
  if (done && done()) return true;
  while (events_.next_at_ns() <= end_ns) {
    run_one();
    if (done && done()) return true;
  }
  now_ns_ = end_ns;
  return false;
}

void SimWorld::run_one() {
  const EventQueue::Due event = events_.pop();
  now_ns_ = event.at_ns;
  ++counters_.events;
  const std::array<uint64_t, 3> words = {event.at_ns, event.order,
                                         static_cast<uint64_t>(event.kind) << 32 | event.subject};
  trace_hash_ = XXH64(words.data(), sizeof words, trace_hash_);
  if (options_.trace) options_.trace(event);
  event.run();
}

void SimWorld::note(uint64_t value) {
  trace_hash_ = XXH64(&value, sizeof value, trace_hash_);
}

}  // namespace braid::base::sim
