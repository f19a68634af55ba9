// What the kernel writes of mounts and swaps is read as it was meant.
#include "base/mount_line.h"

#include <gtest/gtest.h>

namespace braid::base {
namespace {

TEST(MountLine, a_mount_has_its_device_its_place_and_its_source) {
  const auto mount = parse_mount_line(
      "36 35 7:3 / /mnt/my\\040disk rw,noatime master:1 shared:2 - ext4 /dev/loop3 "
      "rw,errors=remount");
  ASSERT_TRUE(mount.has_value());
  EXPECT_EQ(mount->id, 36u);
  EXPECT_EQ(mount->device, "7:3");
  EXPECT_EQ(mount->point, "/mnt/my disk");
  EXPECT_EQ(mount->source, "/dev/loop3");
}

// A device of device mapper has a backslash in its name when people give it a space.
TEST(MountLine, a_source_is_unescaped_too) {
  const auto mount = parse_mount_line("40 1 0:52 / /data rw - btrfs /dev/mapper/a\\134x20b rw");
  ASSERT_TRUE(mount.has_value());
  EXPECT_EQ(mount->source, "/dev/mapper/a\\x20b");
}

TEST(MountLine, only_a_space_ends_a_word) {
  const auto mount = parse_mount_line("40 1 0:52 / /mnt/a\rb\vc rw - tmpfs  rw");
  ASSERT_TRUE(mount.has_value());
  EXPECT_EQ(mount->point, "/mnt/a\rb\vc");
  EXPECT_EQ(mount->source, "");
}

TEST(MountLine, what_is_no_line_of_mountinfo_is_nothing) {
  for (const char* line : {"", " ", "x 35 7:3 / /mnt rw - ext4 /dev/loop3 rw", "36 35 7:3 /",
                           "-1 35 7:3 / /mnt rw", "99999999999999999999 35 7:3 / /mnt rw"}) {
    EXPECT_FALSE(parse_mount_line(line).has_value()) << line;
  }
  const auto unended = parse_mount_line("36 35 7:3 / /mnt rw");
  ASSERT_TRUE(unended.has_value());
  EXPECT_EQ(unended->source, "");
}

TEST(MountLine, a_line_of_swaps_names_its_device) {
  EXPECT_EQ(swap_in_line("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"), "");
  EXPECT_EQ(swap_in_line("/dev/loop3                              partition\t4\t\t0\t\t-2"),
            "/dev/loop3");
  EXPECT_EQ(swap_in_line("/my\\040swap file\t4\t\t0\t\t-2"), "/my swap");
  EXPECT_EQ(swap_in_line(""), "");
}

}  // namespace
}  // namespace braid::base
