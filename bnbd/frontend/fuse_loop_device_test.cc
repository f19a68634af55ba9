// A FUSE file with a loop device on it, used as people use disks. Needs root, /dev/fuse and loop
// devices; skipped elsewhere.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

#include "bnbd/frontend/test_kernel_device.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::sh;
using test::sh_ok;

constexpr uint64_t kMiB = 1 << 20;

/// Why these tests cannot run here; empty: they can.
std::string missing() {
  if (::geteuid() != 0) return "needs root";
  if (!std::filesystem::exists("/dev/fuse")) return "this kernel has no /dev/fuse";
  if (!std::filesystem::exists("/dev/loop-control")) return "this kernel has no loop devices";
  return {};
}

class FuseLoopDevice : public test::KernelDeviceTest {
 protected:
  FuseLoopDevice() : KernelDeviceTest(KernelDeviceKind::kFuse, "loop") {}
  void SetUp() override {
    if (const std::string what = missing(); !what.empty()) GTEST_SKIP() << what;
  }
};

TEST_F(FuseLoopDevice, HoldsAFileSystemThatSurvivesMountingAgain) {
  make_device();
  attach_device();
  EXPECT_NE(kernel_->kind_text().find("direct I/O"), std::string::npos) << kernel_->kind_text();
  make_file_system();
  sh_ok("dd if=/dev/urandom of=" + mount_point_ + "/big bs=1M count=20 status=none");
  sh_ok("dd if=/dev/urandom of=" + mount_point_ + "/odd bs=4093 count=777 status=none");
  const std::string sums = sh_ok("cd " + mount_point_ + " && sha256sum big odd").output;
  sh_ok("umount " + mount_point_);
  sh_ok("fsck.ext4 -f -n " + path_);
  sh_ok("mount " + path_ + " " + mount_point_);
  EXPECT_EQ(sh_ok("cd " + mount_point_ + " && sha256sum big odd").output, sums);
  sh_ok("umount " + mount_point_);
  const auto status = detach();
  EXPECT_TRUE(status.ok()) << status.error().message();
  EXPECT_TRUE(is_gone());
}

TEST_F(FuseLoopDevice, TakesBufferedWritesOfAnySizeAndPlace) {
  make_device();
  attach_device();
  const std::string image = mount_point_ + ".image";
  sh_ok("truncate -s 64M " + image);
  for (const std::string& to : {path_, image}) {
    sh_ok(
        "dd if=/dev/zero bs=1M count=3 status=none | tr '\\0' a | "
        "dd of=" +
        to + " bs=1M conv=notrunc,fsync iflag=fullblock status=none");
    sh_ok(
        "dd if=/dev/zero bs=4k count=5 status=none | tr '\\0' b | "
        "dd of=" +
        to + " bs=4k seek=100 conv=notrunc,fsync iflag=fullblock status=none");
    sh_ok(
        "dd if=/dev/zero bs=7919 count=13 status=none | tr '\\0' c | "
        "dd of=" +
        to + " bs=7919 seek=31 conv=notrunc,fsync iflag=fullblock status=none");
  }
  sh_ok("blockdev --flushbufs " + path_ + " && cmp " + path_ + " " + image);
  sh_ok("cmp -n 33554432 " + path_ + " " + image);
  std::filesystem::remove(image);
}

TEST_F(FuseLoopDevice, MovesDirectTransfersOfOneMebibyteInOnePiece) {
  make_device();
  attach_device();
  const uint64_t before = device_->count(BlockOp::kWrite);
  sh_ok("dd if=/dev/zero of=" + path_ + " bs=1M count=8 oflag=direct conv=notrunc status=none");
  const uint64_t writes = device_->count(BlockOp::kWrite) - before;
  EXPECT_GE(writes, 8U);
  EXPECT_LE(writes, 16U) << "transfers are cut into small pieces";
}

TEST_F(FuseLoopDevice, HasTheLogicalBlockOfTheDevice) {
  make_device(64 * kMiB, 4096);
  attach_device();
  EXPECT_EQ(sh_ok("blockdev --getss " + path_).output, "4096");
  make_file_system();
  sh_ok("dd if=/dev/urandom of=" + mount_point_ + "/f bs=1000 count=1000 status=none && sync");
  sh_ok("umount " + mount_point_ + " && fsck.ext4 -f -n " + path_);
}

