// The file device over a simulated disk, and, for what a disk refuses, over operations that the
// test answers by hand.
#include "bnbd/backend/file_device.h"

#include <gtest/gtest.h>

#include <deque>

#include "base/test_host.h"
#include "bnbd/backends.h"
#include "bnbd/test_block.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using base::IoOpcode;
using test::Io;

class SimFileDevice : public testing::Test {
 protected:
  SimFileDevice() : world_(test::calm()), machine_(world_.add_machine("m")), process_(machine_) {
    disk_ = &machine_.add_disk("/exports/disk.img", {.size_bytes = 4 << 20});
    open({});
  }
  ~SimFileDevice() override {
    process_.on_reactor([this] { device_.reset(); });
    world_.run_for(base::kMillisecond);
  }
  void open(FileDeviceOptions options) {
    options.root = "/exports";
    options.name = "disk.img";
    auto opened = process_.await(open_file_device(process_.reactor(), options));
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    device_ = std::move(opened).value();
  }
  Errc run(Io&& io) { return process_.run(*device_, io); }
  bool reads_as(uint64_t offset, uint64_t length, int value) {
    Io read(BlockOp::kRead, offset, length, 0x55);
    return process_.run(*device_, read) == Errc::kOk && read.all(value);
  }

  base::sim::SimWorld world_;
  base::sim::SimMachine& machine_;
  base::sim::SimDisk* disk_ = nullptr;
  test::Process process_;
  std::unique_ptr<BlockDevice> device_;
};

TEST_F(SimFileDevice, describes_the_file) {
  EXPECT_EQ(device_->info().size_bytes, 4u << 20);
  EXPECT_EQ(device_->info().identity, disk_->identity());
  EXPECT_FALSE(device_->info().read_only);
}

TEST_F(SimFileDevice, physical_blocks_are_never_larger_than_the_protocol_can_tell) {
  const uint32_t huge = 2 << 20;  // as huge pages of tmpfs
  process_.on_reactor([this] { device_.reset(); });
  for (uint32_t bytes : {uint32_t{32768}, uint32_t{65536}, huge}) {
    const std::string name = std::to_string(bytes) + ".img";
    machine_.add_disk("/exports/" + name, {.physical_block_bytes = bytes});
    FileDeviceOptions options{.root = "/exports", .name = name};
    auto wide = process_.await(open_file_device(process_.reactor(), options));
    ASSERT_TRUE(wide.ok()) << wide.error().message();
    device_ = std::move(wide).value();
    EXPECT_EQ(device_->info().physical_block_bytes, kBlockBytesMax);
    EXPECT_EQ(device_->info().discard_granularity_bytes, kBlockBytesMax);
    process_.on_reactor([this] { device_.reset(); });
    world_.run_for(base::kMillisecond);
  }
}

TEST_F(SimFileDevice, a_file_whose_logical_blocks_the_protocol_cannot_tell_is_refused_with_words) {
  machine_.add_disk("/exports/wide.img", {.logical_block_bytes = 65536});
  FileDeviceOptions options{.root = "/exports", .name = "wide.img"};
  auto wide = process_.await(open_file_device(process_.reactor(), options));
  ASSERT_EQ(wide.code(), Errc::kNotSupported);
  EXPECT_NE(wide.error().message().find("65536"), std::string::npos) << wide.error().message();
}

TEST_F(SimFileDevice, the_incarnation_is_the_machines_boot) {
  const uint64_t before = device_->info().incarnation;
  process_.on_reactor([this] { device_.reset(); });
  world_.run_for(base::kMillisecond);
  open({});
  EXPECT_EQ(device_->info().incarnation, before);
}

TEST_F(SimFileDevice, keeps_what_is_written) {
  EXPECT_EQ(run(Io(BlockOp::kWrite, 8192, 65536, 7)), Errc::kOk);
  EXPECT_TRUE(reads_as(8192, 65536, 7));
  EXPECT_TRUE(reads_as(0, 8192, 0));
}

TEST_F(SimFileDevice, a_flush_makes_earlier_writes_durable_and_fua_needs_none) {
  ASSERT_EQ(run(Io(BlockOp::kWrite, 0, 4096, 1)), Errc::kOk);
  EXPECT_EQ(run(Io(BlockOp::kFlush)), Errc::kOk);
  EXPECT_EQ(disk_->durable()[0], std::byte{1});
  Io fua(BlockOp::kWrite, 4096, 4096, 2);
  EXPECT_EQ(process_.run(*device_, fua.fua()), Errc::kOk);
  EXPECT_EQ(disk_->durable()[4096], std::byte{2});
}

