#include "base/linux/file_identity.h"

#include <fcntl.h>

#include "base/linux/fd.h"
#include "base/linux/test_support.h"

namespace braid::base {
namespace {

FileFacts facts_of(uint64_t inode) {
  FileFacts facts;
  facts.file_system = "0123456789abcdef";
  facts.inode = inode;
  return facts;
}

TEST(FileIdentity, IsFileSystemInodeAndBirthWhereThereIsOne) {
  FileFacts facts = facts_of(12);
  facts.birth = "1700000000.000000001";
  facts.generation = "handle-1-77";
  EXPECT_EQ(file_identity(facts, "boot"), "file:0123456789abcdef:12:1700000000.000000001");
}

TEST(FileIdentity, TellsFilesWithTheSameInodeApartWithoutABirth) {
  FileFacts facts = facts_of(12);
  facts.generation = "handle-1-77";
  const std::string before = file_identity(facts, "boot-1");
  EXPECT_EQ(file_identity(facts, "boot-2"), before) << "the same over a restart";
  facts.generation = "handle-1-78";
  EXPECT_NE(file_identity(facts, "boot-1"), before);
  EXPECT_NE(file_identity(facts_of(13), "boot-1"), file_identity(facts_of(12), "boot-1"));
}

TEST(FileIdentity, IsAnotherAfterARestartWhereNothingElseTellsFilesApart) {
  const FileFacts bare = facts_of(12);
  EXPECT_EQ(file_identity(bare, "boot-1"), file_identity(bare, "boot-1"));
  EXPECT_NE(file_identity(bare, "boot-1"), file_identity(bare, "boot-2"));
  FileFacts fuse = bare;
  fuse.generation = "handle-129-77";
  fuse.lasting = false;
  EXPECT_NE(file_identity(fuse, "boot-1"), file_identity(fuse, "boot-2"));
  EXPECT_NE(file_identity(fuse, "boot-1"), file_identity(bare, "boot-1"));
}

class FileGeneration : public testing::Test {
 protected:
  std::string generation(const std::string& name) {
    const Fd file(::open((scratch / name).c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(file.valid()) << name;
    auto known = file_generation(file.fd());
    EXPECT_TRUE(known.ok()) << known.error().message();
    return known.ok() ? *known : "";
  }
  ScratchFolder scratch;
};

TEST_F(FileGeneration, StaysWithTheFileAndNotWithTheName) {
  scratch.make_file("disk", 4096);
  const std::string before = generation("disk");
  if (before.empty()) GTEST_SKIP() << "this file system tells no generations";
  EXPECT_EQ(generation("disk"), before);
  scratch.make_file("other", 4096);
  EXPECT_NE(generation("other"), before);
  std::filesystem::rename(scratch / "disk", scratch / "renamed");
  EXPECT_EQ(generation("renamed"), before);
  for (int i = 0; i < 8; ++i) {  // perhaps one of them gets the same inode
    std::filesystem::remove(scratch / "renamed");
    scratch.make_file("renamed", 4096);
    EXPECT_NE(generation("renamed"), before);
  }
}

}  // namespace
}  // namespace braid::base
