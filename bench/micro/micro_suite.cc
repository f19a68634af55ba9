#include "bench/floor/floor.h"
#include "bench/micro/filter_rows.h"
#include "bench/micro/part_loops.h"
#include "bench/micro/queue_pair_rows.h"
#include "bench/micro/reactor_rows.h"
#include "bench/micro/ring_rows.h"
#include "bench/micro/session_rows.h"
#include "bench/peers/process_vm.h"
#include "bench/peers/ucx.h"
#include "bench/rdma_one_way.h"
#include "bench/suite.h"

namespace braid::bench {

std::vector<RowPlan> micro_suite() {
  std::vector<RowPlan> plans;
  RowPlan one_way{.name = "WRITE_WITH_IMM 8 B, in-host, one way",
                  .unit = "ns",
                  .better = Better::kLower,
                  .target = 1.4};
  one_way.ours = write_imm_one_way(8, Memory::kSegment);
  one_way.peer = ucx_active_message();
  one_way.floor = cache_line_one_way();
  plans.push_back(std::move(one_way));

  RowPlan foreign{.name = "WRITE_WITH_IMM 8 B, in-host, foreign memory, one way",
                  .unit = "ns",
                  .better = Better::kLower,
                  .target = 1.25};
  foreign.ours = write_imm_one_way(8, Memory::kForeign);
  foreign.peer = process_vm_ping();
  foreign.floor = cache_line_one_way();
  plans.push_back(std::move(foreign));

  add_reactor_rows(plans);
  add_part_loops(plans);
  add_ring_rows(plans);
  add_queue_pair_rows(plans);
  add_filter_rows(plans);
  add_session_rows(plans);
  return plans;
}

}  // namespace braid::bench
