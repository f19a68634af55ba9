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
  return plans;
}

}  // namespace braid::bench
