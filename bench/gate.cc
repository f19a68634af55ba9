#include "bench/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/block/remote_io.h"
#include "bench/floor/floor.h"
#include "bench/rdma_one_way.h"
#include "bench/suite.h"

namespace braid::bench {
namespace {

/// Above 0: worse than recorded by this part of it.
double worse_by(const Row& row, double recorded) {
  const double now = *row.floor_ratio;
  return row.better == Better::kHigher ? 1 - now / recorded : 1 - recorded / now;
}

RowPlan remote_row(const BlockWork& work) {
  RowPlan row{.name = to_string(work) + ", memory, in-host",
              .unit = unit_of(work),
              .better = Better::kHigher};
  row.ours = braid_remote_io({.work = work});
  row.floor = shared_memory_io(work);
  return row;
}

}  // namespace

std::vector<RowPlan> gate_suite() {
  std::vector<RowPlan> plans;
  plans.push_back(remote_row({}));
  plans.push_back(remote_row({.write = true, .depth = 32}));
  RowPlan message{.name = "WRITE_WITH_IMM 8 B, in-host, one way", .unit = "ns"};
  message.ours = write_imm_one_way(8, Memory::kSegment);
  message.floor = cache_line_one_way();
  plans.push_back(std::move(message));
  return plans;
}

base::Result<Recorded> recorded_from_json(const nlohmann::json& document,
                                          const std::string& cpu_model) {
  const auto wrong = [](std::string_view what) {
    return base::make_error(base::Errc::kInvalid, "recorded figures: {}", what);
  };
  if (!document.is_object() || !document.contains("machines") || !document["machines"].is_object())
    return wrong("want an object with an object \"machines\"");
  Recorded recorded;
  for (const auto& [cpu, machine] : document["machines"].items()) {
    if (!machine.is_object() || !machine.contains("rows") || !machine["rows"].is_object())
      return wrong(fmt::format("\"{}\": want an object with an object \"rows\"", cpu));
    for (const auto& [name, row] : machine["rows"].items()) {
      for (const char* field : {"ratio", "cache_line_ns"}) {
        const auto value = row.is_object() ? row.value(field, nlohmann::json()) : nlohmann::json();
        if (!value.is_number() || value.get<double>() <= 0)
          return wrong(fmt::format("\"{}\": \"{}\": {}: want a number above 0, not {}", cpu, name,
                                   field, value.dump()));
      }
      if (cpu == cpu_model) recorded[name] = {row["ratio"], row["cache_line_ns"]};
    }
  }
  return recorded;
}

base::Result<nlohmann::json> record_of(const std::vector<Row>& rows) {
  auto recorded = nlohmann::json::object();
  for (const Row& row : rows) {
    if (row.verdict != Verdict::kJudged || !row.floor_ratio || !row.cache_line_ns) {
      return base::make_error(base::Errc::kInvalid, "\"{}\" was not judged ({}): nothing to record",
                              row.name, to_string(row.verdict));
    }
    recorded[row.name] = {{"ratio", std::round(*row.floor_ratio * 1000) / 1000},
                          {"cache_line_ns", std::round(row.cache_line_ns->median)}};
  }
  return nlohmann::json{{"rows", recorded}};
}

namespace {

GateVerdict hold_row(const Recorded& recorded, const Row& row) {
  GateVerdict verdict{.row = row.name};
  const auto found = recorded.find(row.name);
  if (row.verdict == Verdict::kFailed) {
    verdict.failed = true;
    verdict.words = "could not be measured: " + row.note;
    return verdict;
  }
  if (found == recorded.end()) {
    verdict.failed = !recorded.empty();
    verdict.words = recorded.empty() ? "no verdict: nothing is recorded of this kind of processor"
                                     : "no figure is recorded";
    return verdict;
  }
  if (row.verdict != Verdict::kJudged || !row.floor_ratio || !row.cache_line_ns) {
    verdict.words = fmt::format("{}: {} good rounds", to_string(row.verdict), row.rounds_good);
    return verdict;
  }
  const double distance = row.cache_line_ns->median / found->second.cache_line_ns;
  if (distance > kSameDistance || distance < 1 / kSameDistance) {
    verdict.words = fmt::format("no verdict: a cache line takes {:.0f} ns, {:.0f} when recorded",
                                row.cache_line_ns->median, found->second.cache_line_ns);
    return verdict;
  }
  const double worse = worse_by(row, found->second.ratio);
  verdict.failed = worse > kGateSlack;
  verdict.words =
      fmt::format("{:.3g} of its floor, recorded {:.3g}: {} by {:.0f} %", *row.floor_ratio,
                  found->second.ratio, worse > 0 ? "worse" : "better", std::abs(worse) * 100);
  return verdict;
}

}  // namespace

std::vector<GateVerdict> hold_against(const Recorded& recorded, const std::vector<Row>& rows) {
  std::vector<GateVerdict> verdicts;
  for (const Row& row : rows) verdicts.push_back(hold_row(recorded, row));
  for (const auto& figure : recorded) {
    const std::string& name = figure.first;
    const bool run =
        std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
    if (!run) verdicts.push_back({.row = name, .failed = true, .words = "recorded, and not run"});
  }
  return verdicts;
}

}  // namespace braid::bench