TEST_F(FuseLoopDevice, PassesDiscardsOnAsZeroesThatMayUnmap) {
  make_device();
  attach_device();
  sh_ok("dd if=/dev/urandom of=" + path_ + " bs=1M count=4 oflag=direct conv=notrunc status=none");
  sh_ok("blkdiscard -o 1M -l 2M " + path_);
  EXPECT_GT(device_->count(BlockOp::kWriteZeroes), 0U);
  sh_ok("dd if=" + path_ +
        " bs=1M skip=1 count=2 iflag=direct status=none | cmp -n 2097152 - /dev/zero");
  const uint64_t before = device_->count(BlockOp::kWriteZeroes);
  sh_ok("blkdiscard --zeroout -o 0 -l 1M " + path_);
  EXPECT_GT(device_->count(BlockOp::kWriteZeroes), before);
}

TEST_F(FuseLoopDevice, WritesZeroesItselfForADeviceThatCannot) {
  make_device();
  threads_->on_reactor([&] {
    device_->change_info().max_write_zeroes_bytes = 0;
    device_->change_info().max_discard_bytes = 0;
  });
  attach_device();
  sh_ok("dd if=/dev/urandom of=" + path_ + " bs=1M count=1 oflag=direct conv=notrunc status=none");
  sh_ok("blkdiscard --zeroout -o 0 -l 1M " + path_);
  sh_ok("dd if=" + path_ + " bs=1M count=1 iflag=direct status=none | cmp -n 1048576 - /dev/zero");
}

TEST_F(FuseLoopDevice, FlushesTheDeviceOnFsync) {
  make_device();
  attach_device();
  make_file_system();
  const uint64_t before = device_->count(BlockOp::kFlush);
  sh_ok("dd if=/dev/zero of=" + mount_point_ + "/f bs=4k count=1 conv=fsync status=none");
  EXPECT_GT(device_->count(BlockOp::kFlush), before);
  sh_ok("umount " + mount_point_);
}

TEST_F(FuseLoopDevice, RefusesToWriteToAReadOnlyDevice) {
  make_device();
  threads_->on_reactor([&] { device_->change_info().read_only = true; });
  attach_device();
  EXPECT_EQ(sh_ok("blockdev --getro " + path_).output, "1");
  EXPECT_FALSE(sh("dd if=/dev/zero of=" + path_ + " bs=4k count=1 oflag=direct status=none").ok());
  sh_ok("dd if=" + path_ + " of=/dev/null bs=4k count=1 iflag=direct status=none");
  EXPECT_EQ(device_->count(BlockOp::kWrite), 0U);
}

TEST_F(FuseLoopDevice, ReportsTheErrorsOfTheDevice) {
  make_device();
  attach_device();
  threads_->on_reactor([&] { device_->fail_with(Errc::kIo); });
  const auto read = sh("dd if=" + path_ + " of=/dev/null bs=4k count=1 iflag=direct status=none");
  EXPECT_NE(read.output.find("Input/output error"), std::string::npos) << read.output;
  threads_->on_reactor([&] { device_->fail_with(Errc::kNoSpace); });
  const auto write =
      sh("dd if=/dev/zero of=" + path_ + " bs=4k count=1 oflag=direct conv=notrunc status=none");
  EXPECT_NE(write.output.find("No space left"), std::string::npos) << write.output;
  threads_->on_reactor([&] { device_->fail_with(Errc::kOk); });
  sh_ok("dd if=" + path_ + " of=/dev/null bs=4k count=1 iflag=direct status=none");
}

TEST_F(FuseLoopDevice, NamesTheMountPointWhenDetachedWhileMounted) {
  make_device();
  attach_device();
  make_file_system();
  auto status = detach();
  ASSERT_EQ(status.code(), Errc::kBusy);
  EXPECT_NE(status.error().message().find("mounted at " + mount_point_), std::string::npos)
      << status.error().message();
  sh_ok("dd if=/dev/urandom of=" + mount_point_ + "/f bs=1M count=1 conv=fsync status=none");
  sh_ok("umount " + mount_point_);
  status = detach();
  EXPECT_TRUE(status.ok()) << status.error().message();
}

