// What is peculiar to the front end on nbd.ko; kernel_device_test.cc has the rest. Needs root and a
// kernel with the module: tests/lab/nbd_front_end runs these in a virtual machine; skipped
// elsewhere.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bnbd/frontend/nbd_connection.h"
#include "bnbd/frontend/test_kernel_device.h"
#include "bnbd/frontend/test_victim.h"

namespace braid::bnbd {
namespace {

using test::sh_ok;

class NbdDevice : public test::KernelDeviceTest {
 protected:
  NbdDevice() : KernelDeviceTest(KernelDeviceKind::kNbd) {}
};

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

// --- killed between connecting a device and tying it to its process

/// What the process that is killed runs.
TEST(NbdDeviceProcess, DISABLED_ConnectAndStay) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  std::vector<UniqueFd> kernel_ends;
  kernel_ends.emplace_back(ends[0]);
  NbdParameters parameters;
  parameters.identifier = "braid:" + test::device_name_of(::getpid());
  parameters.size_bytes = 1 << 20;
  auto connection = NbdConnection::create(parameters, 1 << 20, std::move(kernel_ends));
  ASSERT_TRUE(connection.ok()) << connection.error().message();
  const base::Status connected = connection.value()->connect();
  ASSERT_TRUE(connected.ok()) << connected.error().message();
  std::printf("\npath=/dev/nbd%d\n", connection.value()->index());
  std::fflush(stdout);
  for (;;) ::pause();
}

TEST_F(NbdDevice, LeavesNothingWhenKilledBeforeItIsTied) {
  test::Victim victim("NbdDeviceProcess.DISABLED_ConnectAndStay", false);
  const std::string path = victim.wait_for("path=");
  ASSERT_FALSE(path.empty());
  EXPECT_TRUE(test::is_attached(path, victim.name()));
  victim.kill_now();
  EXPECT_TRUE(test::becomes_detached(path, victim.name()));
}

TEST_F(NbdDevice, TakesTheNextNumberWhenOneIsTaken) {
  make_device();
  attach_device();
  test::Victim victim("NbdDeviceProcess.DISABLED_ConnectAndStay", false);
  const std::string path = victim.wait_for("path=");
  EXPECT_NE(path, path_);
  victim.kill_now();
  EXPECT_TRUE(test::becomes_detached(path, victim.name()));
  EXPECT_FALSE(is_gone());
}

TEST_F(NbdDevice, SaysHowLongTheKernelWaits) {
  make_device();
  attach_device();
  EXPECT_EQ(kernel_->waits_at_most_ns(), 24 * 3600 * base::kSecond);
}

}  // namespace
}  // namespace braid::bnbd
