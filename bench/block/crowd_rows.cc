#include "bench/block/growth.h"
#include "bench/block/idle.h"
#include "bench/block/remote_io.h"
#include "bench/block/rows.h"

namespace braid::bench {
namespace {

RowPlan idle_row() {
  constexpr unsigned kDevices = 64;
  RowPlan row{.name = fmt::format("idle, {} devices mapped", kDevices),
              .unit = "% core",
              .better = Better::kLower,
              .value_target = 0.5};
  row.ours = braid_idle(kDevices);
  return row;
}

}  // namespace

void add_neighbour_rows(std::vector<RowPlan>& plans) {
  // As a program reads that works 100 us on each block: the server is free most of the time.
  constexpr uint64_t kPauseNs = 100'000;
  RowPlan fair{.name = "4 KiB random read, 100 us between two, beside clears of 1 MiB",
               .unit = "IOPS",
               .better = Better::kHigher,
               .target = 0.9};
  fair.ours = braid_remote_io(
      {.name = "braid, beside a client that clears", .pause_ns = kPauseNs, .beside_clears = true});
  fair.peer = braid_remote_io({.name = "braid, alone", .pause_ns = kPauseNs});
  plans.push_back(std::move(fair));

  RowPlan crowd{.name = "4 KiB random read, depth 1, beside 40 idle sessions",
                .unit = "IOPS",
                .better = Better::kHigher,
                .target = 0.9};
  crowd.ours = braid_remote_io({.name = "braid, beside 40 idle sessions", .idle_sessions = 40});
  crowd.peer = braid_remote_io({.name = "braid, alone"});
  plans.push_back(std::move(crowd));
}

void add_growth_rows(std::vector<RowPlan>& plans) {
  plans.push_back(idle_row());
  constexpr unsigned kMany = 1000;
  for (const Growth growth : {Growth::kDevices, Growth::kSessions}) {
    const std::string many =
        fmt::format("{} {}", kMany, growth == Growth::kDevices ? "devices" : "sessions");
    RowPlan map{.name = "map each of " + many + ", p99",
                .unit = "ms",
                .better = Better::kLower,
                .value_target = 10};
    map.ours = braid_map_each(growth, kMany);
    plans.push_back(std::move(map));
    RowPlan read{.name = "4 KiB random read, depth 1, null, one of " + many,
                 .unit = "IOPS",
                 .better = Better::kHigher,
                 .target = 0.9};
    read.ours = braid_read_among(growth, kMany);
    read.peer = braid_read_among(growth, 1);
    plans.push_back(std::move(read));
    RowPlan memory{
        .name = "memory of " + many, .unit = "MiB", .better = Better::kLower, .value_target = 64};
    memory.ours = braid_memory_of(growth, kMany);
    plans.push_back(std::move(memory));
  }
}

}  // namespace braid::bench
