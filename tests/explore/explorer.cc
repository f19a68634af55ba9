#include "tests/explore/explorer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>

namespace braid::explore {
namespace {

/// A disturbance beside the schedule.
struct Disturbance {
  std::optional<std::pair<unsigned, unsigned>> kill;  // party, step
  std::optional<Scribble> scribble;
};

/// What was seen of one run.
struct Outcome {
  std::string violation;
  std::vector<unsigned> steps;                    // by party
  std::vector<std::vector<World::Place>> places;  // by party
};

class Runner {
 public:
  Runner(const Scenario& scenario, const Setting& setting)
      : scenario_(scenario), setting_(setting) {}

  Outcome run(Chooser& chooser, const Disturbance& disturbance, bool trace = false) {
    ++runs_;
    World world(chooser);
    world.stores_linger = setting_.stores_linger;
    world.heavy_fences = setting_.planted != "heavy_fence";
    world.recheck = setting_.planted != "recheck";
    if (setting_.planted.starts_with("release:")) world.weak_place = setting_.planted.substr(8);
    world.trace = trace;
    if (disturbance.kill) world.kill_at(disturbance.kill->first, disturbance.kill->second);
    if (disturbance.scribble) world.scribble(*disturbance.scribble);
    scenario_(world);
    Outcome outcome;
    outcome.violation = world.violation();
    for (unsigned party = 0; party < world.parties(); ++party) {
      outcome.steps.push_back(world.steps(party));
      outcome.places.push_back(world.places(party));
    }
    return outcome;
  }
  uint64_t runs() const { return runs_; }

  /// All schedules of a bound. The violation, and how to come by it.
  std::optional<Finding> bounded(unsigned deviations, const Disturbance& disturbance,
                                 const std::string& what) {
    BoundedChooser chooser(deviations);
    do {
      const Outcome outcome = run(chooser, disturbance);
      if (!outcome.violation.empty()) return found(outcome, chooser.schedule(), disturbance, what);
    } while (chooser.next());
    return std::nullopt;
  }
  std::optional<Finding> random(uint64_t seed, const Disturbance& disturbance,
                                const std::string& what) {
    RandomChooser chooser(seed);
    const Outcome outcome = run(chooser, disturbance);
    if (outcome.violation.empty()) return std::nullopt;
    return found(outcome, chooser.schedule(), disturbance, fmt::format("{}, seed {}", what, seed));
  }

 private:
  Finding found(const Outcome& outcome, const std::vector<unsigned>& schedule,
                const Disturbance& disturbance, const std::string& what) {
    ReplayChooser replay(schedule);
    (void)run(replay, disturbance, true);
    return {.violation = outcome.violation, .how = what, .runs = runs_};
  }

  const Scenario& scenario_;
  const Setting& setting_;
  uint64_t runs_ = 0;
};

/// Values that break rules in one way or another: beside the true one, and far from it.
std::vector<uint64_t> bad_values(uint64_t value) {
  return {value + 1,        value - 1,         0,          1,
          value ^ 1u << 31, uint64_t{1} << 40, UINT64_MAX, value + (uint64_t{1} << 48)};
}

}  // namespace

bool BoundedChooser::next() {
  at_ = 0;
  while (!picks_.empty()) {
    const auto spent = std::count_if(picks_.begin(), picks_.end() - 1,
                                     [](const Pick& pick) { return pick.picked != 0; });
    Pick& last = picks_.back();
    if (last.picked + 1 < last.alternatives && spent < static_cast<long>(deviations_)) {
      ++last.picked;
      return true;
    }
    picks_.pop_back();
  }
  return false;
}

std::vector<unsigned> BoundedChooser::schedule() const {
  std::vector<unsigned> schedule;
  for (const Pick& pick : picks_) schedule.push_back(pick.picked);
  return schedule;
}

Finding explore(const Scenario& scenario, const Setting& setting) {
  Runner runner(scenario, setting);
  ReplayChooser undisturbed({});
  const Outcome calm = runner.run(undisturbed, {});
  if (auto found = runner.bounded(setting.deviations, {}, "schedule")) return *found;
  for (unsigned seed = 0; seed < setting.random_runs; ++seed) {
    if (auto found = runner.random(seed, {}, "schedule")) return *found;
  }
  for (unsigned party = 0; party < calm.steps.size(); ++party) {
    // Disturbed schedules are longer: a little beyond the end, too.
    for (unsigned step = 1; setting.kills && step <= calm.steps[party] + 8; ++step) {
      Disturbance kill;
      kill.kill = {party, step};
      const std::string what = fmt::format("party {} killed at step {}", party, step);
      if (auto found = runner.bounded(1, kill, what)) return *found;
    }
    for (unsigned step = 1; setting.scribbles && step <= calm.steps[party]; ++step) {
      for (const World::Place& place : calm.places[party]) {
        for (const uint64_t value : bad_values(place.value)) {
          Disturbance scribble;
          scribble.scribble = {
              .party = party, .step = step, .at = place.at, .value = value, .bytes = place.bytes};
          const std::string what =
              fmt::format("{:#x} scribbled before step {} of party {}", value, step, party);
          if (auto found = runner.bounded(0, scribble, what)) return *found;
        }
      }
    }
  }
  return {.violation = {}, .how = {}, .runs = runner.runs()};
}

}  // namespace braid::explore