TEST_F(FuseLoopDevice, NamesTheProcessThatHasItOpenWhenDetached) {
  make_device();
  attach_device();
  FILE* const holder = open_elsewhere();
  const auto status = detach();
  EXPECT_EQ(status.code(), Errc::kBusy);
  EXPECT_NE(status.error().message().find("(sh)"), std::string::npos) << status.error().message();
  ::pclose(holder);
}

TEST_F(FuseLoopDevice, WritesDirtyPagesBackBeforeItGoes) {
  make_device();
  attach_device();
  sh_ok("dd if=/dev/zero bs=1M count=2 status=none | tr '\\0' z | dd of=" + path_ +
        " bs=64k conv=notrunc status=none");
  const auto status = detach();
  ASSERT_TRUE(status.ok()) << status.error().message();
  attach_device();
  EXPECT_EQ(sh_ok("head -c 2097152 " + path_ + " | tr -d z | wc -c").output, "0");
}

TEST_F(FuseLoopDevice, StaysWhenDirtyPagesCannotBeWritten) {
  make_device();
  attach_device();
  sh_ok("dd if=/dev/zero of=" + path_ + " bs=64k count=4 conv=notrunc status=none");
  threads_->on_reactor([&] { device_->fail_with(Errc::kIo); });
  const auto status = detach();
  EXPECT_EQ(status.code(), Errc::kIo);
  threads_->on_reactor([&] { device_->fail_with(Errc::kOk); });
  sh_ok("dd if=" + path_ + " of=/dev/null bs=4k count=1 iflag=direct status=none");
}

TEST_F(FuseLoopDevice, WaitsForASlowDeviceWhileSyncRuns) {
  make_device();
  KernelDeviceOptions options;
  options.slots = 4;  // fewer than the kernel sends
  attach_device(options);
  make_file_system();
  threads_->on_reactor([&] { device_->hold(); });
  FILE* const writer = ::popen(("exec dd if=/dev/urandom of=" + mount_point_ +
                                "/f bs=1M count=16 conv=fsync status=none 2>&1")
                                   .c_str(),
                               "re");
  ASSERT_TRUE(threads_->wait_until([&] { return device_->held_count() == 4; }));
  // The kernel has more than there are slots; the reactor sleeps meanwhile and turns as before.
  EXPECT_EQ(kernel_->statistics().in_flight, 4U);
  threads_->on_reactor([&] { device_->release(); });
  EXPECT_EQ(::pclose(writer), 0);
  EXPECT_GT(kernel_->statistics().starved, 0U);
  sh_ok("umount " + mount_point_ + " && fsck.ext4 -f -n " + path_);
}

TEST_F(FuseLoopDevice, GoesByForceUnderAMountedFileSystem) {
  make_device();
  attach_device();
  make_file_system();
  const auto status = detach(true);
  ASSERT_TRUE(status.ok()) << status.error().message();
  EXPECT_FALSE(sh("dd if=" + path_ + " of=/dev/null bs=4k count=1 iflag=direct status=none").ok());
  sh("umount " + mount_point_);
  EXPECT_TRUE(is_gone());
}

TEST_F(FuseLoopDevice, GoesByForceWhileTheDeviceHoldsDirtyPages) {
  make_device();
  KernelDeviceOptions options;
  options.force_flush_timeout_ns = base::kSecond;
  attach_device(options);
  sh_ok("dd if=/dev/zero of=" + path_ + " bs=64k count=4 conv=notrunc status=none");
  threads_->on_reactor([&] { device_->hold(); });
  base::Status status;
  std::thread detaching([&] { status = detach(true); });
  ASSERT_TRUE(threads_->wait_until([&] { return device_->held_count() > 0; }));
  ASSERT_TRUE(threads_->wait_until([&] { return !kernel_->alive(); }));
  threads_->on_reactor([&] { device_->release(); });
  detaching.join();
  ASSERT_TRUE(status.ok()) << status.error().message();
  EXPECT_TRUE(is_gone());
}

