// What every front end does alike: a device that the kernel has, used as people use disks, taken
// away, or left by a process that is killed. Each test runs on each front end; skipped where the
// kernel lacks it (tests/lab/nbd_front_end has a kernel with nbd.ko).
#include "bnbd/kernel_device.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "bnbd/frontend/fuse_server.h"
#include "bnbd/frontend/nbd_server.h"
#include "bnbd/frontend/test_kernel_device.h"
#include "bnbd/frontend/test_victim.h"
#include "bnbd/frontend/write_back.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::sh;
using test::sh_ok;

class KernelDeviceTest : public test::KernelDeviceTest,
                         public testing::WithParamInterface<KernelDeviceKind> {
 protected:
  KernelDeviceTest() : test::KernelDeviceTest(GetParam()) {}
};

std::string kind_name(const testing::TestParamInfo<KernelDeviceKind>& info) {
  return std::string(to_string(info.param));
}
INSTANTIATE_TEST_SUITE_P(FrontEnds, KernelDeviceTest,
                         testing::Values(KernelDeviceKind::kFuse, KernelDeviceKind::kNbd),
                         kind_name);

TEST_P(KernelDeviceTest, HoldsAFileSystemThatSurvivesMountingAgain) {
  make_device();
  attach_device();
  EXPECT_EQ(kernel_->kind(), kind_);
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
  // Lines reach the log in order, by a thread of its own: after this one all are there.
  threads_->on_reactor([&] { threads_->reactor().log().info("the last line"); });
  ASSERT_TRUE(threads_->wait_until([&] { return threads_->log().with("the last line") != ""; }));
  EXPECT_EQ(threads_->log().with("warning"), "") << "nothing out of the ordinary happened";
}

TEST_P(KernelDeviceTest, HasTheLogicalBlockOfTheDevice) {
  make_device(64 * kMiB, 4096);
  attach_device();
  EXPECT_EQ(sh_ok("blockdev --getss " + path_).output, "4096");
  make_file_system();
  sh_ok("dd if=/dev/urandom of=" + mount_point_ + "/f bs=1000 count=1000 conv=fsync status=none");
  sh_ok("umount " + mount_point_ + " && fsck.ext4 -f -n " + path_);
}

TEST_P(KernelDeviceTest, HasTheSizeOfTheDeviceWhenThatChanges) {
  make_device();
  attach_device();
  const auto size = [&] { return sh_ok("blockdev --getsize64 " + path_).output; };
  for (const uint64_t bytes : {32 * kMiB, 48 * kMiB, 16 * kMiB + 512}) {  // the memory has 64
    threads_->on_reactor([&] { device_->change_info().size_bytes = bytes; });
    const auto followed = threads_->await([&] { return kernel_->follow_size(); });
    if (kind_ == KernelDeviceKind::kFuse && followed.code() == Errc::kNotSupported) {
      GTEST_SKIP() << followed.error().message();
    }
    ASSERT_TRUE(followed.ok()) << followed.error().message();
    EXPECT_EQ(size(), std::to_string(bytes));
  }
  const std::string dd =
      "dd if=/dev/zero of=" + path_ + " bs=4k count=1 conv=notrunc oflag=direct ";
  sh_ok(dd + "seek=4095 status=none");
  EXPECT_FALSE(sh(dd + "seek=8191 status=none").ok()) << "beyond the end";
}

TEST_P(KernelDeviceTest, GrowsUnderAMountedFileSystem) {
  make_device();
  threads_->on_reactor([&] { device_->change_info().size_bytes = 24 * kMiB; });
  attach_device();
  make_file_system();
  threads_->on_reactor([&] { device_->change_info().size_bytes = 64 * kMiB; });
  const auto followed = threads_->await([&] { return kernel_->follow_size(); });
  if (followed.code() == Errc::kNotSupported) {
    sh_ok("umount " + mount_point_);
    GTEST_SKIP() << followed.error().message();
  }
  ASSERT_TRUE(followed.ok()) << followed.error().message();
  // Growing it while it is mounted takes a privilege that not every container has.
  sh_ok("umount " + mount_point_ + " && fsck.ext4 -f -p " + path_ + " && resize2fs " + path_);
  sh_ok("mount " + path_ + " " + mount_point_);
  sh_ok("dd if=/dev/urandom of=" + mount_point_ + "/big bs=1M count=40 conv=fsync status=none");
  sh_ok("umount " + mount_point_ + " && fsck.ext4 -f -n " + path_);
}

