// What sysfs says of a disk, in folders made for it.
#include "base/linux/disk_identity.h"

#include <filesystem>
#include <fstream>

#include "base/linux/test_support.h"

namespace braid::base {
namespace {

class DiskIdentity : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(sys / path).parent_path());
    std::ofstream(sys / path) << text << "\n";
  }
  std::string identity(const std::string& disk, const std::string& boot_id) {
    return disk_identity(sys / disk, "253:0", boot_id);
  }
  ScratchFolder sys;
};

TEST_F(DiskIdentity, IsAnotherAfterARestartWhereTheDiskHasNoName) {
  put("vda/diskseq", "9");
  EXPECT_EQ(identity("vda", "boot-1"), identity("vda", "boot-1"));
  EXPECT_NE(identity("vda", "boot-1"), identity("vda", "boot-2"));
  const std::string before = identity("vda", "boot-1");
  put("vda/diskseq", "10");
  EXPECT_NE(identity("vda", "boot-1"), before) << "another disk under the same numbers";
}

TEST_F(DiskIdentity, IsTheDisksOwnNameWhereItHasOne) {
  const struct {
    const char* place;
    const char* name;
  } cases[] = {{"dm/uuid", "LVM-abc"},  {"dm/uuid", "CRYPT-LUKS2-abc-disk"},
               {"dm/uuid", "mpath-36"}, {"md/uuid", "1-2-3-4"},
               {"wwid", "eui.01"},      {"device/wwid", "naa.5000"},
               {"serial", "S1"},        {"device/serial", "S2"}};
  int number = 0;
  for (const auto& c : cases) {
    const std::string disk = "disk" + std::to_string(++number);
    put(disk + "/diskseq", "9");
    put(disk + "/" + c.place, c.name);
    EXPECT_EQ(identity(disk, "boot-1"), identity(disk, "boot-2")) << c.place;
    EXPECT_NE(identity(disk, "boot-1").find(c.name), std::string::npos) << c.place;
  }
}

TEST_F(DiskIdentity, IsNotTheNameThatAPersonGaveAMapping) {
  put("dm-0/diskseq", "9");
  for (const char* uuid : {"", "CRYPT-PLAIN-disk", "CRYPT-TEMP-disk", "mine"}) {
    put("dm-0/dm/uuid", uuid);
    EXPECT_NE(identity("dm-0", "boot-1"), identity("dm-0", "boot-2")) << uuid;
  }
}

TEST_F(DiskIdentity, OfAPartitionIsTheDisksAndWhereItBegins) {
  put("sda/serial", "S1");
  put("sda/sda1/partition", "1");
  put("sda/sda1/start", "2048");
  put("sda/sda2/partition", "2");
  put("sda/sda2/start", "4096");
  EXPECT_EQ(identity("sda", "b"), "disk:S1:0");
  EXPECT_EQ(identity("sda/sda1", "b"), "disk:S1:2048");
  EXPECT_EQ(identity("sda/sda2", "b"), "disk:S1:4096");

  put("vda/vda1/partition", "1");
  put("vda/vda1/start", "2048");
  const std::string before = identity("vda/vda1", "b");
  put("vda/vda1/start", "4096");
  EXPECT_NE(identity("vda/vda1", "b"), before) << "made anew elsewhere, with the same number";
}

}  // namespace
}  // namespace braid::base
