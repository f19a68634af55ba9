// The front end on nbd.ko. Needs root and a kernel with the module: tests/lab/nbd_front_end runs
// these in a virtual machine; skipped elsewhere.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "bnbd/frontend/nbd_netlink.h"
#include "bnbd/frontend/test_kernel_device.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::sh;
using test::sh_ok;

std::string missing() {
  if (::geteuid() != 0) return "needs root";
  const base::Status module = find_nbd_module();
  return module.ok() ? std::string() : module.error().message();
}

class NbdDevice : public test::KernelDeviceTest {
 protected:
  NbdDevice() : KernelDeviceTest(KernelDeviceKind::kNbd, "pid") {}
  void SetUp() override {
    if (const std::string what = missing(); !what.empty()) GTEST_SKIP() << what;
  }
};

TEST_F(NbdDevice, HoldsAFileSystemThatSurvivesMountingAgain) {
  make_device();
  attach_device();
  EXPECT_EQ(kernel_->kind(), KernelDeviceKind::kNbd);
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

TEST_F(NbdDevice, SpreadsOverSeveralConnections) {
  make_device(64 * kMiB, 4096);
  KernelDeviceOptions options;
  options.nbd_connections = 4;
  attach_device(options);
  EXPECT_EQ(sh_ok("blockdev --getss " + path_).output, "4096");
  EXPECT_EQ(sh_ok("ls /sys/block/" + path_.substr(5) + "/mq | wc -l").output,
            sh_ok("n=$(nproc); echo $((n < 4 ? n : 4))").output);
  make_file_system();
  sh_ok("dd if=/dev/urandom of=" + mount_point_ + "/f bs=1M count=10 conv=fsync status=none");
  sh_ok("umount " + mount_point_ + " && fsck.ext4 -f -n " + path_);
}

TEST_F(NbdDevice, PassesDiscardFlushAndTransfersOn) {
  make_device();
  threads_->on_reactor([&] { device_->change_info().write_cache = true; });
  attach_device();
  sh_ok("dd if=/dev/urandom of=" + path_ + " bs=1M count=4 oflag=direct conv=notrunc status=none");
  EXPECT_LE(device_->count(BlockOp::kWrite), 8U) << "transfers are cut into small pieces";
  sh_ok("blkdiscard -o 1M -l 2M " + path_);
  EXPECT_GT(device_->count(BlockOp::kDiscard), 0U);
  const uint64_t before = device_->count(BlockOp::kFlush);
  sh_ok("dd if=/dev/zero of=" + path_ + " bs=4k count=1 conv=notrunc,fsync status=none");
  EXPECT_GT(device_->count(BlockOp::kFlush), before);
}

TEST_F(NbdDevice, RefusesToWriteToAReadOnlyDevice) {
  make_device();
  threads_->on_reactor([&] { device_->change_info().read_only = true; });
  attach_device();
  EXPECT_FALSE(sh("dd if=/dev/zero of=" + path_ + " bs=4k count=1 oflag=direct status=none").ok());
  sh_ok("dd if=" + path_ + " of=/dev/null bs=4k count=1 iflag=direct status=none");
  EXPECT_EQ(device_->count(BlockOp::kWrite), 0U);
}

TEST_F(NbdDevice, NamesWhatUsesItWhenDetached) {
  make_device();
  attach_device();
  make_file_system();
  auto status = detach();
  ASSERT_EQ(status.code(), Errc::kBusy);
  EXPECT_NE(status.error().message().find("mounted at " + mount_point_), std::string::npos)
      << status.error().message();
  sh_ok("umount " + mount_point_);
  FILE* const holder = open_elsewhere();
  status = detach();
  EXPECT_EQ(status.code(), Errc::kBusy);
  EXPECT_NE(status.error().message().find("(sh)"), std::string::npos) << status.error().message();
  ::pclose(holder);
}

TEST_F(NbdDevice, WritesDirtyPagesBackBeforeItGoes) {
  make_device();
  attach_device();
  sh_ok("dd if=/dev/zero bs=1M count=2 status=none | tr '\\0' z | dd of=" + path_ +
        " bs=64k conv=notrunc status=none");
  const auto status = detach();
  ASSERT_TRUE(status.ok()) << status.error().message();
  EXPECT_TRUE(is_gone());
  attach_device();
  EXPECT_EQ(sh_ok("head -c 2097152 " + path_ + " | tr -d z | wc -c").output, "0");
}

TEST_F(NbdDevice, GoesByForceUnderAMountedFileSystem) {
  make_device();
  attach_device();
  make_file_system();
  const auto status = detach(true);
  ASSERT_TRUE(status.ok()) << status.error().message();
  sh("umount " + mount_point_);
  EXPECT_TRUE(is_gone());
}

TEST_F(NbdDevice, CanBeDestroyedWithoutDetach) {
  make_device();
  attach_device();
  threads_->on_reactor([&] { kernel_.reset(); });
  EXPECT_TRUE(threads_->wait_until([&] { return is_gone(); }));
}

// --- the serving process is killed

/// What the process that is killed runs.
TEST(NbdDeviceProcess, DISABLED_Serve) {
  test::serve_until_killed(KernelDeviceKind::kNbd);
}

class NbdDeviceKilled : public testing::Test {
 protected:
  static constexpr const char* kProcess = "NbdDeviceProcess.DISABLED_Serve";
  void SetUp() override {
    if (const std::string what = missing(); !what.empty()) GTEST_SKIP() << what;
  }
};

TEST_F(NbdDeviceKilled, LeavesNothingBehind) {
  test::Victim victim(kProcess, false);
  const std::string path = victim.wait_for("path=");
  ASSERT_FALSE(path.empty());
  EXPECT_TRUE(test::is_attached(path, "pid"));
  victim.kill_now();
  EXPECT_TRUE(test::becomes_detached(path, "pid"));
}

TEST_F(NbdDeviceKilled, EndsEvenWithDirtyPagesAndLeavesNothingBehind) {
  test::Victim victim(kProcess, false);
  const std::string path = victim.wait_for("path=");
  ASSERT_FALSE(path.empty());
  sh_ok("dd if=/dev/zero of=" + path + " bs=1M count=8 conv=notrunc status=none");
  victim.kill_now();
  EXPECT_TRUE(test::becomes_detached(path, "pid"));
}

TEST_F(NbdDeviceKilled, FailsTheRequestsInFlight) {
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
  EXPECT_TRUE(test::becomes_detached(path, "pid"));
}

}  // namespace
}  // namespace braid::bnbd
