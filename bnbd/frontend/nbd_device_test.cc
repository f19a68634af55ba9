// What is peculiar to the front end on nbd.ko; kernel_device_test.cc has the rest. Needs root and a
// kernel with the module: tests/lab/nbd_front_end runs these in a virtual machine; skipped
// elsewhere.
#include <gtest/gtest.h>

#include <string>

#include "bnbd/frontend/test_kernel_device.h"

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

}  // namespace
}  // namespace braid::bnbd
