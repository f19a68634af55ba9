// A file device that is made longer and shorter under requests, over a simulated disk.
#include <gtest/gtest.h>

#include <deque>

#include "bnbd/backends.h"
#include "bnbd/test_block.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::Io;

constexpr uint64_t kFileSize = 4 << 20;

class FileResize : public testing::Test {
 protected:
  FileResize() : world_(test::calm()), machine_(world_.add_machine("m")), process_(machine_) {
    disk_ = &machine_.add_disk("/exports/disk.img", {.size_bytes = kFileSize});
    FileDeviceOptions options;
    options.root = "/exports";
    options.name = "disk.img";
    options.queue_depth = 8;
    device_ = std::move(process_.await(open_file_device(process_.reactor(), options))).value();
  }
  ~FileResize() override {
    process_.on_reactor([this] { device_.reset(); });
    world_.run_for(base::kMillisecond);
  }
  base::Status resize(uint64_t size_bytes) { return process_.await(device_->resize(size_bytes)); }
  bool refresh() { return process_.await(device_->refresh_size()).value(); }
  Errc run(Io&& io) { return process_.run(*device_, io); }
  bool reads_as(uint64_t offset, uint64_t length, int value) {
    Io read(BlockOp::kRead, offset, length, 0x55);
    return process_.run(*device_, read) == Errc::kOk && read.all(value);
  }

  static base::Task<void> try_resize(BlockDevice& device, uint64_t size_bytes, bool& refused) {
    const base::Status status = co_await device.resize(size_bytes);
    refused = !status.ok();
  }

  base::sim::SimWorld world_;
  base::sim::SimMachine& machine_;
  base::sim::SimDisk* disk_ = nullptr;
  test::Process process_;
  std::unique_ptr<BlockDevice> device_;
};

TEST_F(FileResize, what_is_new_reads_as_zeroes_and_keeps_what_is_written) {
  EXPECT_EQ(run(Io(BlockOp::kWrite, kFileSize, 4096, 1)), Errc::kOutOfRange);
  ASSERT_TRUE(resize(2 * kFileSize).ok());
  EXPECT_EQ(device_->info().size_bytes, 2 * kFileSize);
  EXPECT_TRUE(reads_as(kFileSize, 65536, 0));
  EXPECT_EQ(run(Io(BlockOp::kWrite, 2 * kFileSize - 4096, 4096, 1)), Errc::kOk);
  EXPECT_TRUE(reads_as(2 * kFileSize - 4096, 4096, 1));
}

TEST_F(FileResize, what_was_cut_off_does_not_come_back) {
  ASSERT_EQ(run(Io(BlockOp::kWrite, kFileSize - 4096, 4096, 1)), Errc::kOk);
  ASSERT_TRUE(resize(kFileSize / 2).ok());
  EXPECT_EQ(run(Io(BlockOp::kRead, kFileSize - 4096, 4096)), Errc::kOutOfRange);
  ASSERT_TRUE(resize(kFileSize).ok());
  EXPECT_TRUE(reads_as(kFileSize - 4096, 4096, 0));
}

TEST_F(FileResize, requests_beyond_the_new_end_that_are_under_way_end_before_it_is_cut) {
  disk_->faults.slow_factor = 100;
  std::deque<Io> ios;  // more than the device takes at a time
  for (uint64_t i = 0; i < 40; ++i) {
    ios.emplace_back(BlockOp::kWrite, kFileSize - (i + 1) * 4096, 4096, 1);
    process_.submit(*device_, ios.back());
  }
  world_.run_for(base::kMicrosecond);
  ASSERT_TRUE(resize(kFileSize / 2).ok());
  EXPECT_EQ(disk_->current().size(), kFileSize / 2);
  size_t done = 0;
  for (Io& io : ios) {
    const Errc status = process_.wait(io);
    EXPECT_TRUE(status == Errc::kOk || status == Errc::kOutOfRange) << to_string(status);
    done += status == Errc::kOk ? 1 : 0;
  }
  EXPECT_EQ(done, 8u) << "as many as were at the disk";
}

