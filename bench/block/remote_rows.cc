#include "bench/block/braid_fio.h"
#include "bench/block/rows.h"
#include "bench/floor/floor.h"
#include "bench/floor/sockets.h"
#include "bench/peers/fio_file.h"
#include "bench/peers/nbdkit.h"

namespace braid::bench {
namespace {

constexpr uint32_t kRemoteMiB = 1 << 20;
constexpr BlockWork kRead{}, kWrite{.write = true};
constexpr BlockWork kDeepRead{.depth = 32}, kDeepWrite{.write = true, .depth = 32};
constexpr BlockWork kLongRead{.sequential = true, .block_bytes = kRemoteMiB, .depth = 8};
constexpr BlockWork kLongWrite{
    .write = true, .sequential = true, .block_bytes = kRemoteMiB, .depth = 8};

RowPlan plan(const BlockWork& work, std::string_view where, double target) {
  return {.name = fmt::format("{}, {}", to_string(work), where),
          .unit = unit_of(work),
          .better = Better::kHigher,
          .target = target};
}

RowPlan memory_row(const BlockWork& work, double target) {
  RowPlan row = plan(work, "memory, in-host", target);
  row.ours = fio_job(braid_engine({}), work);
  row.peer = fio_job(nbdkit_memory(Socket::kUnix), work);
  row.floor = shared_memory_io(work);
  return row;
}

RowPlan tcp_row(const BlockWork& work, double target) {
  RowPlan row = plan(work, "memory, TCP loopback", target);
  row.ours = fio_job(braid_engine({.wire = Wire::kTcp}), work);
  row.peer = fio_job(nbdkit_memory(Socket::kTcp), work);
  row.floor = tcp_io(work);
  return row;
}

RowPlan asleep_row(const BlockWork& work, double target) {
  RowPlan row = plan(work, "memory, in-host, asleep", target);
  row.ours = fio_job(braid_engine({.poll_budget_ns = 0}), work);
  row.peer = fio_job(nbdkit_memory(Socket::kUnix), work);
  row.floor = eventfd_round_trips();
  return row;
}

RowPlan file_row(const BlockWork& work) {
  RowPlan row = plan(work, "file with O_DIRECT, in-host", 0.9);
  row.ours = fio_job(braid_engine({}, Backend::kFile), work);
  row.peer = fio_job(io_uring_on_file(), work);
  return row;
}

/// What it costs that a client cannot change what it has sent.
RowPlan guard_row(const BlockWork& work, trs::ChunkGuard guard) {
  RowPlan row =
      plan(work, fmt::format("memory, in-host, chunks guarded: {}", to_string(guard)), 0.95);
  row.ours = fio_job(braid_engine({}, Backend::kMemory, guard), work);
  row.peer = fio_job(braid_engine({}), work);
  row.floor = shared_memory_io(work);
  return row;
}

}  // namespace

void add_remote_rows(std::vector<RowPlan>& plans) {
  for (const BlockWork& work : {kRead, kWrite}) {
    RowPlan row = memory_row(work, 12);
    row.p50_floor_target = 2.5;
    plans.push_back(std::move(row));
  }
  plans.push_back(memory_row(kDeepRead, 8));
  plans.push_back(memory_row(kDeepWrite, 6));
  plans.push_back(memory_row(kLongRead, 2.5));
  plans.push_back(memory_row(kLongWrite, 1.8));
  for (const BlockWork& work : {kRead, kWrite, kDeepRead, kDeepWrite})
    plans.push_back(file_row(work));
  for (const BlockWork& work : {kRead, kWrite, kDeepRead, kDeepWrite})
    plans.push_back(tcp_row(work, 2));
  plans.push_back(asleep_row(kRead, 1.5));
  plans.push_back(asleep_row(kWrite, 1.2));
  for (const trs::ChunkGuard guard : {trs::ChunkGuard::kCopy, trs::ChunkGuard::kWindows}) {
    for (const BlockWork& work : {kDeepRead, kDeepWrite}) plans.push_back(guard_row(work, guard));
  }
}

}  // namespace braid::bench