TEST_F(SimFileDevice, a_preflush_makes_what_was_written_before_durable) {
  ASSERT_EQ(run(Io(BlockOp::kWrite, 0, 4096, 1)), Errc::kOk);
  Io commit(BlockOp::kWrite, 4096, 4096, 2);
  commit.request.preflush = true;
  EXPECT_EQ(process_.run(*device_, commit), Errc::kOk);
  EXPECT_EQ(disk_->durable()[0], std::byte{1});
}

TEST_F(SimFileDevice, discard_and_write_zeroes_with_fua_are_durable) {
  for (BlockOp op : {BlockOp::kDiscard, BlockOp::kWriteZeroes}) {
    Io write(BlockOp::kWrite, 0, 8192, 1);
    ASSERT_EQ(process_.run(*device_, write.fua()), Errc::kOk);
    Io clear(op, 4096, 4096);
    EXPECT_EQ(process_.run(*device_, clear.fua()), Errc::kOk);
    EXPECT_TRUE(reads_as(4096, 4096, 0));
    EXPECT_TRUE(reads_as(0, 4096, 1));
    EXPECT_EQ(disk_->durable()[4096], std::byte{0});
  }
}

TEST_F(SimFileDevice, misaligned_buffers_are_copied_and_counted) {
  Io write(BlockOp::kWrite, 0, 4096, 6);
  EXPECT_EQ(process_.run(*device_, write.misaligned()), Errc::kOk);
  Io read(BlockOp::kRead, 0, 4096);
  EXPECT_EQ(process_.run(*device_, read.misaligned()), Errc::kOk);
  EXPECT_TRUE(read.all(6));
  EXPECT_EQ(device_->statistics().copies, 2u);
}

TEST_F(SimFileDevice, copies_are_aligned_whatever_the_longest_io) {
  process_.on_reactor([this] { device_.reset(); });
  machine_.add_disk("/exports/wide.img", {.logical_block_bytes = 32768});
  FileDeviceOptions options{.root = "/exports", .name = "wide.img", .max_io_bytes = 36 << 10};
  device_ = std::move(process_.await(open_file_device(process_.reactor(), options))).value();
  std::deque<Io> ios;
  for (uint64_t i = 0; i < 4; ++i) {
    ios.emplace_back(BlockOp::kWrite, i * 32768, 32768, static_cast<int>(i + 1));
    process_.submit(*device_, ios.back().misaligned());
  }
  for (Io& io : ios) EXPECT_EQ(process_.wait(io), Errc::kOk);
  for (uint64_t i = 0; i < 4; ++i) {
    Io read(BlockOp::kRead, i * 32768, 32768);
    EXPECT_EQ(process_.run(*device_, read.misaligned()), Errc::kOk);
    EXPECT_TRUE(read.all(static_cast<int>(i + 1)));
  }
}

TEST_F(SimFileDevice, a_file_whose_blocks_are_longer_than_the_longest_io_is_refused_with_words) {
  machine_.add_disk("/exports/wide.img", {.logical_block_bytes = 8192});
  FileDeviceOptions options{.root = "/exports", .name = "wide.img", .max_io_bytes = 4096};
  auto wide = process_.await(open_file_device(process_.reactor(), options));
  ASSERT_EQ(wide.code(), Errc::kInvalid);
  EXPECT_NE(wide.error().message().find("8192"), std::string::npos) << wide.error().message();
}

TEST_F(SimFileDevice, aligned_buffers_are_never_copied) {
  ASSERT_EQ(run(Io(BlockOp::kWrite, 0, 1 << 20, 6)), Errc::kOk);
  EXPECT_TRUE(reads_as(0, 1 << 20, 6));
  EXPECT_EQ(device_->statistics().copies, 0u);
}

TEST_F(SimFileDevice, more_requests_than_slots_and_bounce_buffers_all_end) {
  std::deque<Io> ios;
  for (uint64_t i = 0; i < 500; ++i) {
    ios.emplace_back(BlockOp::kWrite, i * 4096, 4096, static_cast<int>(i % 251));
    process_.submit(*device_, i % 2 == 0 ? ios.back() : ios.back().misaligned());
  }
  for (Io& io : ios) EXPECT_EQ(process_.wait(io), Errc::kOk);
  for (uint64_t i = 0; i < 500; ++i)
    EXPECT_TRUE(reads_as(i * 4096, 4096, static_cast<int>(i % 251)));
}