TEST_P(KernelDeviceTest, CutsDirectTransfersNoSmallerThanItsSlots) {
  make_device();
  attach_device();
  const uint64_t before = device_->count(BlockOp::kWrite);
  sh_ok("dd if=/dev/zero of=" + path_ + " bs=1M count=8 oflag=direct conv=notrunc status=none");
  const uint64_t writes = device_->count(BlockOp::kWrite) - before;
  const bool is_fuse = GetParam() == KernelDeviceKind::kFuse;
  const uint64_t slot_bytes = is_fuse ? FuseServer::kPayloadMax : NbdServer::kPayloadMax;
  const uint64_t due = 8 * kMiB / slot_bytes;
  EXPECT_GE(writes, due);
  EXPECT_LE(writes, due + 8) << "transfers are cut into small pieces";
}

TEST_P(KernelDeviceTest, MakesItsMemoryWhereThatHoldsUpNoOtherDevice) {
  make_device();
  attach_device();
  std::thread::id reactor;
  threads_->on_reactor([&] { reactor = std::this_thread::get_id(); });
  EXPECT_NE(device_->region_maker(), reactor);
}

TEST_P(KernelDeviceTest, FlushesTheDeviceOnFsync) {
  make_device();
  threads_->on_reactor([&] { device_->change_info().write_cache = true; });
  attach_device();
  make_file_system();
  const uint64_t before = device_->count(BlockOp::kFlush);
  sh_ok("dd if=/dev/zero of=" + mount_point_ + "/f bs=4k count=1 conv=fsync status=none");
  EXPECT_GT(device_->count(BlockOp::kFlush), before);
  sh_ok("umount " + mount_point_);
}

TEST_P(KernelDeviceTest, RefusesToWriteToAReadOnlyDevice) {
  make_device();
  threads_->on_reactor([&] { device_->change_info().read_only = true; });
  attach_device();
  EXPECT_EQ(sh_ok("blockdev --getro " + path_).output, "1");
  EXPECT_FALSE(sh("dd if=/dev/zero of=" + path_ + " bs=4k count=1 oflag=direct status=none").ok());
  sh_ok("dd if=" + path_ + " of=/dev/null bs=4k count=1 iflag=direct status=none");
  EXPECT_EQ(device_->count(BlockOp::kWrite), 0U);
}

