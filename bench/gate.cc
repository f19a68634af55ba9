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

Passes passes_of(const nlohmann::json& document) {
  return {.run_ms = document.at("run_ms"), .store_bytes = document.at("store_bytes")};
}

namespace {

base::Error wrong(std::string_view what) {
  return base::make_error(base::Errc::kInvalid, "recorded figures: {}", what);
}

/// An object's number above 0.
base::Status check_number(std::string_view where, const nlohmann::json& object, const char* field) {
  const auto value = object.is_object() ? object.value(field, nlohmann::json()) : nlohmann::json();
  if (value.is_number() && value.get<double>() > 0) return base::ok_status();
  return wrong(
      fmt::format("{}: \"{}\": want a number above 0, not {}", where, field, value.dump()));
}

base::Status check_machine(const std::string& cpu, const nlohmann::json& machine) {
  if (!machine.is_object() || !machine.contains("rows") || !machine["rows"].is_object())
    return wrong(fmt::format("\"{}\": want an object with an object \"rows\"", cpu));
  for (const char* field : {"run_ms", "store_bytes"})
    BRAID_CHECK(check_number(fmt::format("\"{}\"", cpu), machine, field));
  for (const auto& [name, row] : machine["rows"].items()) {
    for (const char* field : {"ratio", "cache_line_ns"})
      BRAID_CHECK(check_number(fmt::format("\"{}\": \"{}\"", cpu, name), row, field));
  }
  return base::ok_status();
}

}  // namespace

base::Status check_recorded(const nlohmann::json& document) {
  if (!document.is_object() || !document.contains("machines") || !document["machines"].is_object())
    return wrong("want an object with an object \"machines\"");
  for (const auto& [cpu, machine] : document["machines"].items())
    BRAID_CHECK(check_machine(cpu, machine));
  return base::ok_status();
}

base::Result<Recorded> recorded_from_json(const nlohmann::json& document,
                                          const std::string& cpu_model, const Passes& passes) {
  BRAID_CHECK(check_recorded(document));
  Recorded recorded;
  const auto& machines = document["machines"];
  if (!machines.contains(cpu_model)) return recorded;
  const auto& mine = machines[cpu_model];
  const Passes then = passes_of(mine);
  if (then != passes) {
    return wrong(fmt::format(
        "\"{}\": by passes of {} ms on {} MiB, and these are of {} ms on {} MiB: --record anew, or "
        "{} --brief",
        cpu_model, then.run_ms, then.store_bytes >> 20, passes.run_ms, passes.store_bytes >> 20,
        then.run_ms < passes.run_ms ? "with" : "without"));
  }
  for (const auto& [name, row] : mine["rows"].items())
    recorded[name] = {row["ratio"], row["cache_line_ns"]};
  return recorded;
}

base::Result<nlohmann::json> record_of(const std::vector<Row>& rows, const Passes& passes) {
  auto recorded = nlohmann::json::object();
  for (const Row& row : rows) {
    if (row.verdict != Verdict::kJudged || !row.floor_ratio || !row.cache_line_ns) {
      return base::make_error(base::Errc::kInvalid, "\"{}\" was not judged ({}): nothing to record",
                              row.name, to_string(row.verdict));
    }
    recorded[row.name] = {{"ratio", std::round(*row.floor_ratio * 1000) / 1000},
                          {"cache_line_ns", std::round(row.cache_line_ns->median)}};
  }
  return nlohmann::json{
      {"run_ms", passes.run_ms}, {"store_bytes", passes.store_bytes}, {"rows", recorded}};
}

std::string_view to_string(GateVerdict::Kind kind) {
  switch (kind) {
    case GateVerdict::Kind::kWell:
      return "well";
    case GateVerdict::Kind::kFailed:
      return "FAILED";
    case GateVerdict::Kind::kNone:
      return "no verdict";
  }
  return "?";
}

namespace {

using Kind = GateVerdict::Kind;

GateVerdict hold_row(const Recorded& recorded, const Row& row) {
  const auto found = recorded.find(row.name);
  if (row.verdict == Verdict::kFailed)
    return {row.name, Kind::kFailed, "could not be measured: " + row.note};
  if (recorded.empty())
    return {row.name, Kind::kNone, "nothing is recorded of this kind of processor"};
  if (found == recorded.end()) return {row.name, Kind::kFailed, "no figure is recorded"};
  if (row.verdict != Verdict::kJudged || !row.floor_ratio || !row.cache_line_ns) {
    return {row.name, Kind::kNone,
            fmt::format("{}: {} good rounds", to_string(row.verdict), row.rounds_good)};
  }
  const double distance = row.cache_line_ns->median / found->second.cache_line_ns;
  if (distance > kSameDistance || distance < 1 / kSameDistance) {
    return {row.name, Kind::kNone,
            fmt::format("a cache line takes {:.0f} ns, {:.0f} when recorded",
                        row.cache_line_ns->median, found->second.cache_line_ns)};
  }
  const double worse = worse_by(row, found->second.ratio);
  return {row.name, worse > kGateSlack ? Kind::kFailed : Kind::kWell,
          fmt::format("{:.3g} of its floor, recorded {:.3g}: {} by {:.0f} %", *row.floor_ratio,
                      found->second.ratio, worse > 0 ? "worse" : "better", std::abs(worse) * 100)};
}

}  // namespace

std::vector<GateVerdict> hold_against(const Recorded& recorded, const std::vector<Row>& rows) {
  std::vector<GateVerdict> verdicts;
  for (const Row& row : rows) verdicts.push_back(hold_row(recorded, row));
  for (const auto& figure : recorded) {
    const std::string& name = figure.first;
    const bool run =
        std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
    if (!run) verdicts.push_back({name, Kind::kFailed, "recorded, and not run"});
  }
  return verdicts;
}

}  // namespace braid::bench
