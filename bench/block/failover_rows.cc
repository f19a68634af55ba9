#include <cmath>

#include "bench/block/failover.h"
#include "bench/block/rows.h"

namespace braid::bench {
namespace {

constexpr double kStallMs = 10;  // beyond what it takes to find out

RowPlan failover_row(std::string_view fault, const Failover& failover) {
  const std::string what = fmt::format("{}{}", fault, failover.write ? ", writes" : "");
  const double found_ms = static_cast<double>(detection_ns(failover)) / base::kMillisecond;
  RowPlan row{.name = fmt::format("path failover under load, {}, longest I/O", what),
              .unit = "ms",
              .better = Better::kLower,
              .value_target = std::ceil(found_ms) + kStallMs,
              .each_round = true,
              .note = detection_text(failover)};
  row.ours = braid_failover(failover);
  return row;
}

}  // namespace

void add_failover_rows(std::vector<RowPlan>& plans) {
  const trs::HeartbeatOptions quick{.interval_ns = 20 * base::kMillisecond, .missed_max = 3};
  constexpr PortFault kSilent = PortFault::kSilent;
  plans.push_back(failover_row("port event", {}));
  plans.push_back(failover_row("silent loss", {.fault = kSilent}));
  plans.push_back(
      failover_row("silent loss, heartbeats of 20 ms", {.fault = kSilent, .heartbeat = quick}));
  plans.push_back(failover_row("port event, TCP loopback", {.wire = Wire::kTcp}));
  plans.push_back(
      failover_row("silent loss, TCP loopback", {.fault = kSilent, .wire = Wire::kTcp}));
  plans.push_back(failover_row("port event", {.write = true}));
  plans.push_back(failover_row("silent loss", {.fault = kSilent, .write = true}));
  plans.push_back(failover_row("port event, TCP loopback", {.wire = Wire::kTcp, .write = true}));
  plans.push_back(failover_row("silent loss, TCP loopback",
                               {.fault = kSilent, .wire = Wire::kTcp, .write = true}));
}

}  // namespace braid::bench
