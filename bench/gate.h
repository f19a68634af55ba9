// The gate: a few rows held against recorded figures, so that a change which makes Braid slower is
// seen when it is made.
//
// What is compared is the ratio of a row to its floor of the same rounds: figures of different
// machines and days are not comparable, this nearly is. A row without enough good rounds is no
// verdict and fails nothing.
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

/// By the name of the row: ours / floor.
using Recorded = std::map<std::string, double>;

/// Reads {"rows": {NAME: RATIO}}. kInvalid names what is wrong.
base::Result<Recorded> recorded_from_json(const nlohmann::json& document);
/// What the rows that were judged give, for a file to record. kInvalid names one that was not.
base::Result<nlohmann::json> record_of(const std::vector<Row>& rows);

struct GateVerdict {
  std::string row;
  bool failed = false;
  std::string words;  // "0.41 of its floor, recorded 0.58: worse by 29 %"
};
/// One for each row, in their order. A row that is not recorded has failed.
std::vector<GateVerdict> hold_against(const Recorded& recorded, const std::vector<Row>& rows);

}  // namespace braid::bench
