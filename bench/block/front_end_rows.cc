#include "bench/block/front_ends.h"
#include "bench/block/rows.h"
#include "bench/floor/bare_fuse.h"
#include "bench/floor/bare_nbd.h"
#include "bench/peers/nbdkit.h"
#include "bench/peers/qemu_fuse.h"

namespace braid::bench {
namespace {

constexpr uint32_t kMiB = 1 << 20;

/// The columns of every comparison of front ends.
constexpr BlockWork kColumns[] = {
    {},
    {.write = true},
    {.depth = 32},
    {.write = true, .depth = 32},
    {.sequential = true, .block_bytes = kMiB, .depth = 8},
    {.write = true, .sequential = true, .block_bytes = kMiB, .depth = 8},
};

RowPlan row_of(const BlockWork& work, std::string_view front_end, double target,
               std::unique_ptr<FioTarget> ours, std::unique_ptr<FioTarget> peer,
               std::unique_ptr<FioTarget> floor) {
  RowPlan row{.name = fmt::format("{}, {}", to_string(work), front_end),
              .unit = unit_of(work),
              .better = Better::kHigher,
              .target = target};
  row.ours = fio_job(std::move(ours), work);
  row.peer = fio_job(std::move(peer), work);
  row.floor = fio_job(std::move(floor), work);
  return row;
}

}  // namespace

void add_front_end_rows(std::vector<RowPlan>& plans) {
  for (const BlockWork& work : kColumns) {
    plans.push_back(row_of(work, "NBD, memory", 1.5, braid_nbd_memory(),
                           nbdkit_memory(Socket::kUnix), bare_nbd(Placement::kServer)));
  }
  for (const BlockWork& work : kColumns) {
    plans.push_back(row_of(work, "NBD, remote device", 0.8, braid_nbd_remote(),
                           nbdkit_memory(Socket::kUnix, Placement::kEither),
                           bare_nbd(Placement::kEither)));
  }
  for (const BlockWork& work : kColumns) {
    plans.push_back(
        row_of(work, "FUSE + loop", 1.5, braid_fuse_loop(), qemu_fuse_loop(), bare_fuse_loop()));
  }
}

}  // namespace braid::bench
