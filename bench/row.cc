#include "bench/row.h"

#include <fmt/format.h>

namespace braid::bench {
namespace {

using nlohmann::json;

json number(const std::optional<Summary>& summary) {
  return summary ? json(summary->median) : json(nullptr);
}

template <typename T>
json value_or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json spread(const std::optional<Summary>& summary) {
  if (!summary) return nullptr;
  return {{"median", summary->median},
          {"min", summary->min},
          {"max", summary->max},
          {"rounds", summary->count}};
}

json side(const Side& side) {
  return {{"name", side.name},
          {"threads", side.threads},
          {"value", spread(side.value)},
          {"p50_ns", spread(side.p50)},
          {"p99_ns", spread(side.p99)},
          {"p999_ns", spread(side.p999)},
          {"cpu_ns_per_operation", spread(side.cpu)}};
}

// Three significant digits, in thousands above 10 000.
std::string short_number(double value) {
  if (value >= 1e6) return fmt::format("{:.3g} M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:.3g} k", value / 1e3);
  if (value >= 1e3) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

std::string cell(const std::optional<Summary>& summary) {
  return summary ? short_number(summary->median) : "-";
}

std::string target_cell(const Row& row) {
  const std::optional<double>& target = row.target ? row.target : row.value_target;
  if (!target) return "-";
  if (row.each_round) return fmt::format("<= {:g} {} each", *target, row.unit);
  return fmt::format("{} {:g}{}", row.better == Better::kHigher ? ">=" : "<=", *target,
                     row.target ? "" : " " + row.unit);
}

void add_side(std::string& out, std::string_view role, const Side& side) {
  if (!side.value) return;
  out += fmt::format("    {:<6} {}: {}\n", role, side.name, side.threads);
  out += fmt::format("           min {}, median {}, max {}", short_number(side.value->min),
                     short_number(side.value->median), short_number(side.value->max));
  if (side.p50) out += fmt::format("; p50 {} ns", short_number(side.p50->median));
  if (side.p99) out += fmt::format(", p99 {} ns", short_number(side.p99->median));
  if (side.p999) out += fmt::format(", p99.9 {} ns", short_number(side.p999->median));
  if (side.cpu) out += fmt::format("; CPU of both {} ns", short_number(side.cpu->median));
  out += '\n';
}

base::Status wrong(size_t index, std::string_view field, std::string_view what) {
  return base::make_error(base::Errc::kInvalid, "row {}: {}: {}", index, field, what);
}

base::Status check_row(size_t index, const json& row) {
  if (!row.is_object()) return wrong(index, "the row", "must be an object");
  for (const char* field : {"name", "unit", "verdict"}) {
    if (!row.contains(field) || !row[field].is_string() || row[field].get<std::string>().empty()) {
      return wrong(index, field, "must be a string with something in it");
    }
  }
  for (const char* field : {"ours", "peer", "floor", "ratio", "target", "value_target",
                            "floor_ratio", "p50_floor_ratio", "p50_floor_target"}) {
    if (!row.contains(field) || !(row[field].is_number() || row[field].is_null())) {
      return wrong(index, field, "must be a number or null");
    }
    if (row[field].is_number() && row[field].get<double>() < 0) {
      return wrong(index, field, "must not be negative");
    }
  }
  if (!row.contains("met") || !(row["met"].is_boolean() || row["met"].is_null())) {
    return wrong(index, "met", "must be true, false or null");
  }
  if (row["verdict"] != to_string(Verdict::kJudged) && !row["met"].is_null()) {
    return wrong(index, "met", "must be null in a row that was not judged");
  }
  return base::ok_status();
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kJudged:
      return "judged";
    case Verdict::kInconclusive:
      return "inconclusive";
    case Verdict::kUnjudged:
      return "unjudged";
    case Verdict::kQuick:
      return "quick";
    case Verdict::kFailed:
      return "failed";
  }
  return "?";
}

nlohmann::json to_json(const Row& row) {
  return {
      {"name", row.name},
      {"unit", row.unit},
      {"better", row.better == Better::kHigher ? "higher" : "lower"},
      {"ours", number(row.ours.value)},
      {"peer", number(row.peer.value)},
      {"floor", number(row.floor.value)},
      {"ratio", value_or_null(row.ratio)},
      {"target", value_or_null(row.target)},
      {"value_target", value_or_null(row.value_target)},
      {"each_round", row.each_round},
      {"floor_ratio", value_or_null(row.floor_ratio)},
      {"p50_floor_ratio", value_or_null(row.p50_floor_ratio)},
      {"p50_floor_target", value_or_null(row.p50_floor_target)},
      {"met", value_or_null(row.met)},
      {"verdict", to_string(row.verdict)},
      {"rounds_good", row.rounds_good},
      {"rounds_dropped", row.rounds_dropped},
      {"cache_line_ns", spread(row.cache_line_ns)},
      {"sides", {{"ours", side(row.ours)}, {"peer", side(row.peer)}, {"floor", side(row.floor)}}},
      {"note", row.note}};
}

base::Status check_document(const nlohmann::json& document) {
  if (!document.is_object() || !document.contains("suite") || !document["suite"].is_string()) {
    return base::make_error(base::Errc::kInvalid, "suite: must be a string");
  }
  if (!document.contains("machine") || !document["machine"].is_object()) {
    return base::make_error(base::Errc::kInvalid, "machine: must be an object");
  }
  for (const char* field : {"kernel", "cpus", "load_1m_before", "load_1m_after"}) {
    if (!document["machine"].contains(field)) {
      return base::make_error(base::Errc::kInvalid, "machine.{}: is missing", field);
    }
  }
  if (!document.contains("rows") || !document["rows"].is_array()) {
    return base::make_error(base::Errc::kInvalid, "rows: must be a list");
  }
  for (size_t i = 0; i < document["rows"].size(); ++i) {
    BRAID_CHECK(check_row(i, document["rows"][i]));
  }
  return base::ok_status();
}

std::string table(const std::vector<Row>& rows) {
  std::string out = fmt::format("{:<44} {:<6} {:>9} {:>9} {:>9} {:>7} {:>8}  {}\n", "row", "unit",
                                "ours", "peer", "floor", "ratio", "target", "met");
  for (const Row& row : rows) {
    const std::string met =
        row.met ? (*row.met ? "yes" : "no") : std::string(to_string(row.verdict));
    out += fmt::format("{:<44} {:<6} {:>9} {:>9} {:>9} {:>7} {:>8}  {}\n", row.name, row.unit,
                       cell(row.ours.value), cell(row.peer.value), cell(row.floor.value),
                       row.ratio ? fmt::format("{:.3g}", *row.ratio) : "-", target_cell(row), met);
    add_side(out, "ours", row.ours);
    add_side(out, "peer", row.peer);
    add_side(out, "floor", row.floor);
    out += fmt::format("    rounds {} good, {} dropped", row.rounds_good, row.rounds_dropped);
    if (row.cache_line_ns) {
      out += fmt::format("; cache line one way min {:.0f}, median {:.0f}, max {:.0f} ns",
                         row.cache_line_ns->min, row.cache_line_ns->median, row.cache_line_ns->max);
    }
    out += '\n';
    if (row.p50_floor_ratio) {
      out += fmt::format("    p50 is {:.3g} times the floor's", *row.p50_floor_ratio);
      if (row.p50_floor_target) out += fmt::format(", to be <= {:g}", *row.p50_floor_target);
      out += '\n';
    }
    if (!row.note.empty()) out += fmt::format("    {}\n", row.note);
  }
  return out;
}

}  // namespace braid::bench
