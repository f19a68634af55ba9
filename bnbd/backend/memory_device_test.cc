#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/linux_host.h"
#include "bnbd/backends.h"
#include "bnbd/test_block.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::Io;

class MemoryDevice : public testing::Test {
 protected:
  MemoryDevice() : world_(test::calm()), process_(world_.add_machine("m")) {
    MemoryDeviceOptions options;
    options.size_bytes = 1 << 20;
    device_ = std::move(create_memory_device(process_.host(), options)).value();
  }
  Errc run(Io& io) {
    device_->submit(io.request);
    return io.status.value();
  }
  Errc run(Io&& io) { return run(io); }
  bool reads_as(uint64_t offset, uint64_t length, int value) {
    Io read(BlockOp::kRead, offset, length, 0x55);
    return run(read) == Errc::kOk && read.all(value);
  }

  base::sim::SimWorld world_;
  test::Process process_;
  std::unique_ptr<BlockDevice> device_;
};

TEST_F(MemoryDevice, is_zero_at_first_and_keeps_what_is_written) {
  EXPECT_TRUE(reads_as(0, 1 << 20, 0));
  EXPECT_EQ(run(Io(BlockOp::kWrite, 4096, 8192, 7)), Errc::kOk);
  EXPECT_TRUE(reads_as(0, 4096, 0));
  EXPECT_TRUE(reads_as(4096, 8192, 7));
  EXPECT_TRUE(reads_as(12288, 4096, 0));
}

TEST_F(MemoryDevice, lends_its_memory_to_reads_that_allow_it) {
  ASSERT_EQ(run(Io(BlockOp::kWrite, 512, 512, 9)), Errc::kOk);
  Io read(BlockOp::kRead, 512, 512);
  read.request.may_lend = true;
  read.request.buffer = {};
  ASSERT_EQ(run(read), Errc::kOk);
  EXPECT_EQ(read.request.lent, device_->lendable_memory().data() + 512);
  EXPECT_TRUE(read.all(9));
  EXPECT_EQ(device_->statistics().lent, 1u);
}

TEST_F(MemoryDevice, discard_and_write_zeroes_clear_exactly_their_range) {
  for (BlockOp op : {BlockOp::kDiscard, BlockOp::kWriteZeroes}) {
    for (bool no_unmap : {false, true}) {
      for (uint64_t offset : {0u, 512u, 3584u, 4096u}) {
        for (uint64_t length : {512u, 4096u, 4608u, 12288u}) {
          ASSERT_EQ(run(Io(BlockOp::kWrite, 0, 32768, 5)), Errc::kOk);
          Io clear(op, offset, length);
          clear.request.no_unmap = no_unmap;
          ASSERT_EQ(run(clear), Errc::kOk);
          EXPECT_TRUE(reads_as(offset, length, 0));
          if (offset > 0) {
            EXPECT_TRUE(reads_as(0, offset, 5));
          }
          EXPECT_TRUE(reads_as(offset + length, 32768 - offset - length, 5));
        }
      }
    }
  }
}

TEST_F(MemoryDevice, refuses_what_breaks_a_rule_and_changes_nothing) {
  EXPECT_EQ(run(Io(BlockOp::kWrite, 1 << 20, 512, 1)), Errc::kOutOfRange);
  EXPECT_EQ(run(Io(BlockOp::kWrite, 1, 512, 1)), Errc::kInvalid);
  EXPECT_EQ(device_->statistics().errors, 2u);
  EXPECT_EQ(device_->statistics().writes, 0u);
  EXPECT_TRUE(reads_as(0, 1 << 20, 0));
}

// A request is done inside submit(), and so keeps the reactor from everything else: heartbeats too.
TEST_F(MemoryDevice, no_request_is_long_enough_to_hold_up_its_reactor) {
  MemoryDeviceOptions options;
  options.size_bytes = 16 << 20;
  auto large = std::move(create_memory_device(process_.host(), options)).value();
  EXPECT_LE(large->info().max_discard_bytes, 1u << 20);
  EXPECT_LE(large->info().max_write_zeroes_bytes, 1u << 20);
  for (BlockOp op : {BlockOp::kDiscard, BlockOp::kWriteZeroes}) {
    Io long_range(op);
    long_range.request.length_bytes = options.size_bytes;
    large->submit(long_range.request);
    EXPECT_EQ(long_range.status, Errc::kInvalid);
  }
}

TEST_F(MemoryDevice, every_life_is_another_disk) {
  MemoryDeviceOptions options;
  options.size_bytes = 4096;
  auto other = std::move(create_memory_device(process_.host(), options)).value();
  EXPECT_NE(other->info().identity, device_->info().identity);
}

TEST_F(MemoryDevice, needs_a_size) {
  EXPECT_EQ(create_memory_device(process_.host(), {}).code(), Errc::kInvalid);
}

TEST(MemoryDeviceInHugePages, has_all_of_its_memory_and_keeps_it) {
  const auto host = std::move(base::create_linux_host()).value();
  MemoryDeviceOptions options;
  options.size_bytes = 4 << 20;
  options.huge_pages = true;
  auto made = create_memory_device(*host, options);
  if (made.code() == Errc::kNotSupported) GTEST_SKIP() << made.error().message();
  ASSERT_TRUE(made.ok()) << made.error().message();
  const std::span<std::byte> memory = (*made)->content_memory();
  const auto pages_there = [&] {
    std::vector<unsigned char> pages(memory.size() / 4096);
    EXPECT_EQ(::mincore(memory.data(), memory.size(), pages.data()), 0);
    return std::count_if(pages.begin(), pages.end(), [](auto page) { return page & 1; });
  };
  EXPECT_EQ(pages_there(), 1024);
  for (const auto& [op, value] : {std::pair(BlockOp::kWrite, 7), std::pair(BlockOp::kDiscard, 0)}) {
    Io io(op, 4096, 1 << 20, 7);
    (*made)->submit(io.request);
    EXPECT_EQ(io.status, Errc::kOk);
    EXPECT_EQ(memory[4096], static_cast<std::byte>(value));
    EXPECT_EQ(memory[4095 + (1 << 20)], static_cast<std::byte>(value));
  }
  EXPECT_EQ(pages_there(), 1024);
}

TEST_F(MemoryDevice, regions_are_memory_that_it_takes) {
  auto region = std::move(device_->create_region(8192)).value();
  Io write(BlockOp::kWrite, 0, 4096);
  std::fill_n(region->data(), 8192, std::byte{3});
  write.request.buffer = {region.get(), region->data() + 4096};
  EXPECT_EQ(run(write), Errc::kOk);
  EXPECT_TRUE(reads_as(0, 4096, 3));
}

TEST(NullDevice, reads_as_zeroes_whatever_was_written) {
  base::sim::SimWorld world(test::calm());
  test::Process process(world.add_machine("m"));
  NullDeviceOptions options{.name = "n", .size_bytes = 1 << 30};
  auto device = std::move(create_null_device(process.host(), options)).value();
  Io write(BlockOp::kWrite, 4096, 4096, 1);
  device->submit(write.request);
  EXPECT_EQ(write.status, Errc::kOk);
  Io read(BlockOp::kRead, 4096, 4096, 1);
  device->submit(read.request);
  EXPECT_TRUE(read.all(0));
  Io lent(BlockOp::kRead, 1 << 29, 1 << 20, 1);
  lent.request.may_lend = true;
  device->submit(lent.request);
  EXPECT_NE(lent.request.lent, nullptr);
  EXPECT_TRUE(lent.all(0));
}

}  // namespace
}  // namespace braid::bnbd
