#include "bench/block/growth.h"
#include "bench/block/idle.h"
#include "bench/block/map_command.h"
#include "bench/block/remote_io.h"
#include "bench/block/rows.h"

namespace braid::bench {
namespace {

constexpr unsigned kDisks = 64;

RowPlan idle_row(const char* mapped, std::unique_ptr<Candidate> ours) {
  RowPlan row{.name = fmt::format("idle, {} {}", kDisks, mapped),
              .unit = "% core",
              .better = Better::kLower,
              .value_target = 0.5};
  row.ours = std::move(ours);
  return row;
}

RowPlan map_command_row(std::string name, unsigned disks) {
  RowPlan row{.name = std::move(name),
              .unit = "ms",
              .better = Better::kLower,
              .value_target = 10,
              .each_round = true};
  row.ours = braid_map_command(disks);
  row.floor = braid_command_alone(disks);
  return row;
}

// As a program reads that works 100 us on each block: the server is free most of the time.
constexpr uint64_t kPauseNs = 100'000;

std::string beside_text(Neighbour beside) {
  return fmt::format("braid, beside {}", to_string(beside));
}

RowPlan row_beside(Neighbour beside, Wire wire) {
  return {.name = fmt::format("4 KiB random read, 100 us between two, beside {}{}",
                              to_string(beside), wire == Wire::kTcp ? ", TCP loopback" : ""),
          .unit = "IOPS",
          .better = Better::kHigher,
          .target = 0.9};
}

/// Beside a client that takes what CPU there is. A CPU that nobody uses takes long to be woken: so
/// who is alone at the server has a neighbour, too, who does not ask it for anything.
RowPlan busy_row(Neighbour beside, Wire wire) {
  RowPlan row = row_beside(beside, wire);
  RemoteIo io{.way = {.wire = wire}, .pause_ns = kPauseNs, .sleeps = true};
  io.name = beside_text(io.beside = beside);
  row.ours = braid_remote_io(io);
  io.name = fmt::format("braid, alone at the server, beside {}",
                        to_string(io.beside = Neighbour::kComputes));
  row.peer = braid_remote_io(io);
  return row;
}

}  // namespace

void add_neighbour_rows(std::vector<RowPlan>& plans) {
  RowPlan fair{.name = "4 KiB random read, 100 us between two, beside clears of 1 MiB",
               .unit = "IOPS",
               .better = Better::kHigher,
               .target = 0.9};
  fair.ours = braid_remote_io({.name = "braid, beside a client that clears",
                               .pause_ns = kPauseNs,
                               .beside = Neighbour::kClears});
  fair.peer = braid_remote_io({.name = "braid, alone", .pause_ns = kPauseNs});
  plans.push_back(std::move(fair));

  RowPlan crowd{.name = "4 KiB random read, depth 1, beside 40 idle sessions",
                .unit = "IOPS",
                .better = Better::kHigher,
                .target = 0.9};
  crowd.ours = braid_remote_io(
      {.name = "braid, beside 40 idle sessions", .beside = Neighbour::kIdle, .idle_sessions = 40});
  crowd.peer = braid_remote_io({.name = "braid, alone"});
  plans.push_back(std::move(crowd));

  for (const Wire wire : {Wire::kInHost, Wire::kTcp}) {
    for (const Neighbour beside : {Neighbour::kReads, Neighbour::kWrites})
      plans.push_back(busy_row(beside, wire));
  }
  plans.push_back(busy_row(Neighbour::kStopped, Wire::kInHost));

  RowPlan held = row_beside(Neighbour::kHolds, Wire::kInHost);
  held.ours = braid_remote_io(
      {.name = beside_text(Neighbour::kHolds), .pause_ns = kPauseNs, .beside = Neighbour::kHolds});
  held.peer = braid_remote_io({.name = "braid, alone", .pause_ns = kPauseNs});
  plans.push_back(std::move(held));
}

void add_growth_rows(std::vector<RowPlan>& plans) {
  plans.push_back(idle_row("devices mapped", braid_idle(kDisks)));
  plans.push_back(idle_row("disks mapped by FUSE + loop", braid_mapped_idle(kDisks)));
  plans.push_back(map_command_row("braid map of the first disk of a server, FUSE + loop", 1));
  constexpr unsigned kMany = 1000;
  for (const unsigned disks : {kDisks, kMany}) {
    plans.push_back(map_command_row(
        fmt::format("braid map of each of {} disks, FUSE + loop, the longest but the first", disks),
        disks));
  }
  for (const Growth growth : {Growth::kDevices, Growth::kSessions}) {
    const std::string many =
        fmt::format("{} {}", kMany, growth == Growth::kDevices ? "devices" : "sessions");
    RowPlan map{.name = "map each of " + many + ", the longest",
                .unit = "ms",
                .better = Better::kLower,
                .value_target = 10,
                .each_round = true};
    map.ours = braid_map_each(growth, kMany);
    plans.push_back(std::move(map));
    const auto add_reads = [&](const char* whose, std::unique_ptr<Candidate> ours,
                               std::unique_ptr<Candidate> peer) {
      RowPlan row{.name = fmt::format("4 KiB random read, depth 1, null, {} {}", whose, many),
                  .unit = "IOPS",
                  .better = Better::kHigher,
                  .target = 0.9};
      row.ours = std::move(ours);
      row.peer = std::move(peer);
      plans.push_back(std::move(row));
    };
    add_reads("one of", braid_reads(growth, kMany, 1), braid_reads(growth, 1, 1));
    add_reads("spread over", braid_reads(growth, kMany, kMany), braid_reads(growth, 1, kMany));
    RowPlan memory{
        .name = "memory of " + many, .unit = "MiB", .better = Better::kLower, .value_target = 64};
    memory.ours = braid_memory_of(growth, kMany);
    plans.push_back(std::move(memory));
  }
}

}  // namespace braid::bench