TEST_F(FileResize, a_disk_that_hangs_keeps_the_device_as_long_as_it_is) {
  disk_->faults.stalled_until_ns = world_.now_ns() + 60 * base::kSecond;
  Io write(BlockOp::kWrite, kFileSize - 4096, 4096, 1);
  process_.submit(*device_, write);
  world_.run_for(base::kMicrosecond);
  const base::Status refused = resize(kFileSize / 2);
  EXPECT_EQ(refused.code(), Errc::kTimedOut);
  EXPECT_EQ(device_->info().size_bytes, kFileSize);
  EXPECT_EQ(process_.wait(write), Errc::kOk);
}

TEST_F(FileResize, a_cut_that_fails_has_failed_nobodys_request) {
  disk_->faults.stalled_until_ns = world_.now_ns() + 12 * base::kSecond;
  Io stuck(BlockOp::kWrite, kFileSize - 4096, 4096, 1);
  process_.submit(*device_, stuck);
  world_.run_for(base::kMicrosecond);
  bool refused = false;
  process_.on_reactor(
      [&] { process_.reactor().spawn(try_resize(*device_, kFileSize / 2, refused)); });
  world_.run_for(base::kSecond);
  Io meanwhile(BlockOp::kWrite, kFileSize - 8192, 4096, 2);
  process_.submit(*device_, meanwhile);
  world_.run_for(base::kSecond);
  EXPECT_EQ(device_->info().size_bytes, kFileSize) << "who opens it now is told what holds";
  EXPECT_EQ(process_.wait(meanwhile), Errc::kOk);
  EXPECT_TRUE(refused);
  EXPECT_EQ(process_.wait(stuck), Errc::kOk);
}

/// A write behind it would make the file longer again, with a hole where flushed data was.
TEST_F(FileResize, a_cut_that_is_done_and_cannot_be_made_durable_holds) {
  ASSERT_EQ(run(Io(BlockOp::kWrite, kFileSize - 4096, 4096, 1)), Errc::kOk);
  disk_->faults = {.errors_per_million = 1'000'000, .sets_undurably = true};
  EXPECT_EQ(resize(kFileSize / 2).code(), Errc::kIo);
  disk_->faults = {};
  EXPECT_EQ(device_->info().size_bytes, kFileSize / 2);
  EXPECT_EQ(run(Io(BlockOp::kWrite, kFileSize - 4096, 4096, 2)), Errc::kOutOfRange);
  EXPECT_EQ(disk_->current().size(), kFileSize / 2);
}

TEST_F(FileResize, sizes_that_cannot_be_are_refused_and_change_nothing) {
  for (const uint64_t size : {uint64_t{0}, uint64_t{511}, kFileSize + 1, uint64_t{INT64_MAX} + 1}) {
    EXPECT_EQ(resize(size).code(), Errc::kInvalid) << size;
  }
  disk_->faults = {.errors_per_million = 1'000'000, .error = Errc::kNoSpace};
  const base::Status refused = resize(2 * kFileSize);
  EXPECT_EQ(refused.code(), Errc::kNoSpace);
  EXPECT_EQ(device_->info().size_bytes, kFileSize);
}

TEST_F(FileResize, what_others_did_to_the_size_is_noticed_when_it_is_asked_for) {
  EXPECT_FALSE(refresh());
  disk_->resize(2 * kFileSize + 4096 + 512);
  EXPECT_TRUE(refresh());
  EXPECT_EQ(device_->info().size_bytes, 2 * kFileSize + 4096 + 512);
  disk_->resize(kFileSize / 2);
  EXPECT_TRUE(refresh());
  EXPECT_EQ(run(Io(BlockOp::kWrite, kFileSize / 2, 4096, 1)), Errc::kOutOfRange);
  EXPECT_FALSE(refresh());
}

}  // namespace
}  // namespace braid::bnbd
