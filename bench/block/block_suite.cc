#include "bench/block/rows.h"
#include "bench/suite.h"

namespace braid::bench {

std::vector<RowPlan> block_suite() {
  std::vector<RowPlan> plans;
  add_remote_rows(plans);
  add_front_end_rows(plans);
  add_neighbour_rows(plans);
  add_failover_rows(plans);
  add_growth_rows(plans);
  return plans;
}

}  // namespace braid::bench
