// braid-sim: the shipping client and server under simulated faults, judged by checkers.
//
//   braid-sim --seed 7                one round
//   braid-sim --seed 7 --hours 2      rounds until two hours are simulated
//   braid-sim --seeds 1..50           one round each
//
// Exit status: 0 all well, 1 a checker found a violation, 2 wrong usage, 3 a fault kind never had
// an effect in a run of more than one round.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <optional>

#include "tests/sim/campaign.h"
#include "tests/sim/mutants.h"
#include "tests/sim/replay_note.h"

namespace braid::sim {
namespace {

struct Arguments {
  uint64_t seed = 1;
  std::string seeds;
  double hours = 0;
  double round_seconds = 15;
  std::vector<std::string> mutants;
  bool trace = false;
  std::string log;
  bool keep_going = false;
  uint64_t trials = 0;
};

double real_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

std::string replay_command(const Arguments& arguments, uint64_t seed) {
  std::string command = fmt::format("./run sim --seed {}", seed);
  if (arguments.round_seconds != Arguments().round_seconds)
    command += fmt::format(" --round-seconds {}", arguments.round_seconds);
  for (const std::string& mutant : arguments.mutants) command += " --mutant " + mutant;
  return command;
}

RoundOptions round_options(const Arguments& arguments, uint64_t seed) {
  RoundOptions options;
  options.seed = seed;
  options.fault_phase_ns = static_cast<uint64_t>(arguments.round_seconds * 1e9);
  options.mutants = arguments.mutants;
  if (arguments.log == "info") options.log_level = base::LogLevel::kInfo;
  if (arguments.log == "debug") options.log_level = base::LogLevel::kDebug;
  if (arguments.trace)
    options.trace = [](const base::sim::EventQueue::Due& event) {
      fmt::print("{} {} kind {} subject {}\n", event.at_ns, event.order,
                 static_cast<int>(event.kind), event.subject);
    };
  return options;
}

void print_failure(const Arguments& arguments, uint64_t seed, const RoundReport& round) {
  fmt::print("seed {}: {} violations\n", seed, round.violation_count);
  for (const std::string& text : round.violations) fmt::print("  {}\n", text);
  fmt::print("replay: {}\n", replay_command(arguments, seed));
}

/// One line: the total, by second of real time and by second of processor time.
void print_line(std::string_view name, double total, double seconds, double cpu_seconds) {
  fmt::print("{:<24}{:>14.0f}{:>18.2f}{:>18.2f}\n", name, total, total / seconds,
             total / cpu_seconds);
}

void print_sum(const CampaignReport& sum, double seconds, double cpu_seconds) {
  fmt::print("rounds {}, {:.1f} s of real time, {:.1f} s of processor time, trace {:016x}\n",
             sum.rounds, seconds, cpu_seconds, sum.trace_hash);
  fmt::print("longest time from the end of the faults to rest: {:.1f} s\n",
             static_cast<double>(sum.rest_after_max_ns) / 1e9);
  fmt::print("{:<24}{:>14}{:>18}{:>18}\n", "", "total", "per real second", "per cpu second");
  const auto line = [&](std::string_view name, double total) {
    print_line(name, total, seconds, cpu_seconds);
  };
  line("simulated seconds", static_cast<double>(sum.simulated_ns) / 1e9);
  line("completed I/Os", static_cast<double>(sum.completed));
  line("  of them failed", static_cast<double>(sum.failed));
  line("losses reported", static_cast<double>(sum.losses_reported));
  line("reactor turns", static_cast<double>(sum.turns));
  line("events", static_cast<double>(sum.events));
  line("faults that hit", static_cast<double>(injected(sum.faults)));
  for (size_t i = 0; i < kFaultKinds; ++i)
    line(to_string(static_cast<FaultKind>(i)), static_cast<double>(sum.faults[i]));
  for (const auto& [what, times] : sum.refused)
    fmt::print("refused {:>7} times: {}\n", times, what);
}

/// Which seeds to run: the n-th, or nothing when the run is over.
class Seeds {
 public:
  explicit Seeds(const Arguments& arguments)
      : first_(arguments.seed), until_ns_(static_cast<uint64_t>(arguments.hours * 3600e9)) {}
  bool parse_range(const std::string& text) {
    const size_t dots = text.find("..");
    if (dots == std::string::npos) return false;
    range_ = true;
    return CLI::detail::lexical_cast(text.substr(0, dots), first_) &&
           CLI::detail::lexical_cast(text.substr(dots + 2), last_) && last_ >= first_;
  }
  std::optional<uint64_t> next(const CampaignReport& sum) const {
    const uint64_t nth = first_ + sum.rounds;
    if (range_) return nth <= last_ ? std::optional(nth) : std::nullopt;
    if (sum.rounds != 0 && sum.simulated_ns >= until_ns_) return std::nullopt;
    return round_seed(first_, sum.rounds);
  }

