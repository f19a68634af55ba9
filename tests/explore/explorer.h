// Explorer: runs a scenario under many schedules and reports the first violation with the schedule
// that replays it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/explore/world.h"

namespace braid::explore {

/// Makes rings and parties in the world, runs it, and judges what came out. Shared memory has the
/// same addresses in each run.
using Scenario = std::function<void(World& world)>;

/// All schedules with at most so many deviations from the undisturbed run, one after the other.
class BoundedChooser final : public Chooser {
 public:
  explicit BoundedChooser(unsigned deviations) : deviations_(deviations) {}
  unsigned pick(unsigned alternatives) override {
    if (at_ == picks_.size()) picks_.push_back({alternatives, 0});
    return picks_[at_++].picked;
  }
  /// Prepares the next schedule; false: that was the last.
  bool next();
  std::vector<unsigned> schedule() const;

 private:
  struct Pick {
    unsigned alternatives;
    unsigned picked;
  };
  const unsigned deviations_;
  size_t at_ = 0;
  std::vector<Pick> picks_;
};

class RandomChooser final : public Chooser {
 public:
  explicit RandomChooser(uint64_t seed) : random_(seed), calm_(2 + random_() % 12) {}
  unsigned pick(unsigned alternatives) override {
    const auto picked =
        random_() % calm_ == 0 ? static_cast<unsigned>(random_() % alternatives) : 0;
    schedule_.push_back(picked);
    return picked;
  }
  std::vector<unsigned> schedule() const { return schedule_; }

 private:
  std::mt19937_64 random_;
  const uint64_t calm_;  // one choice in this many is at random
  std::vector<unsigned> schedule_;
};

class ReplayChooser final : public Chooser {
 public:
  explicit ReplayChooser(std::vector<unsigned> schedule) : schedule_(std::move(schedule)) {}
  unsigned pick(unsigned) override { return at_ < schedule_.size() ? schedule_[at_++] : 0; }

 private:
  const std::vector<unsigned> schedule_;
  size_t at_ = 0;
};

/// What a scenario is run with.
struct Setting {
  bool stores_linger = true;
  std::string planted;  // a bug: "heavy_fence", "recheck", "release:PLACE"
  unsigned deviations = 2;
  unsigned random_runs = 0;
  bool kills = false;      // each party dies at each step of the undisturbed run
  bool scribbles = false;  // each word that a party loads gets bad values before each of its steps
};

struct Finding {
  std::string violation;  // empty: none
  std::string how;        // what was done
  uint64_t runs = 0;
};

Finding explore(const Scenario& scenario, const Setting& setting);

}  // namespace braid::explore
