// One row of a suite: what was measured, beside its peer and its floor, and how far the figures can
// be trusted. Rows are what build/bench/SUITE.json holds.
//
// Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/stats.h"

namespace braid::bench {

/// How far a row's figures can be trusted.
enum class Verdict : uint8_t {
  kJudged,        // enough good rounds
  kInconclusive,  // too few good rounds: the figures are shown, `met` is not
  kUnjudged,      // the gate was wider than the method's, or the passes shorter: shown, no `met`
  kQuick,         // one short round without a gate: shows that it runs, nothing else
  kFailed,        // a measurement failed; `note` says which and why
};
std::string_view to_string(Verdict verdict);

/// One side of a row over its rounds.
struct Side {
  std::string name;                       // "braid, in-host software HCA"
  std::string threads;                    // "one a side; both spin"
  std::optional<Summary> value;           // in the row's unit
  std::optional<Summary> p50, p99, p999;  // of single operations, ns; one value per round
  std::optional<Summary> cpu;             // of both processes together, ns per operation
};

struct Row {
  std::string name;
  std::string unit;
  Better better = Better::kLower;
  Side ours, peer, floor;
  std::optional<double> ratio;             // ours / peer
  std::optional<double> target;            // of the ratio
  std::optional<double> value_target;      // of the value itself
  bool each_round = false;                 // that is of each good round, else of their median
  std::optional<double> floor_ratio;       // ours / floor
  std::optional<double> p50_floor_ratio;   // p50 of ours / p50 of the floor
  std::optional<double> p50_floor_target;  // it is to be at most this
  std::optional<bool> met;                 // all targets; nothing unless judged
  Verdict verdict = Verdict::kFailed;
  unsigned rounds_good = 0, rounds_dropped = 0;
  std::optional<Summary> cache_line_ns;  // one way, of the rounds that count
  std::string note;                      // for people
};

/// {name, unit, ours, peer, floor, ratio, target, value_target, each_round, floor_ratio,
/// p50_floor_ratio, p50_floor_target, met, ...}: numbers are medians, or null. "sides" has the
/// spread and the percentiles of each.
nlohmann::json to_json(const Row& row);

/// Checks a document of a suite, {suite, machine, rows}: names the field that is wrong.
base::Status check_document(const nlohmann::json& document);

/// Columns for people, with a second line per row for spread and verdict.
std::string table(const std::vector<Row>& rows);

}  // namespace braid::bench
