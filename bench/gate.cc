#include "bench/gate.h"

#include <fmt/format.h>

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

base::Result<Recorded> recorded_from_json(const nlohmann::json& document) {
  const auto wrong = [](std::string_view what) {
    return base::make_error(base::Errc::kInvalid, "recorded figures: {}", what);
  };
  if (!document.is_object() || !document.contains("rows") || !document["rows"].is_object())
    return wrong("want an object with an object \"rows\"");
  Recorded recorded;
  for (const auto& [name, ratio] : document["rows"].items()) {
    if (!ratio.is_number() || ratio.get<double>() <= 0)
      return wrong(fmt::format("\"{}\": want a number above 0, not {}", name, ratio.dump()));
    recorded[name] = ratio;
  }
  return recorded;
}

base::Result<nlohmann::json> record_of(const std::vector<Row>& rows) {
  auto ratios = nlohmann::json::object();
  for (const Row& row : rows) {
    if (row.verdict != Verdict::kJudged || !row.floor_ratio) {
      return base::make_error(base::Errc::kInvalid, "\"{}\" was not judged ({}): nothing to record",
                              row.name, to_string(row.verdict));
    }
    ratios[row.name] = std::round(*row.floor_ratio * 1000) / 1000;
  }
  return nlohmann::json{{"rows", ratios}};
}

std::vector<GateVerdict> hold_against(const Recorded& recorded, const std::vector<Row>& rows) {
  std::vector<GateVerdict> verdicts;
  for (const Row& row : rows) {
    GateVerdict& verdict = verdicts.emplace_back(GateVerdict{.row = row.name});
    const auto found = recorded.find(row.name);
    if (found == recorded.end()) {
      verdict.failed = true;
      verdict.words = "no figure is recorded";
    } else if (row.verdict == Verdict::kFailed) {
      verdict.failed = true;
      verdict.words = "could not be measured: " + row.note;
    } else if (row.verdict != Verdict::kJudged || !row.floor_ratio) {
      verdict.words = fmt::format("{}: {} good rounds", to_string(row.verdict), row.rounds_good);
    } else {
      const double worse = worse_by(row, found->second);
      verdict.failed = worse > kGateSlack;
      verdict.words =
          fmt::format("{:.3g} of its floor, recorded {:.3g}: {} by {:.0f} %", *row.floor_ratio,
                      found->second, worse > 0 ? "worse" : "better", std::abs(worse) * 100);
    }
  }
  return verdicts;
}

}  // namespace braid::bench
