#include "bench/block/remote_read.h"
#include "bench/floor/floor.h"
#include "bench/peers/fio_nbdkit.h"
#include "bench/suite.h"

namespace braid::bench {

std::vector<RowPlan> block_suite() {
  std::vector<RowPlan> plans;
  RowPlan read{.name = "4 KiB random read, depth 1, memory, in-host",
               .unit = "IOPS",
               .better = Better::kHigher,
               .target = 12};
  read.ours = braid_remote_read();
  read.peer = fio_on_nbdkit();
  read.floor = shared_memory_read();
  plans.push_back(std::move(read));

  // As a program reads that works 100 us on each block: the server is free most of the time.
  constexpr uint64_t kPauseNs = 100'000;
  RowPlan fair{.name = "4 KiB random read, 100 us between two, beside clears of 1 MiB",
               .unit = "IOPS",
               .better = Better::kHigher,
               .target = 0.9};
  fair.ours = braid_remote_read(
      {.name = "braid, beside a client that clears", .pause_ns = kPauseNs, .beside_clears = true});
  fair.peer = braid_remote_read({.name = "braid, alone", .pause_ns = kPauseNs});
  plans.push_back(std::move(fair));

  RowPlan crowd{.name = "4 KiB random read, depth 1, beside 40 idle sessions",
                .unit = "IOPS",
                .better = Better::kHigher,
                .target = 0.9};
  crowd.ours = braid_remote_read({.name = "braid, beside 40 idle sessions", .idle_sessions = 40});
  crowd.peer = braid_remote_read({.name = "braid, alone"});
  plans.push_back(std::move(crowd));
  return plans;
}

}  // namespace braid::bench
