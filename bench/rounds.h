// Rounds: every side of a row measured in turn, A B C A B C. A round begins when the machine is
// quiet and is given up at the first look at which it no longer is; the waiting has a bound.
//
// Main thread.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/machine.h"
#include "bench/process.h"
#include "bench/row.h"

namespace braid::bench {

struct Options {
  unsigned rounds = 5;                  // good ones wanted
  bool quick = false;                   // one short round without a gate and without a verdict
  bool brief = false;                   // runs of a few tenths of a second
  std::string filter;                   // rows whose name contains it; empty: all
  std::set<std::string> left_out = {};  // but these
  double minutes = 5;  // the longest time that one row takes, waiting for a quiet machine included
  GateOptions gate;
  /// False: the gate is wider than the method's or the passes are shorter, so that no row has a
  /// verdict.
  bool judged = true;
};

/// What a measurement may use.
struct Bench {
  const Interrupts& interrupts;
  const ScratchFolder& scratch;
  Cpus cpus;
  Options options;
  std::function<void(const std::string&)> progress;  // a line for the person who waits
  /// One look at the machine. Empty: observe().
  std::function<base::Result<Observation>()> look = {};
};

/// One run of one side.
struct Sample {
  double value = 0;  // in the row's unit
  std::optional<Latencies> latencies;
  std::optional<double> cpu_ns;  // of both sides together, per operation
};

/// One side of a row. prepare() is called once, before the first run, not timed; the destructor
/// ends what it started. kNotFound means that a peer is not installed: the row goes on without it.
class Candidate {
 public:
  virtual ~Candidate() = default;
  virtual std::string name() const = 0;
  /// How many threads it has, and whether they spin or sleep.
  virtual std::string threads() const = 0;
  virtual base::Status prepare(Bench& bench) = 0;
  virtual base::Result<Sample> run(Bench& bench) = 0;
};

struct RowPlan {
  std::string name;
  std::string unit;
  Better better = Better::kLower;
  std::optional<double> target;                  // of the ratio to the peer
  std::optional<double> value_target = {};       // of the value itself, where there is no peer
  bool each_round = false;                       // value_target is of each good round, no median
  std::optional<double> p50_floor_target = {};   // of the median latency, ours / floor
  std::unique_ptr<Candidate> ours, peer, floor;  // any may be null
  std::string note;
};

struct Round {
  bool quiet = false;        // at every look; if not, the sides that were still to come are missing
  double cache_line_ns = 0;  // the worst seen in the round
  std::optional<Sample> ours, peer, floor;
};

inline constexpr unsigned kGoodRoundsMin = 5;  // fewer give no verdict

/// A row from its rounds. Only quiet rounds count; if there are none, all are shown. Of the options
/// `quick` and `judged` count. Pure.
Row judge(const RowPlan& plan, const std::vector<Round>& rounds, const Options& options);

/// Measures one row. kCanceled; a failing side gives a row with the verdict kFailed. If the machine
/// was not quiet for one whole round, one that does not count shows the figures.
base::Result<Row> measure(Bench& bench, RowPlan& plan);

}  // namespace braid::bench
