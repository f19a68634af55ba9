// The gate: a few rows held against recorded figures, so that a change which makes Braid slower is
// seen when it is made.
//
// What is compared is the ratio of a row to its floor of the same rounds, with what the same kind
// of machine gave: between kinds, and between far and near processors, these ratios differ by two
// and more. A row without enough good rounds, and a machine of which nothing is recorded, give no
// verdict and fail nothing.
//
// Any thread.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/row.h"

namespace braid::bench {

/// How much worse than recorded a ratio may be.
inline constexpr double kGateSlack = 0.25;

/// A cache line that took this many times as long as when the figure was recorded, or as little, is
/// of processors that are farther from each other, or nearer.
inline constexpr double kSameDistance = 1.5;

struct RecordedRow {
  double ratio = 0;          // ours / floor
  double cache_line_ns = 0;  // one way, then
  bool operator==(const RecordedRow&) const = default;
};
/// Of one kind of machine, by the name of the row.
using Recorded = std::map<std::string, RecordedRow>;

/// What ratios depend on besides the machine: brief ones are not held against long ones.
struct Passes {
  uint64_t run_ms = 0, store_bytes = 0;
  bool operator==(const Passes&) const = default;
};
/// Of a suite's document.
Passes passes_of(const nlohmann::json& document);

/// Whether it is {"machines": {CPU: {"run_ms", "store_bytes", "rows": {NAME: {"ratio",
/// "cache_line_ns"}}}}}: kInvalid names what is wrong.
base::Status check_recorded(const nlohmann::json& document);
/// What there is of this kind of machine; empty if nothing. kInvalid also if it was recorded by
/// other passes than these.
base::Result<Recorded> recorded_from_json(const nlohmann::json& document,
                                          const std::string& cpu_model, const Passes& passes);
/// What the rows that were judged give, for a machine's place in such a file. kInvalid names one
/// that was not.
base::Result<nlohmann::json> record_of(const std::vector<Row>& rows, const Passes& passes);

struct GateVerdict {
  enum class Kind : uint8_t {
    kWell,
    kFailed,
    kNone,  // too few good rounds, or nothing is recorded of such a machine
  };
  std::string row;
  Kind kind = Kind::kNone;
  std::string words;  // "0.41 of its floor, recorded 0.58: worse by 29 %"
};
/// "well", "FAILED", "no verdict".
std::string_view to_string(GateVerdict::Kind kind);
/// One for each row, in their order, and for each that is recorded and was not run, which has
/// failed, as has one that is not recorded, unless nothing is.
std::vector<GateVerdict> hold_against(const Recorded& recorded, const std::vector<Row>& rows);

}  // namespace braid::bench
