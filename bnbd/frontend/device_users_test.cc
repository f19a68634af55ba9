#include "bnbd/frontend/device_users.h"

#include <gtest/gtest.h>

namespace braid::bnbd {
namespace {

TEST(DeviceUsers, FindsAMountByNumberOrBySource) {
  const std::string line =
      "36 35 7:3 / /mnt/my\\040disk rw,noatime shared:1 - ext4 /dev/loop3 rw,errors=continue";
  EXPECT_EQ(mount_point_in_line(line, "7:3", "/dev/other"), "/mnt/my disk");
  EXPECT_EQ(mount_point_in_line(line, "7:30", "/dev/loop3"), "/mnt/my disk");
  EXPECT_EQ(mount_point_in_line(line, "7:30", "/dev/loop30"), "");
}

TEST(DeviceUsers, IsNotConfusedByOtherLines) {
  EXPECT_EQ(mount_point_in_line("", "7:3", "/dev/loop3"), "");
  EXPECT_EQ(mount_point_in_line("36 35 7:3 /", "7:3", "/dev/loop3"), "");
  // A btrfs has numbers of its own; the source tells.
  EXPECT_EQ(mount_point_in_line("40 1 0:52 / /data rw - btrfs /dev/loop3 rw", "7:3", "/dev/loop3"),
            "/data");
}

// The kernel escapes spaces, tabs, newlines and backslashes, and nothing else.
TEST(DeviceUsers, TellsAMountPointWhole) {
  const std::string line = "36 35 7:3 / /mnt/a\rb\vc rw - ext4 /dev/loop3 rw";
  EXPECT_EQ(mount_point_in_line(line, "7:3", "/dev/loop3"), "/mnt/a\rb\vc");
}

TEST(DeviceUsers, FindsNobodyAtADeviceThatDoesNotExist) {
  EXPECT_TRUE(users_of_block_device("braid-no-such-device").empty());
}

}  // namespace
}  // namespace braid::bnbd