TEST_F(SimFileDevice, refusals_never_end_inside_submit) {
  Io io(BlockOp::kWrite, 1, 512);
  process_.on_reactor([&] {
    device_->submit(io.request);
    EXPECT_FALSE(io.status.has_value());
  });
  EXPECT_EQ(process_.wait(io), Errc::kInvalid);
}

TEST_F(SimFileDevice, a_read_only_device_refuses_changes) {
  process_.on_reactor([this] { device_.reset(); });
  world_.run_for(base::kMillisecond);
  open({.read_only = true});
  EXPECT_EQ(run(Io(BlockOp::kWrite, 0, 4096, 1)), Errc::kReadOnly);
  EXPECT_EQ(run(Io(BlockOp::kDiscard, 0, 4096)), Errc::kReadOnly);
  EXPECT_TRUE(reads_as(0, 4096, 0));
}

TEST_F(SimFileDevice, disk_errors_reach_the_request) {
  disk_->faults.errors_per_million = 1'000'000;
  EXPECT_EQ(run(Io(BlockOp::kWrite, 0, 4096, 1)), Errc::kIo);
  EXPECT_EQ(run(Io(BlockOp::kRead, 0, 4096)), Errc::kIo);
  EXPECT_EQ(run(Io(BlockOp::kFlush)), Errc::kIo);
  Io commit(BlockOp::kWrite, 4096, 4096, 2);
  commit.request.preflush = true;
  EXPECT_EQ(process_.run(*device_, commit), Errc::kIo);
  EXPECT_EQ(device_->statistics().errors, 4u);
  disk_->faults.errors_per_million = 0;
  EXPECT_TRUE(reads_as(4096, 4096, 0)) << "a write does not follow a flush that failed";
}

TEST_F(SimFileDevice, a_missing_file_is_named) {
  FileDeviceOptions options{.root = "/exports", .name = "nothing"};
  auto opened = process_.await(open_file_device(process_.reactor(), options));
  EXPECT_EQ(opened.code(), Errc::kNotFound);
  EXPECT_NE(opened.error().message().find("nothing"), std::string::npos);
}

/// The test is the disk: it sees each operation and says how it ends.
class HandDrivenFile : public testing::Test {
 protected:
  class FakeFile : public base::File {
   public:
    FakeFile() {
      info_.can_discard = info_.can_write_zeroes = true;
      info_.size_bytes = 16 << 20;
    }
    const Info& info() const override { return info_; }
    Info info_;
  };
  class Memory : public base::Segment {
   public:
    explicit Memory(size_t size) : bytes_(size) {}
    std::byte* data() const override { return const_cast<std::byte*>(bytes_.data()); }
    size_t size() const override { return bytes_.size(); }
    const base::Handle& handle() const override { std::abort(); }
    std::vector<std::byte> bytes_;
  };

  HandDrivenFile() {
    reactor_ = std::move(base::Reactor::create(host_, {})).value();
    FileDevice::Options options;
    options.info.size_bytes = 1 << 30;
    options.info.max_discard_bytes = options.info.max_write_zeroes_bytes = 1 << 30;
    options.info.queue_depth = 4;
    auto scratch = std::make_unique<Memory>(FileDevice::scratch_bytes(options.info));
    device_ = std::make_unique<FileDevice>(*reactor_, std::make_unique<FakeFile>(),
                                           std::move(scratch), options);
  }
  base::IoOp* op() { return host_.io->submitted.front(); }
  void expect_and_complete(IoOpcode opcode, uint64_t offset, uint64_t length, Errc status) {
    ASSERT_NE(op(), nullptr);
    EXPECT_EQ(op()->opcode, opcode);
    EXPECT_EQ(op()->offset_bytes, offset);
    EXPECT_EQ(op()->length_bytes, length);
    host_.io->complete(status);
  }

  base::TestHost host_;
  std::unique_ptr<base::Reactor> reactor_;
  std::unique_ptr<FileDevice> device_;
};

TEST_F(HandDrivenFile, a_priority_reaches_the_disk_and_ends_with_its_request) {
  for (const uint16_t priority : {uint16_t{3 << base::kIoPriorityClassShift}, uint16_t{0}}) {
    for (const BlockOp kind : {BlockOp::kRead, BlockOp::kWrite}) {
      Io io(kind, 0, 4096);
      io.request.priority = priority;
      device_->submit(io.request);
      ASSERT_NE(op(), nullptr);
      EXPECT_EQ(op()->priority, priority);
      host_.io->complete(Errc::kOk);
      EXPECT_EQ(io.status, Errc::kOk);
    }
  }
}

