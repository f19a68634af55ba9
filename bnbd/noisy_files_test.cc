// What a client costs others that floods a file with reads, writes or flushes: beside it an honest
// client has a file on another disk, memory, or a file on the same disk. What is in the kernel is
// not the server's any more: who shares a disk shares it as the disk and its scheduler do, and of
// that at least half less 10 % is its part, if it wants it.
#include <gtest/gtest.h>

#include "base/sim.h"
#include "bnbd/test_noisy.h"

namespace braid::bnbd {
namespace {

using base::sim::SimMedium;
using test::kQueueDepth;
using test::Load;
using test::LoadShape;
using Flood = std::tuple<BlockOp, uint32_t>;  // operation, bytes of a request

/// disk.img is the honest client's, other.img that of who floods.
class NoisyFiles : public test::NoisyLoad, public ::testing::WithParamInterface<Flood> {
 protected:
  NoisyFiles() { other = &server_machine.add_disk("/exports/other.img", {.size_bytes = 16 << 20}); }
  static LoadShape flood() {
    const auto [op, bytes] = GetParam();
    return {.depth = kQueueDepth, .bytes = bytes, .op = op};
  }
  void begin_honest_on(const std::string& name, const LoadShape& shape = {}) {
    honest = &add_load("honest", name, shape);
    alone = measure(*honest);
    EXPECT_GT(alone, 150u);
  }
  /// Of what it has alone, beside a flood.
  void expect_percent(uint64_t percent) {
    const Load& noisy = add_load("noisy", "other.img", flood());
    const uint64_t beside = measure(*honest);
    RecordProperty("share_percent", static_cast<int>(beside * 100 / alone));
    EXPECT_GE(beside * 100, alone * percent) << "it did " << alone << " alone";
    EXPECT_EQ(honest->failed() + noisy.failed(), 0u);
    EXPECT_GT(noisy.done() * flood().bytes, 4u << 20) << "it was no flood";
  }
  std::shared_ptr<SimMedium> on_one_disk(SimMedium::Order order) {
    auto medium = std::make_shared<SimMedium>(order, kBytesPerUs, kEachNs);
    disk->put_on(medium);
    other->put_on(medium);
    return medium;
  }
  static constexpr uint64_t kBytesPerUs = 2000, kEachNs = 2000;
  base::sim::SimDisk* other = nullptr;
};

TEST_P(NoisyFiles, leave_a_file_on_another_disk_its_own) {
  begin_honest_on("disk.img");
  expect_percent(90);
}

TEST_P(NoisyFiles, leave_memory_its_own) {
  begin_honest_on("memory");
  expect_percent(90);
}

TEST_P(NoisyFiles, leave_another_file_its_part_of_a_disk_that_serves_files_in_turn) {
  on_one_disk(SimMedium::Order::kByFile);
  begin_honest_on("disk.img");
  expect_percent(90);  // which is less than half of the disk
}

TEST_P(NoisyFiles, leave_half_of_such_a_disk_to_who_wants_all_of_it) {
  on_one_disk(SimMedium::Order::kByFile);
  begin_honest_on("disk.img", {.depth = kQueueDepth, .bytes = 16 << 10});
  expect_percent(45);
}

// One queue: each request waits for what is before it, which is the others' full depth at most.
TEST_P(NoisyFiles, cost_another_file_of_a_disk_with_one_queue_no_more_than_stands_in_that) {
  const auto medium = on_one_disk(SimMedium::Order::kAsTheyCome);
  window_ns = 10 * kWindowNs;
  begin_honest_on("disk.img");
  const Load& noisy = add_load("noisy", "other.img", flood());
  const uint64_t beside = measure(*honest);
  const uint64_t bytes = std::get<0>(GetParam()) == BlockOp::kFlush ? 0 : flood().bytes;
  const uint64_t alone_ns = 2 * window_ns / alone;  // two requests at a time
  const uint64_t queued_ns = kQueueDepth * medium->cost_ns(bytes);
  const uint64_t expected = 2 * window_ns / (alone_ns + queued_ns);
  RecordProperty("share_percent", static_cast<int>(beside * 100 / alone));
  EXPECT_GE(beside * 10, expected * 9);
  EXPECT_GT(noisy.done(), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Operations, NoisyFiles,
    ::testing::Values(Flood(BlockOp::kRead, 4 << 10), Flood(BlockOp::kRead, 64 << 10),
                      Flood(BlockOp::kRead, 1 << 20), Flood(BlockOp::kWrite, 4 << 10),
                      Flood(BlockOp::kWrite, 64 << 10), Flood(BlockOp::kWrite, 256 << 10),
                      Flood(BlockOp::kFlush, 4 << 10)),
    [](const auto& flood) {
      return std::string(to_string(std::get<0>(flood.param))) + "_" +
             std::to_string(std::get<1>(flood.param) >> 10) + "KiB";
    });

}  // namespace
}  // namespace braid::bnbd
