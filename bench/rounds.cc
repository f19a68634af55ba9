#include "bench/rounds.h"

#include <algorithm>
#include <array>

#include "bench/workload.h"

namespace braid::bench {
namespace {

using SampleOf = std::optional<Sample> Round::*;

struct Seat {
  std::unique_ptr<Candidate> RowPlan::*candidate;
  SampleOf sample;
  Side Row::*side;
};
constexpr std::array<Seat, 3> kSeats{{{&RowPlan::floor, &Round::floor, &Row::floor},
                                      {&RowPlan::ours, &Round::ours, &Row::ours},
                                      {&RowPlan::peer, &Round::peer, &Row::peer}}};

template <typename Field>
std::optional<Summary> over(const std::vector<Round>& rounds, SampleOf which, Field field) {
  std::vector<double> values;
  for (const Round& round : rounds) {
    if (!(round.*which)) continue;
    if (const std::optional<double> value = field(*(round.*which))) values.push_back(*value);
  }
  return summarise(values);
}

std::optional<Summary> latency_over(const std::vector<Round>& rounds, SampleOf which,
                                    uint64_t Latencies::*field) {
  return over(rounds, which, [field](const Sample& sample) -> std::optional<double> {
    if (!sample.latencies) return std::nullopt;
    const uint64_t value_ns = (*sample.latencies).*field;
    if (value_ns == 0) return std::nullopt;
    return static_cast<double>(value_ns);
  });
}

void fill_side(Side& side, const Candidate* candidate, const std::vector<Round>& rounds,
               SampleOf which) {
  if (candidate) {
    side.name = candidate->name();
    side.threads = candidate->threads();
  }
  side.value = over(rounds, which,
                    [](const Sample& sample) -> std::optional<double> { return sample.value; });
  side.p50 = latency_over(rounds, which, &Latencies::p50_ns);
  side.p99 = latency_over(rounds, which, &Latencies::p99_ns);
  side.p999 = latency_over(rounds, which, &Latencies::p999_ns);
  side.cpu = over(rounds, which, [](const Sample& sample) { return sample.cpu_ns; });
}

std::optional<double> median(const std::optional<Summary>& summary) {
  if (!summary) return std::nullopt;
  return summary->median;
}

/// The figure that a target of the value itself is held against.
std::optional<double> held_value(const Row& row) {
  if (!row.ours.value || !row.each_round) return median(row.ours.value);
  return row.better == Better::kLower ? row.ours.value->max : row.ours.value->min;
}

/// Whether all that there is a target for is reached; nothing if there is none, or a figure is
/// missing.
std::optional<bool> all_reached(const Row& row) {
  struct Goal {
    std::optional<double> value, target;
    Better better;
  };
  std::optional<bool> all;
  for (const Goal& goal : {Goal{row.ratio, row.target, row.better},
                           Goal{held_value(row), row.value_target, row.better},
                           Goal{row.p50_floor_ratio, row.p50_floor_target, Better::kLower}}) {
    if (!goal.target) continue;
    const auto reached = reaches(goal.value, goal.target, goal.better);
    if (!reached) return std::nullopt;
    all = all.value_or(true) && *reached;
  }
  return all;
}

base::Result<Observation> look(Bench& bench) {
  if (bench.look) return bench.look();
  return observe(bench.interrupts, bench.cpus, bench.options.gate);
}

bool still_quiet(const Bench& bench, Round& round, const Observation& seen) {
  round.quiet = quiet(seen, bench.options.gate);
  round.cache_line_ns = std::max(round.cache_line_ns, seen.cache_line_ns);
  return round.quiet;
}

/// The look that was good; one that was not when the time is up.
base::Result<Observation> wait_for_quiet(Bench& bench, uint64_t deadline_ns) {
  for (bool told = false;;) {
    BRAID_TRY(const Observation seen, look(bench));
    if (quiet(seen, bench.options.gate) || clock_ns() >= deadline_ns) return seen;
    if (told) continue;
    told = true;
    bench.progress(seen.idle ? fmt::format("  waiting: a cache line takes {:.0f} ns, not {:.0f}",
                                           seen.cache_line_ns, bench.options.gate.cache_line_max_ns)
                             : "  waiting: the machine is busy");
  }
}

base::Status run_side(Bench& bench, RowPlan& plan, const Seat& seat, Round& round) {
  Candidate* const candidate = (plan.*seat.candidate).get();
  if (!candidate) return base::ok_status();
  auto sample = candidate->run(bench);
  if (!sample.ok()) return sample.error().with("{}", candidate->name());
  round.*seat.sample = std::move(sample).value();
  return base::ok_status();
}

/// Behind the gate: looks at the machine after each side, and ends at the first bad look.
base::Result<Round> measure_round(Bench& bench, RowPlan& plan, const Observation& before) {
  Round round{.cache_line_ns = before.cache_line_ns};
  for (const Seat& seat : kSeats) {
    if (!(plan.*seat.candidate)) continue;
    BRAID_CHECK(run_side(bench, plan, seat, round));
    BRAID_TRY(const Observation seen, look(bench));
    if (!still_quiet(bench, round, seen)) break;
  }
  return round;
}

/// A round that does not count.
base::Result<Round> measure_without_gate(Bench& bench, RowPlan& plan) {
  constexpr unsigned kRoundTrips = 20;
  Round round{.cache_line_ns = measure_cache_line_ns(bench.cpus, kRoundTrips)};
  for (const Seat& seat : kSeats) BRAID_CHECK(run_side(bench, plan, seat, round));
  return round;
}

bool complete(const RowPlan& plan, const Round& round) {
  return std::all_of(kSeats.begin(), kSeats.end(), [&](const Seat& seat) {
    return !(plan.*seat.candidate) || (round.*seat.sample).has_value();
  });
}

// Peers that are not installed leave the row; anything else that cannot start fails it.
base::Status prepare_all(Bench& bench, RowPlan& plan) {
  for (const Seat& seat : kSeats) {
    auto& candidate = plan.*seat.candidate;
    if (!candidate) continue;
    const base::Status status = candidate->prepare(bench);
    if (status.ok()) continue;
    if (status.error().code() != base::Errc::kNotFound || seat.candidate != &RowPlan::peer) {
      return status.error().with("{}", candidate->name());
    }
    plan.note +=
        fmt::format("{}no peer: {}", plan.note.empty() ? "" : "; ", status.error().message());
    candidate.reset();
  }
  return base::ok_status();
}

std::string round_text(const RowPlan& plan, const Round& round, bool quick) {
  std::string text = fmt::format("{}:", plan.name);
  if (round.floor) text += fmt::format(" floor {:.6g}", round.floor->value);
  if (round.ours) text += fmt::format(" ours {:.6g}", round.ours->value);
  if (round.peer) text += fmt::format(" peer {:.6g}", round.peer->value);
  text += fmt::format(" {}, cache line {:.0f} ns", plan.unit, round.cache_line_ns);
  if (!round.quiet && !quick) text += " (dropped: not quiet)";
  return text;
}

}  // namespace

Row judge(const RowPlan& plan, const std::vector<Round>& rounds, const Options& options) {
  std::vector<Round> good;
  std::copy_if(rounds.begin(), rounds.end(), std::back_inserter(good),
               [](const Round& round) { return round.quiet; });
  Row row{.name = plan.name,
          .unit = plan.unit,
          .better = plan.better,
          .target = plan.target,
          .value_target = plan.value_target,
          .each_round = plan.each_round,
          .p50_floor_target = plan.p50_floor_target};
  row.note = plan.note;
  row.rounds_good = static_cast<unsigned>(good.size());
  row.rounds_dropped = static_cast<unsigned>(rounds.size() - good.size());
  const std::vector<Round>& shown = good.empty() ? rounds : good;
  for (const Seat& seat : kSeats) {
    fill_side(row.*seat.side, (plan.*seat.candidate).get(), shown, seat.sample);
  }
  std::vector<double> lines;
  for (const Round& round : shown) lines.push_back(round.cache_line_ns);
  row.cache_line_ns = summarise(lines);
  row.ratio = ratio(median(row.ours.value), median(row.peer.value));
  row.floor_ratio = ratio(median(row.ours.value), median(row.floor.value));
  row.p50_floor_ratio = ratio(median(row.ours.p50), median(row.floor.p50));
  if (options.quick) {
    row.verdict = Verdict::kQuick;
  } else if (!options.judged) {
    row.verdict = Verdict::kUnjudged;
  } else if (row.rounds_good < kGoodRoundsMin) {
    row.verdict = Verdict::kInconclusive;
  } else {
    row.verdict = Verdict::kJudged;
    row.met = all_reached(row);
  }
  return row;
}

namespace {

base::Status measure_rounds(Bench& bench, RowPlan& plan, std::vector<Round>& rounds) {
  const auto add = [&](const Round& round) {
    bench.progress(round_text(plan, round, bench.options.quick));
    rounds.push_back(round);
  };
  const auto minutes_ns = static_cast<uint64_t>(bench.options.minutes * 60e9);
  const uint64_t deadline_ns = clock_ns() + minutes_ns;
  for (unsigned good = 0; !bench.options.quick && good < bench.options.rounds;) {
    BRAID_TRY(const Observation before, wait_for_quiet(bench, deadline_ns));
    if (!quiet(before, bench.options.gate)) break;
    BRAID_TRY(const Round round, measure_round(bench, plan, before));
    good += round.quiet ? 1 : 0;
    add(round);
    if (clock_ns() >= deadline_ns) break;
  }
  const bool shown = std::any_of(rounds.begin(), rounds.end(),
                                 [&](const Round& round) { return complete(plan, round); });
  if (shown) return base::ok_status();
  BRAID_TRY(const Round round, measure_without_gate(bench, plan));
  add(round);
  return base::ok_status();
}

}  // namespace

base::Result<Row> measure(Bench& bench, RowPlan& plan) {
  std::vector<Round> rounds;
  base::Status status = prepare_all(bench, plan);
  if (status.ok()) status = measure_rounds(bench, plan, rounds);
  if (!status.ok() && status.error().code() == base::Errc::kCanceled) return status.error();
  Row row = judge(plan, rounds, bench.options);
  if (!status.ok()) {
    row.verdict = Verdict::kFailed;
    row.met.reset();
    row.note = status.error().message();
  }
  return row;
}

}  // namespace braid::bench
