// Devices that the configuration wants: each is mapped by itself, as soon as its server lets it be.
#include "cli/node_state.h"

namespace braid::cli {

using base::Result;
using base::Task;
using nlohmann::json;

void NodeState::map_wanted() {
  for (const WantedMap& map : options_.maps) {
    const auto wanted = std::make_shared<WantedDevice>(map);
    wanted->since_ns = reactor_.now_ns();
    wanted_.push_back(wanted);
    reactor_.spawn(keep_wanting(wanted));
  }
  tell_wanted();
}

void NodeState::tell_wanted() const {
  if (!options_.still_wanted || wanting_over_) return;
  std::vector<std::string> waiting;
  for (const WantedPtr& wanted : wanted_) waiting.push_back(wanted->what.name);
  options_.still_wanted(waiting);
}

WantedPtr NodeState::wanted_named(const std::string& name) const {
  for (const WantedPtr& wanted : wanted_)
    if (wanted->what.name == name && !wanted->given_up) return wanted;
  return nullptr;
}

/// Until one is given up, or the node is told to end. The value says nothing.
Task<bool> NodeState::wanting_ends() {
  co_await wanted_changed_.wait();
  co_return true;
}

Task<void> NodeState::keep_wanting(WantedPtr wanted) {
  const WantedMap& what = wanted->what;
  const CallerGone gone = [this, wanted] { return wanted->given_up || wanting_over_; };
  const json params = json::parse(what.params);
  while (!gone()) {
    auto mapped = co_await map(params, gone);
    if (mapped.ok()) break;
    ++wanted->attempts;
    const std::string why = mapped.error().message();
    if (std::exchange(wanted->why, why) != why && !gone())
      reactor_.log().warning("{}: \"{}\" from {} is not mapped yet, and is tried again: {}",
                             what.source, what.name, what.target, why);
    const uint64_t until_ns = reactor_.now_ns() + options_.wanted_retry_ns;
    while (!gone() && reactor_.now_ns() < until_ns) {
      Task<bool> ends = wanting_ends();
      co_await reactor_.with_timeout(std::move(ends), until_ns - reactor_.now_ns());
    }
  }
  wanted_.remove(wanted);
  tell_wanted();
  wanted_changed_.notify_all();
}

/// In the shape of a device that is being mapped.
json NodeState::wanted_status(const WantedDevice& wanted) const {
  const uint64_t for_s = (reactor_.now_ns() - wanted.since_ns) / base::kSecond;
  std::vector<std::string> why{
      fmt::format("it is to be mapped ({}), and is tried again every {} for {} s now",
                  wanted.what.source, duration_text(options_.wanted_retry_ns), for_s)};
  if (!wanted.why.empty()) why.push_back("the last attempt: " + wanted.why);
  why.push_back(fmt::format("braid unmap {} gives it up", wanted.what.name));
  return {{"name", wanted.what.name},     {"device", nullptr},
          {"target", wanted.what.target}, {"access", "-"},
          {"state", "waiting"},           {"size_bytes", 0U},
          {"front_end", nullptr},         {"why", why}};
}

}  // namespace braid::cli