TEST_F(FuseLoopDevice, CanBeDestroyedWithoutDetach) {
  make_device();
  attach_device();
  sh_ok("dd if=/dev/zero of=" + path_ + " bs=64k count=4 conv=notrunc status=none");
  threads_->on_reactor([&] { kernel_.reset(); });
  EXPECT_TRUE(threads_->wait_until([&] { return is_gone(); }));
}

TEST_F(FuseLoopDevice, RefusesOptionsThatMakeNoSense) {
  make_device();
  KernelDeviceOptions options;
  options.name = "../evil";
  EXPECT_EQ(try_attach(options).code(), Errc::kInvalid);
  options.name = "disk";
  options.slots = 0;
  EXPECT_EQ(try_attach(options).code(), Errc::kInvalid);
  options.slots = 1;
  threads_->on_reactor([&] { device_->change_info().logical_block_bytes = 8192; });
  EXPECT_EQ(try_attach(options).code(), Errc::kNotSupported);
}

// --- the serving process is killed

/// What the process that is killed runs.
TEST(FuseLoopDeviceProcess, DISABLED_Serve) {
  test::serve_until_killed(KernelDeviceKind::kFuse);
}

class FuseLoopDeviceKilled : public testing::Test {
 protected:
  static constexpr const char* kProcess = "FuseLoopDeviceProcess.DISABLED_Serve";
  void SetUp() override {
    if (const std::string what = missing(); !what.empty()) GTEST_SKIP() << what;
  }
};

TEST_F(FuseLoopDeviceKilled, LeavesNothingBehind) {
  test::Victim victim(kProcess, false);
  const std::string path = victim.wait_for("path=");
  ASSERT_FALSE(path.empty());
  EXPECT_TRUE(test::is_attached(path, "loop"));
  victim.kill_now();
  EXPECT_FALSE(test::is_attached(path, "loop"));
}

TEST_F(FuseLoopDeviceKilled, EndsEvenWithDirtyPagesAndLeavesNothingBehind) {
  test::Victim victim(kProcess, false);
  const std::string path = victim.wait_for("path=");
  ASSERT_FALSE(path.empty());
  sh_ok("dd if=/dev/zero of=" + path + " bs=1M count=8 conv=notrunc status=none");
  victim.kill_now();
  EXPECT_FALSE(test::is_attached(path, "loop"));
}

TEST_F(FuseLoopDeviceKilled, FailsTheRequestsInFlight) {
  test::Victim victim(kProcess, true);
  const std::string path = victim.wait_for("path=");
  ASSERT_FALSE(path.empty());
  FILE* const writer = ::popen(
      ("exec dd if=/dev/zero of=" + path + " bs=1M count=4 conv=notrunc,fsync status=none 2>&1")
          .c_str(),
      "re");
  ASSERT_FALSE(victim.wait_for("held=").empty());
  victim.kill_now();
  EXPECT_NE(::pclose(writer), 0);
  EXPECT_FALSE(test::is_attached(path, "loop"));
}

TEST_F(FuseLoopDeviceKilled, LeavesTheLoopDeviceOnlyUntilItIsUnmounted) {
  test::Victim victim(kProcess, false);
  const std::string path = victim.wait_for("path=");
  ASSERT_FALSE(path.empty());
  const std::string mount_point = testing::TempDir() + "braid-killed-" + std::to_string(::getpid());
  std::filesystem::create_directories(mount_point);
  sh_ok("mkfs.ext4 -q -F " + path + " && mount " + path + " " + mount_point);
  sh_ok("dd if=/dev/zero of=" + mount_point + "/f bs=1M count=8 status=none");
  victim.kill_now();
  EXPECT_TRUE(test::is_attached(path, "loop"));
  sh_ok("umount " + mount_point);
  EXPECT_FALSE(test::is_attached(path, "loop"));
  std::filesystem::remove(mount_point);
}

}  // namespace
}  // namespace braid::bnbd
