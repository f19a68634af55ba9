// Loop devices on a plain file: who holds them open, and whose they are. Needs root and loop
// devices; skipped elsewhere.
#include "bnbd/frontend/loop_device.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "bnbd/frontend/fd_handle.h"

namespace braid::bnbd {
namespace {

using base::Errc;

class LoopDeviceTest : public testing::Test {
 protected:
  /// A file with a loop device on it.
  struct Disk {
    LoopOptions options;
    HeldDevice held;
    LoopDevice loop;

    std::string path() const { return "/dev/loop" + std::to_string(loop.index); }
    UniqueFd open(int flags) const { return UniqueFd(::open(path().c_str(), flags | O_CLOEXEC)); }
    /// False too when the number is another's by now.
    bool exists() const {
      std::ifstream file("/sys/block/loop" + std::to_string(loop.index) + "/loop/backing_file");
      std::string backing;
      std::getline(file, backing);
      return backing.ends_with("/" + options.file_name);
    }
    base::Status detach(LoopRemoval removal) const {
      return detach_loop(loop.index, options.label, held, removal);
    }
  };

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    if (::access("/dev/loop-control", F_OK) != 0) GTEST_SKIP() << "this kernel has no loop devices";
    folder_ = testing::TempDir() + "braid-loop-" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
    folder_fd_.reset(::open(folder_.c_str(), O_PATH | O_CLOEXEC));
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  Disk make_disk(const std::string& name) {
    Disk disk;
    disk.options.file_name = name + "." + std::to_string(::getpid());
    disk.options.label = "braid-test:" + disk.options.file_name;
    const UniqueFd file(::openat(folder_fd_.get(), disk.options.file_name.c_str(),
                                 O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(::ftruncate(file.get(), 1 << 20), 0);
    disk.held = std::move(HeldDevice::create()).value();
    auto loop = attach_loop(folder_fd_.get(), disk.options, disk.held);
    EXPECT_TRUE(loop.ok()) << loop.error().message();
    if (loop.ok()) disk.loop = *loop;
    return disk;
  }

  std::string folder_;
  UniqueFd folder_fd_;
};

TEST_F(LoopDeviceTest, GoesWhenItIsDetached) {
  const Disk disk = make_disk("disk");
  EXPECT_TRUE(disk.exists());
  const auto status = disk.detach(LoopRemoval::kPolite);
  EXPECT_TRUE(status.ok()) << status.error().message();
  EXPECT_FALSE(disk.exists());
}

TEST_F(LoopDeviceTest, StaysForGoodWhenSomebodyHasItOpen) {
  const Disk disk = make_disk("disk");
  UniqueFd user = disk.open(O_RDONLY);
  EXPECT_EQ(disk.detach(LoopRemoval::kPolite).code(), Errc::kBusy);
  user.reset();
  EXPECT_TRUE(disk.exists()) << "it went with its user, though the detach was refused";
  const auto status = disk.detach(LoopRemoval::kPolite);
  EXPECT_TRUE(status.ok()) << status.error().message();
  EXPECT_FALSE(disk.exists());
}

TEST_F(LoopDeviceTest, StaysForGoodWhenSomebodyHasClaimedIt) {
  const Disk disk = make_disk("disk");
  UniqueFd user = disk.open(O_RDONLY | O_EXCL);
  EXPECT_EQ(disk.detach(LoopRemoval::kPolite).code(), Errc::kBusy);
  user.reset();
  EXPECT_TRUE(disk.exists());
  EXPECT_TRUE(disk.detach(LoopRemoval::kPolite).ok());
}

TEST_F(LoopDeviceTest, GoesWithItsLastUserWhenItIsTakenAwayByForce) {
  const Disk disk = make_disk("disk");
  UniqueFd user = disk.open(O_RDONLY);
  EXPECT_EQ(disk.detach(LoopRemoval::kForced).code(), Errc::kBusy);
  EXPECT_TRUE(disk.exists());
  user.reset();
  EXPECT_FALSE(disk.exists());
  const auto again = disk.detach(LoopRemoval::kForced);
  EXPECT_TRUE(again.ok()) << again.error().message();
}

TEST_F(LoopDeviceTest, LeavesADeviceAloneThatHasTakenItsNumber) {
  Disk gone = make_disk("gone");
  gone.held.drop();
  const Disk other = make_disk("other");
  gone.held = std::move(HeldDevice::create()).value();
  gone.loop.index = other.loop.index;
  const UniqueFd user = other.open(O_RDONLY | O_EXCL);
  for (const LoopRemoval removal : {LoopRemoval::kPolite, LoopRemoval::kForced}) {
    const auto status = gone.detach(removal);
    EXPECT_TRUE(status.ok()) << status.error().message();
    EXPECT_TRUE(other.exists());
  }
}

}  // namespace
}  // namespace braid::bnbd
