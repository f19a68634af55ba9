// What is peculiar to a FUSE file with a loop device on it; kernel_device_test.cc has the rest.
// Needs root, /dev/fuse and loop devices; skipped elsewhere.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "bnbd/frontend/test_kernel_device.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::sh;
using test::sh_ok;

class FuseLoopDevice : public test::KernelDeviceTest {
 protected:
  FuseLoopDevice() : KernelDeviceTest(KernelDeviceKind::kFuse) {}
};

TEST_F(FuseLoopDevice, BypassesThePageCacheOfItsFile) {
  make_device();
  attach_device();
  EXPECT_NE(kernel_->kind_text().find("direct I/O"), std::string::npos) << kernel_->kind_text();
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

TEST_F(FuseLoopDevice, WarnsWhenAnAdministratorEndsItsSession) {
  make_device();
  attach_device();
  // The connection of a FUSE file system has the number of its device.
  const std::string folder = mount_point_ + "-fusectl";
  std::filesystem::create_directories(folder);
  sh_ok("mount -t fusectl fusectl " + folder);
  sh_ok("echo 1 >" + folder + "/$(losetup -n -O BACK-MAJ:MIN " + path_ +
        " | sed 's/.*://; s/ //g')/abort");
  EXPECT_TRUE(threads_->wait_until([&] { return !kernel_->alive(); }));
  // The log is written by a thread of its own.
  EXPECT_TRUE(
      threads_->wait_until([&] { return threads_->log().with("without being asked to") != ""; }));
  sh_ok("umount " + folder);
  std::filesystem::remove(folder);
  const auto status = detach();
  EXPECT_TRUE(status.ok()) << status.error().message();
  EXPECT_TRUE(is_gone());
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

}  // namespace
}  // namespace braid::bnbd