TEST_P(KernelDeviceTest, NamesTheMountPointWhenDetachedWhileMounted) {
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

TEST_P(KernelDeviceTest, NamesTheProcessThatHasItOpenWhenDetached) {
  make_device();
  attach_device();
  FILE* const holder = open_elsewhere();
  const auto status = detach();
  EXPECT_EQ(status.code(), Errc::kBusy);
  EXPECT_NE(status.error().message().find("(sh)"), std::string::npos) << status.error().message();
  ::pclose(holder);
}

TEST_P(KernelDeviceTest, WritesDirtyPagesBackBeforeItGoes) {
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

TEST_P(KernelDeviceTest, StaysWhenDirtyPagesCannotBeWritten) {
  make_device();
  attach_device();
  sh_ok("dd if=/dev/zero of=" + path_ + " bs=64k count=4 conv=notrunc status=none");
  threads_->on_reactor([&] { device_->fail_with(Errc::kIo); });
  const auto status = detach();
  EXPECT_EQ(status.code(), Errc::kIo);
  threads_->on_reactor([&] { device_->fail_with(Errc::kOk); });
  sh_ok("dd if=" + path_ + " of=/dev/null bs=4k count=1 iflag=direct status=none");
}

TEST_P(KernelDeviceTest, WaitsForASlowDeviceWhileSyncRuns) {
  make_device();
  KernelDeviceOptions options;
  options.slots = 4;  // fewer than the kernel sends
  attach_device(options);
  make_file_system();
  const std::string write = "dd if=/dev/zero of=" + mount_point_ + "/f bs=1M count=16 status=none ";
  sh_ok(write + "conv=fsync");
  // Held from before it is dirty: somebody else's sync writes this file back, too.
  threads_->on_reactor([&] { device_->hold(); });
  sh_ok(write + "conv=notrunc");  // in place: nothing has to be read for it
  FILE* const writer = ::popen(("exec sync " + mount_point_ + "/f 2>&1").c_str(), "re");
  // What nbd.ko has sent may still be on its way.
  ASSERT_TRUE(threads_->wait_until([&] {
    const bool more_came = kind_ == KernelDeviceKind::kFuse || kernel_->statistics().starved > 0;
    return device_->held_count() == 4 && more_came;
  }));
  // The kernel has more than there are slots; the reactor sleeps meanwhile and turns as before.
  EXPECT_EQ(statistics().in_flight, 4U);
  threads_->on_reactor([&] { device_->release(); });
  EXPECT_EQ(::pclose(writer), 0);
  EXPECT_GT(statistics().starved, 0U);
  sh_ok("umount " + mount_point_ + " && fsck.ext4 -f -n " + path_);
}

TEST_P(KernelDeviceTest, GoesByForceUnderAMountedFileSystem) {
  make_device();
  attach_device();
  make_file_system();
  auto detached = detach(DetachMode::kForce);
  ASSERT_TRUE(detached.ok()) << detached.error().message();
  EXPECT_TRUE(
      threads_->wait_until([&] { return threads_->log().with("taken away by force") != ""; }));
  EXPECT_FALSE(sh("dd if=" + path_ + " of=/dev/null bs=4k count=1 iflag=direct status=none").ok());
  sh("umount " + mount_point_);
  EXPECT_TRUE(becomes_gone());
}

TEST_P(KernelDeviceTest, LosesNothingByForceWhenTheDeviceAnswers) {
  make_device();
  KernelDeviceOptions options;
  options.force_flush_timeout_ns = 600 * base::kSecond;
  attach_device(options);
  make_file_system();
  const std::string file = mount_point_ + "/f";
  const std::string sum = "sha256sum <" + file;
  sh_ok("dd if=/dev/urandom of=" + file + " bs=1M count=12 status=none");
  const std::string written = sh_ok(sum).output;
  auto detached = detach(DetachMode::kForce);
  ASSERT_TRUE(detached.ok()) << detached.error().message();
  EXPECT_EQ(detached->lost, "");
  sh("umount " + mount_point_);
  EXPECT_TRUE(becomes_gone());
  attach_device(options);
  sh_ok("mount " + path_ + " " + mount_point_);
  EXPECT_EQ(sh_ok(sum).output, written);
  sh_ok("umount " + mount_point_);
  // What a program wrote that has the device itself open.
  sh_ok("dd if=/dev/zero bs=1M count=2 status=none | tr '\\0' z | dd of=" + path_ +
        " bs=64k conv=notrunc status=none");
  FILE* const holder = open_elsewhere();
  detached = detach(DetachMode::kForce);
  ASSERT_TRUE(detached.ok()) << detached.error().message();
  EXPECT_EQ(detached->lost, "");
  ::pclose(holder);
  EXPECT_TRUE(becomes_gone());
  attach_device(options);
  EXPECT_EQ(sh_ok("head -c 2097152 " + path_ + " | tr -d z | wc -c").output, "0");
}

TEST_P(KernelDeviceTest, SaysWhatForceLostWhenTheDeviceHangs) {
  make_device();
  KernelDeviceOptions options;
  options.force_flush_timeout_ns = base::kSecond;
  attach_device(options);
  make_file_system();
  sh_ok("dd if=/dev/urandom of=" + mount_point_ + "/f bs=1M count=4 status=none");
  auto detached = detach_while_it_hangs();
  ASSERT_TRUE(detached.ok()) << detached.error().message();
  EXPECT_NE(detached->lost.find("answered nothing for 1 s"), std::string::npos) << detached->lost;
  sh("umount " + mount_point_);
  EXPECT_TRUE(becomes_gone());
}

TEST_P(KernelDeviceTest, SaysWhatForceLostWhenTheDeviceFails) {
  make_device();
  attach_device();
  make_file_system();
  sh_ok("dd if=/dev/urandom of=" + mount_point_ + "/f bs=1M count=4 status=none");
  threads_->on_reactor([&] { device_->fail_with(Errc::kIo); });
  auto detached = detach(DetachMode::kForce);
  ASSERT_TRUE(detached.ok()) << detached.error().message();
  EXPECT_NE(detached->lost, "");
  sh("umount " + mount_point_);
  EXPECT_TRUE(becomes_gone());
}

TEST_P(KernelDeviceTest, GoesByForceWhileTheDeviceHoldsDirtyPages) {
  make_device();
  KernelDeviceOptions options;
  options.force_flush_timeout_ns = base::kSecond;
  attach_device(options);
  sh_ok("dd if=/dev/zero of=" + path_ + " bs=64k count=4 conv=notrunc status=none");
  auto detached = detach_while_it_hangs();
  ASSERT_TRUE(detached.ok()) << detached.error().message();
  EXPECT_TRUE(becomes_gone());
}

TEST_P(KernelDeviceTest, GoesWithoutIoOnlyWhenNothingIsDirty) {
  make_device();
  attach_device();
  sh_ok("dd if=" + path_ + " of=/dev/null bs=64k count=4 status=none");
  threads_->on_reactor([&] { device_->hold(); });
  sh_ok("dd if=/dev/zero of=" + path_ + " bs=64k count=4 conv=notrunc status=none");
  auto refused = detach(DetachMode::kIfClean);
  threads_->on_reactor([&] { device_->release(); });
  ASSERT_FALSE(refused.ok());
  if (refused.code() == Errc::kNotSupported) GTEST_SKIP() << refused.error().message();
  EXPECT_EQ(refused.code(), Errc::kIo);
  EXPECT_NE(refused.error().message().find("not written back"), std::string::npos)
      << refused.error().message();
  sh_ok("blockdev --flushbufs " + path_);

  threads_->on_reactor([&] { device_->hold(); });
  const uint64_t before = device_->count();
  auto detached = detach(DetachMode::kIfClean);
  EXPECT_EQ(device_->count(), before) << "it was asked something";
  threads_->on_reactor([&] { device_->release(); });
  ASSERT_TRUE(detached.ok()) << detached.error().message();
  EXPECT_TRUE(becomes_gone());
}

TEST_P(KernelDeviceTest, KnowsTheUsersOfItsPartitions) {
  make_device();
  attach_device();
  const std::string partition = path_ + "p1";
  sh_ok("addpart " + path_ + " 1 2048 65536");
  sh_ok("mkfs.ext4 -q -F " + partition);
  std::filesystem::create_directories(mount_point_);
  sh_ok("mount " + partition + " " + mount_point_);
  auto status = detach();
  ASSERT_EQ(status.code(), Errc::kBusy);
  const std::string user = partition.substr(5) + " mounted at " + mount_point_;
  EXPECT_NE(status.error().message().find(user), std::string::npos) << status.error().message();

  sh_ok("dd if=/dev/urandom of=" + mount_point_ + "/f bs=1M count=4 status=none");
  const uint64_t before = device_->count(BlockOp::kWrite);
  const auto written = write_back(path_.substr(5));
  EXPECT_TRUE(written.ok()) << written.error().message();
  EXPECT_GE(device_->count(BlockOp::kWrite), before + 4) << "the partition's files are still dirty";
  sh_ok("umount " + mount_point_);
  sh_ok("delpart " + path_ + " 1");
  status = detach();
  EXPECT_TRUE(status.ok()) << status.error().message();
}

TEST_P(KernelDeviceTest, KeepsItsProcessFromServingWhatLiesOnIt) {
  make_device();
  attach_device();
  const auto open = [&](const std::string& root, const std::string& name) {
    return threads_->host().open_beneath(root, name, {});
  };
  const std::string refusal = "lies on " + path_;
  const auto expect_refused = [&](const std::string& root, const std::string& name) {
    const auto file = open(root, name);
    ASSERT_EQ(file.code(), Errc::kInvalid);
    EXPECT_NE(file.error().message().find(refusal), std::string::npos) << file.error().message();
  };
  make_file_system();
  const std::filesystem::path mount_point = mount_point_;
  sh_ok("truncate -s 1M " + mount_point_ + "/image");
  expect_refused(mount_point, "image");
  expect_refused(mount_point.parent_path(), mount_point.filename().string() + "/image");
  sh_ok("umount " + mount_point_);
  base::OpenOptions options;
  options.allow_block_device = true;
  EXPECT_EQ(threads_->host().open_beneath("/dev", path_.substr(5), options).code(), Errc::kInvalid);
  // Its number is another's later on.
  ASSERT_TRUE(detach().ok());
  sh_ok("truncate -s 1M " + mount_point_ + "/image");
  EXPECT_TRUE(open(mount_point, "image").ok());
  std::filesystem::remove(mount_point / "image");
}

TEST_P(KernelDeviceTest, CanBeDestroyedWithoutDetach) {
  make_device();
  attach_device();
  sh_ok("dd if=/dev/zero of=" + path_ + " bs=64k count=4 conv=notrunc status=none");
  threads_->on_reactor([&] { kernel_.reset(); });
  EXPECT_TRUE(becomes_gone());
}

TEST_P(KernelDeviceTest, RefusesOptionsThatMakeNoSense) {
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

/// What the processes that are killed run.
TEST(KernelDeviceProcess, DISABLED_ServeFuse) {
  test::serve_until_killed(KernelDeviceKind::kFuse);
}
TEST(KernelDeviceProcess, DISABLED_ServeNbd) {
  test::serve_until_killed(KernelDeviceKind::kNbd);
}

class KernelDeviceKilled : public testing::TestWithParam<KernelDeviceKind> {
 protected:
  void SetUp() override {
    if (const std::string what = test::missing(GetParam()); !what.empty()) GTEST_SKIP() << what;
  }
  void start_victim(bool hold) {
    const bool fuse = GetParam() == KernelDeviceKind::kFuse;
    victim_ = std::make_unique<test::Victim>(
        fuse ? "KernelDeviceProcess.DISABLED_ServeFuse" : "KernelDeviceProcess.DISABLED_ServeNbd",
        hold);
    path_ = victim_->wait_for("path=");
    ASSERT_FALSE(path_.empty());
    EXPECT_TRUE(is_attached());
  }
  bool is_attached() { return test::is_attached(path_, victim_->name()); }
  bool becomes_gone() { return test::becomes_detached(path_, victim_->name()); }

  std::unique_ptr<test::Victim> victim_;
  std::string path_;
};
INSTANTIATE_TEST_SUITE_P(FrontEnds, KernelDeviceKilled,
                         testing::Values(KernelDeviceKind::kFuse, KernelDeviceKind::kNbd),
                         kind_name);

TEST_P(KernelDeviceKilled, LeavesNothingBehind) {
  ASSERT_NO_FATAL_FAILURE(start_victim(false));
  victim_->kill_now();
  EXPECT_TRUE(becomes_gone());
}

// Several times: the exit of a process takes its steps in more than one order.
TEST_P(KernelDeviceKilled, EndsEvenWithDirtyPagesAndLeavesNothingBehind) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_NO_FATAL_FAILURE(start_victim(false));
    sh_ok("dd if=/dev/zero of=" + path_ + " bs=1M count=8 conv=notrunc status=none");
    victim_->kill_now();
    EXPECT_TRUE(becomes_gone());
  }
}

TEST_P(KernelDeviceKilled, FailsTheRequestsInFlight) {
  ASSERT_NO_FATAL_FAILURE(start_victim(true));
  FILE* const writer = ::popen(
      ("exec dd if=/dev/zero of=" + path_ + " bs=1M count=4 conv=notrunc,fsync status=none 2>&1")
          .c_str(),
      "re");
  ASSERT_FALSE(victim_->wait_for("held=").empty());
  victim_->kill_now();
  EXPECT_NE(::pclose(writer), 0);
  EXPECT_TRUE(becomes_gone());
}

TEST_P(KernelDeviceKilled, LeavesAMountedDeviceNoLongerThanItIsMounted) {
  ASSERT_NO_FATAL_FAILURE(start_victim(false));
  const std::string mount_point = testing::TempDir() + "braid-killed-" + std::to_string(::getpid());
  std::filesystem::create_directories(mount_point);
  sh_ok("mkfs.ext4 -q -F " + path_ + " && mount " + path_ + " " + mount_point);
  sh_ok("dd if=/dev/zero of=" + mount_point + "/f bs=1M count=8 status=none");
  victim_->kill_now();
  // A loop device stays until then, an nbd device goes as soon as its helper has noticed.
  if (GetParam() == KernelDeviceKind::kFuse) {
    EXPECT_TRUE(is_attached());
  }
  sh_ok("umount " + mount_point);
  EXPECT_TRUE(becomes_gone());
  std::filesystem::remove(mount_point);
}

}  // namespace
}  // namespace braid::bnbd
