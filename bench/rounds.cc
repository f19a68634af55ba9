#include "bench/rounds.h"

#include <algorithm>
#include <array>

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
    if (!sample.latencies || (*sample.latencies).*field == 0) return std::nullopt;
    return static_cast<double>((*sample.latencies).*field);
  });
}

void fill_side(Side& side, const Candidate* candidate, const std::vector<Round>& rounds,
               SampleOf which) {
  if (candidate) side.name = candidate->name();
  side.value = over(rounds, which,
                    [](const Sample& sample) -> std::optional<double> { return sample.value; });
  side.p50 = latency_over(rounds, which, &Latencies::p50_ns);
  side.p99 = latency_over(rounds, which, &Latencies::p99_ns);
  side.p999 = latency_over(rounds, which, &Latencies::p999_ns);
  side.cpu = over(rounds, which, [](const Sample& sample) { return sample.cpu_ns; });
}

std::optional<double> median(const Side& side) {
  if (!side.value) return std::nullopt;
  return side.value->median;
}

// Looks at the machine, unless this is a quick run; false when it is not quiet.
base::Status look(Bench& bench, Round& round) {
  if (bench.options.quick) {
    round.cache_line_ns = std::max(round.cache_line_ns, measure_cache_line_ns(bench.cpus, 200));
    return base::ok_status();
  }
  BRAID_TRY(const Observation seen, observe(bench.interrupts, bench.cpus, bench.options.gate));
  round.quiet = round.quiet && quiet(seen, bench.options.gate);
  round.cache_line_ns = std::max(round.cache_line_ns, seen.cache_line_ns);
  if (!seen.idle) bench.progress("  the machine is busy");
  return base::ok_status();
}

// `shown`: some round with all its sides is there to be shown. Then one that will not count is not
// run to its end.
base::Result<Round> measure_round(Bench& bench, RowPlan& plan, bool shown) {
  Round round{.quiet = !bench.options.quick};
  for (const Seat& seat : kSeats) {
    Candidate* const candidate = (plan.*seat.candidate).get();
    if (!candidate) continue;
    BRAID_CHECK(look(bench, round));
    if (shown && !round.quiet && !bench.options.quick) return round;
    auto sample = candidate->run(bench);
    if (!sample.ok()) return sample.error().with("{}", candidate->name());
    round.*seat.sample = std::move(sample).value();
  }
  BRAID_CHECK(look(bench, round));
  return round;
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

Row judge(const RowPlan& plan, const std::vector<Round>& rounds, bool quick) {
  std::vector<Round> good;
  std::copy_if(rounds.begin(), rounds.end(), std::back_inserter(good),
               [](const Round& round) { return round.quiet; });
  Row row{.name = plan.name, .unit = plan.unit, .better = plan.better, .target = plan.target};
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
  row.ratio = ratio(median(row.ours), median(row.peer));
  if (quick) {
    row.verdict = Verdict::kQuick;
  } else if (row.rounds_good < kGoodRoundsMin) {
    row.verdict = Verdict::kInconclusive;
  } else {
    row.verdict = Verdict::kJudged;
    row.met = reaches(row.ratio, row.target, row.better);
  }
  return row;
}

base::Result<Row> measure(Bench& bench, RowPlan& plan) {
  std::vector<Round> rounds;
  const auto failed = [&](const base::Error& error) -> base::Result<Row> {
    if (error.code() == base::Errc::kCanceled) return error;
    Row row = judge(plan, rounds, bench.options.quick);
    row.verdict = Verdict::kFailed;
    row.met.reset();
    row.note = error.message();
    return row;
  };
  if (const base::Status ready = prepare_all(bench, plan); !ready.ok()) {
    return failed(ready.error());
  }
  const unsigned wanted = bench.options.quick ? 1 : bench.options.rounds;
  const unsigned most = bench.options.quick ? 1 : rounds_max(wanted);
  for (unsigned good = 0; good < wanted && rounds.size() < most;) {
    auto round = measure_round(bench, plan, !rounds.empty());
    if (!round.ok()) return failed(round.error());
    bench.progress(round_text(plan, round.value(), bench.options.quick));
    good += round.value().quiet ? 1 : 0;
    rounds.push_back(std::move(round).value());
  }
  return judge(plan, rounds, bench.options.quick);
}

}  // namespace braid::bench