constexpr uint64_t kMiB = 1 << 20;

TEST_F(HandDrivenFile, long_ranges_go_in_pieces) {
  Io io(BlockOp::kDiscard, kMiB, 0);
  io.request.length_bytes = 300 * kMiB;
  device_->submit(io.request);
  expect_and_complete(IoOpcode::kDiscard, kMiB, 128 * kMiB, Errc::kOk);
  expect_and_complete(IoOpcode::kDiscard, 129 * kMiB, 128 * kMiB, Errc::kOk);
  EXPECT_FALSE(io.status.has_value());
  expect_and_complete(IoOpcode::kDiscard, 257 * kMiB, 44 * kMiB, Errc::kOk);
  EXPECT_EQ(io.status, Errc::kOk);
}

TEST_F(HandDrivenFile, no_unmap_asks_for_zeroes_that_stay_allocated) {
  Io io(BlockOp::kWriteZeroes, 0, 4096);
  io.request.no_unmap = true;
  device_->submit(io.request);
  expect_and_complete(IoOpcode::kWriteZeroes, 0, 4096, Errc::kOk);
  EXPECT_EQ(io.status, Errc::kOk);
}

TEST_F(HandDrivenFile, zeroes_are_written_where_the_medium_cannot_zero_and_it_is_asked_once) {
  Io io(BlockOp::kWriteZeroes, 0, 0);
  io.request.length_bytes = 2 * kMiB + 4096;
  io.request.force_unit_access = true;
  device_->submit(io.request);
  expect_and_complete(IoOpcode::kDiscard, 0, 2 * kMiB + 4096, Errc::kNotSupported);
  expect_and_complete(IoOpcode::kWriteZeroes, 0, 2 * kMiB + 4096, Errc::kNotSupported);
  EXPECT_EQ(op()->buffer[0], std::byte{0});
  EXPECT_EQ(op()->buffer[kMiB - 1], std::byte{0});
  expect_and_complete(IoOpcode::kWrite, 0, kMiB, Errc::kOk);
  expect_and_complete(IoOpcode::kWrite, kMiB, kMiB, Errc::kOk);
  expect_and_complete(IoOpcode::kWrite, 2 * kMiB, 4096, Errc::kOk);
  EXPECT_FALSE(io.status.has_value()) << "FUA: not before the flush";
  expect_and_complete(IoOpcode::kFlush, 0, 0, Errc::kOk);
  EXPECT_EQ(io.status, Errc::kOk);
  EXPECT_EQ(device_->statistics().zeroes_written, 1u);

  Io again(BlockOp::kWriteZeroes, 0, 4096);
  device_->submit(again.request);
  expect_and_complete(IoOpcode::kWrite, 0, 4096, Errc::kOk);
  EXPECT_EQ(again.status, Errc::kOk);
}

TEST_F(HandDrivenFile, a_discard_that_the_medium_refuses_is_not_supported) {
  Io io(BlockOp::kDiscard, 0, 4096);
  device_->submit(io.request);
  expect_and_complete(IoOpcode::kDiscard, 0, 4096, Errc::kNotSupported);
  EXPECT_EQ(io.status, Errc::kNotSupported);

  Io again(BlockOp::kDiscard, 0, 4096);
  device_->submit(again.request);
  expect_and_complete(IoOpcode::kDiscard, 0, 4096, Errc::kNotSupported);
  EXPECT_EQ(again.status, Errc::kNotSupported) << "space is given back, or nothing is done";
  EXPECT_EQ(op(), nullptr) << "zeroes would take the space that was to be given back";

  Io zeroes(BlockOp::kWriteZeroes, 0, 4096);
  device_->submit(zeroes.request);
  expect_and_complete(IoOpcode::kWriteZeroes, 0, 4096, Errc::kOk);
  EXPECT_EQ(zeroes.status, Errc::kOk);
}

TEST_F(HandDrivenFile, requests_beyond_the_queue_depth_wait_in_order) {
  std::deque<Io> ios;
  for (uint64_t i = 0; i < 6; ++i) {
    ios.emplace_back(BlockOp::kRead, i * 4096, 4096);
    device_->submit(ios.back().request);
  }
  for (uint64_t i = 0; i < 6; ++i) {
    expect_and_complete(IoOpcode::kRead, i * 4096, 4096, Errc::kOk);
    EXPECT_EQ(ios[i].status, Errc::kOk);
  }
}

}  // namespace
}  // namespace braid::bnbd
