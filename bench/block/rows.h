// The rows of the block suite, by what they are about.
//
// Main thread.
#pragma once

#include <vector>

#include "bench/rounds.h"

namespace braid::bench {

/// A remote device under fio's external engine, beside fio's nbd engine on nbdkit, and beside fio
/// on the file itself.
void add_remote_rows(std::vector<RowPlan>& plans);
/// The NBD server, and FUSE + loop, beside nbdkit and qemu-storage-daemon.
void add_front_end_rows(std::vector<RowPlan>& plans);
/// One client beside others; its peer is the same client alone.
void add_neighbour_rows(std::vector<RowPlan>& plans);
/// A path that fails under load.
void add_failover_rows(std::vector<RowPlan>& plans);
/// Many devices and sessions, used or not.
void add_growth_rows(std::vector<RowPlan>& plans);

}  // namespace braid::bench
