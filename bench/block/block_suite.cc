#include "bench/block/growth.h"
#include "bench/block/idle.h"
#include "bench/block/remote_io.h"
#include "bench/floor/floor.h"
#include "bench/peers/nbdkit.h"
#include "bench/suite.h"

namespace braid::bench {
namespace {

constexpr uint32_t kMiB = 1 << 20;

/// Operations of a remote device beside the same of fio's nbd engine on nbdkit.
RowPlan remote_row(const BlockWork& work, const RemoteWay& way, double target) {
  const bool sleeps = way.poll_budget_ns == 0;
  RowPlan row{.name = fmt::format("{}, memory, {}{}", to_string(work), to_string(way.wire),
                                  sleeps ? ", asleep" : ""),
              .unit = unit_of(work),
              .better = Better::kHigher,
              .target = target};
  row.ours = braid_remote_io({.name = fmt::format("braid remote device, {}", to_string(way.wire)),
                              .work = work,
                              .way = way});
  if (way.wire == Wire::kInHost && !sleeps) row.floor = shared_memory_io(work);
  row.peer = fio_job(nbdkit_memory(way.wire == Wire::kTcp ? Socket::kTcp : Socket::kUnix), work);
  return row;
}

void add_remote_rows(std::vector<RowPlan>& plans) {
  const BlockWork read, write{.write = true};
  RowPlan first = remote_row(read, {}, 12), first_write = remote_row(write, {}, 12);
  first.p50_floor_target = first_write.p50_floor_target = 2.5;
  plans.push_back(std::move(first));
  plans.push_back(std::move(first_write));
  plans.push_back(remote_row({.depth = 32}, {}, 8));
  plans.push_back(remote_row({.write = true, .depth = 32}, {}, 6));
  const BlockWork large{.sequential = true, .block_bytes = kMiB, .depth = 8};
  plans.push_back(remote_row(large, {}, 2.5));
  BlockWork large_write = large;
  large_write.write = true;
  plans.push_back(remote_row(large_write, {}, 1.8));

  const RemoteWay tcp{.wire = Wire::kTcp}, asleep{.poll_budget_ns = 0};
  plans.push_back(remote_row(read, tcp, 2));
  plans.push_back(remote_row({.depth = 32}, tcp, 2));
  plans.push_back(remote_row(write, tcp, 2));
  plans.push_back(remote_row({.write = true, .depth = 32}, tcp, 2));
  plans.push_back(remote_row(read, asleep, 1.5));
  plans.push_back(remote_row(write, asleep, 1.2));
}

/// One client beside others; its peer is the same client alone.
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

RowPlan idle_row() {
  constexpr unsigned kDevices = 64;
  RowPlan row{.name = fmt::format("idle, {} devices mapped", kDevices),
              .unit = "% core",
              .better = Better::kLower,
              .value_target = 0.5};
  row.ours = braid_idle(kDevices);
  return row;
}

void add_growth_rows(std::vector<RowPlan>& plans) {
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

}  // namespace

std::vector<RowPlan> block_suite() {
  std::vector<RowPlan> plans;
  add_remote_rows(plans);
  add_neighbour_rows(plans);
  plans.push_back(idle_row());
  add_growth_rows(plans);
  return plans;
}

}  // namespace braid::bench