 private:
  uint64_t first_;
  uint64_t last_ = 0;
  bool range_ = false;
  const uint64_t until_ns_;
};

int run(const Arguments& arguments) {
  Seeds seeds(arguments);
  if (!arguments.seeds.empty() && !seeds.parse_range(arguments.seeds)) {
    fmt::print(stderr, "--seeds {}: two numbers with two dots between, as in 1..50\n",
               arguments.seeds);
    return 2;
  }
  CampaignReport sum;
  const double begin = real_seconds();
  double said = begin;
  while (const auto seed = seeds.next(sum)) {
    const ReplayNote note(replay_command(arguments, *seed));
    const RoundReport round = run_round(round_options(arguments, *seed));
    sum.add(*seed, round);
    if (round.violation_count != 0) {
      print_failure(arguments, *seed, round);
      if (!arguments.keep_going) break;
    }
    if (real_seconds() - said > 10) {
      said = real_seconds();
      fmt::print(stderr, "round {}, {:.0f} simulated seconds, {} I/Os\n", sum.rounds,
                 static_cast<double>(sum.simulated_ns) / 1e9, sum.completed);
    }
  }
  print_sum(sum, real_seconds() - begin, cpu_seconds());
  if (!sum.failing_seeds.empty()) return 1;
  const std::vector<FaultKind> missing = sum.missing_faults();
  for (const FaultKind kind : missing)
    fmt::print("missing: no {} had an effect\n", to_string(kind));
  // One round alone replays a seed; it cannot have everything.
  return missing.empty() || sum.rounds == 1 ? 0 : 3;
}

/// Its checker has spoken, and says nothing without the planted bug.
bool finds(const Arguments& arguments, const Mutant& mutant, uint64_t seed) {
  const RoundReport round = run_round(round_options(arguments, seed));
  const bool seen = std::any_of(
      round.violations.begin(), round.violations.end(),
      [&](const std::string& text) { return text.find(mutant.seen_as) != std::string::npos; });
  if (!seen) return false;
  RoundOptions clean = round_options(arguments, seed);
  clean.mutants.clear();
  return run_round(clean).violation_count == 0;
}

/// How many seeds it takes to find a planted bug by its checker, so many times; then the median.
int find_mutant(const Arguments& arguments) {
  constexpr uint64_t kSeedsEach = 2000;
  const auto mutant = std::find_if(kMutants.begin(), kMutants.end(), [&](const Mutant& each) {
    return arguments.mutants.size() == 1 && each.name == arguments.mutants.front();
  });
  if (mutant == kMutants.end()) {
    fmt::print(stderr, "--trials {}: needs one --mutant that a checker finds\n", arguments.trials);
    return 2;
  }
  std::vector<std::pair<uint64_t, uint64_t>> took;  // seeds, and the one that found it
  for (uint64_t trial = 0; trial < arguments.trials; ++trial) {
    const uint64_t first = arguments.seed + trial * kSeedsEach;
    uint64_t seeds = 1;
    while (seeds <= kSeedsEach && !finds(arguments, *mutant, first + seeds - 1)) ++seeds;
    took.emplace_back(seeds, first + seeds - 1);
  }
  std::sort(took.begin(), took.end());
  const bool always = took.back().first <= kSeedsEach;
  fmt::print("{}: median {} seeds, least {} (seed {}), most {}{}, of {} trials\n", mutant->name,
             took[took.size() / 2].first, took.front().first, took.front().second,
             took.back().first, always ? "" : " (not found)", took.size());
  return always ? 0 : 1;
}

std::vector<std::string> mutant_names() {
  std::vector<std::string> names = {std::string(kCrashMutant)};
  for (const Mutant& mutant : kMutants) names.emplace_back(mutant.name);
  for (const Mutant& mutant : kRareMutants) names.emplace_back(mutant.name);
  return names;
}

}  // namespace
}  // namespace braid::sim

int main(int argc, char** argv) {
  braid::sim::Arguments arguments;
  CLI::App app("The shipping client and server of Braid under simulated faults");
  app.add_option("--seed", arguments.seed, "what decides everything")->capture_default_str();
  app.add_option("--hours", arguments.hours, "simulated time; without it: one round")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seeds", arguments.seeds, "A..B: one round for each seed");
  app.add_option("--round-seconds", arguments.round_seconds, "length of a round's fault phase")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--mutant", arguments.mutants, "switch a planted bug on, to see it found")
      ->check(CLI::IsMember(braid::sim::mutant_names()));
  app.add_flag("--trace", arguments.trace, "print every event");
  app.add_option("--log", arguments.log,
                 "info: log lines of product and faults, with simulated time; debug: and every "
                 "operation")
      ->check(CLI::IsMember({"info", "debug"}));
  app.add_flag("--keep-going", arguments.keep_going, "do not stop at the first violation");
  app.add_option("--trials", arguments.trials,
                 "with --mutant: so many times, how many seeds it takes to find it");
  app.footer("Example: braid-sim --seed 7 --hours 1");
  CLI11_PARSE(app, argc, argv);
  return arguments.trials > 0 ? braid::sim::find_mutant(arguments) : braid::sim::run(arguments);
}
