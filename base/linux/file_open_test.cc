// open_beneath: what it opens, what it says of it, and each thing it refuses.
#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include <cstring>

#include "base/linux/fd.h"
#include "base/linux/test_support.h"

namespace braid::base {
namespace {

class OpenBeneathTest : public testing::Test {
 public:
  OpenBeneathTest() {
    std::filesystem::create_directory(root);
    scratch.make_file("outside", 4096);
    scratch.make_file("root/disk", 1 << 20);
  }
  Result<std::unique_ptr<File>> open(const std::string& name, OpenOptions options = {}) {
    return host->open_beneath(root, name, options);
  }
  /// The refusal has this code, and its sentence this part and the name.
  void expect_refused(const std::string& name, Errc code, const std::string& part,
                      OpenOptions options = {}) {
    const auto file = open(name, options);
    ASSERT_FALSE(file.ok()) << name;
    EXPECT_EQ(file.code(), code) << file.error().message();
    EXPECT_NE(file.error().message().find(part), std::string::npos) << file.error().message();
    EXPECT_NE(file.error().message().find(name.substr(0, 32).c_str()), std::string::npos)
        << file.error().message();
    EXPECT_EQ(file.error().message().find(root), std::string::npos)
        << "not for remote eyes: " << file.error().message();
  }

  std::unique_ptr<Host> host = quiet_linux_host();
  ScratchFolder scratch;
  const std::string root = scratch / "root";
};

TEST_F(OpenBeneathTest, OpensAFileAndSaysWhatItIs) {
  const auto file = open("disk");
  ASSERT_TRUE(file.ok()) << file.error().message();
  const File::Info& info = const_cast<Result<std::unique_ptr<File>>&>(file).value()->info();
  EXPECT_EQ(info.size_bytes, 1u << 20);
  EXPECT_FALSE(info.block_device);
  EXPECT_FALSE(info.read_only);
  EXPECT_GE(info.logical_block_bytes, 512u);
  EXPECT_GE(info.physical_block_bytes, info.logical_block_bytes);
  EXPECT_EQ(info.identity.substr(0, 5), "file:");
}

TEST_F(OpenBeneathTest, TheIdentityStaysWithTheFileAndNotWithTheName) {
  const auto identity = [&](const std::string& name) {
    return std::move(open(name)).value()->info().identity;
  };
  const std::string before = identity("disk");
  EXPECT_EQ(identity("disk"), before);
  std::filesystem::rename(root + "/disk", root + "/renamed");
  EXPECT_EQ(identity("renamed"), before);
  scratch.make_file("root/disk", 1 << 20);
  EXPECT_NE(identity("disk"), before);
  std::filesystem::remove(root + "/renamed");
  scratch.make_file("root/renamed", 1 << 20);  // often it gets the inode of the former
  EXPECT_NE(identity("renamed"), before);
}

TEST_F(OpenBeneathTest, FollowsLinksThatStayBeneathUnlessToldNotTo) {
  std::filesystem::create_directory(root + "/sub");
  std::filesystem::create_symlink("../disk", root + "/sub/link");
  EXPECT_TRUE(open("sub/link").ok());
  EXPECT_TRUE(open("./sub/./link").ok());
  expect_refused("sub/link", Errc::kPermission, "links are not followed",
                 {.follow_links_beneath = false});
}

TEST_F(OpenBeneathTest, RefusesBadNames) {
  EXPECT_EQ(open("").code(), Errc::kInvalid);
  EXPECT_NE(open("").error().message().find("empty"), std::string::npos);
  expect_refused(std::string(256, 'a'), Errc::kInvalid, "256 bytes; at most 255");
  expect_refused(std::string(255, 'a'), Errc::kNotFound, "there is no");
  expect_refused("/disk", Errc::kInvalid, "absolute");
  expect_refused("..", Errc::kInvalid, "\"..\"");
  expect_refused("../outside", Errc::kInvalid, "\"..\"");
  expect_refused("sub/../disk", Errc::kInvalid, "\"..\"");
  expect_refused("sub/..", Errc::kInvalid, "\"..\"");
  expect_refused(std::string("disk\0x", 6), Errc::kInvalid, "zero byte");
  scratch.make_file("root/..disk", 4096);
  EXPECT_TRUE(open("..disk").ok()) << "two dots are refused as a component only";
}

TEST_F(OpenBeneathTest, RefusesLinksThatLeadOut) {
  std::filesystem::create_symlink("../outside", root + "/relative");
  std::filesystem::create_symlink(scratch / "outside", root + "/absolute");
  std::filesystem::create_symlink("..", root + "/up");
  std::filesystem::create_symlink("circle", root + "/circle");
  std::filesystem::create_symlink("/proc/self/exe", root + "/magic");
  expect_refused("relative", Errc::kPermission, "leads out of the export root");
  expect_refused("absolute", Errc::kPermission, "leads out of the export root");
  expect_refused("up/outside", Errc::kPermission, "leads out of the export root");
  expect_refused("circle", Errc::kPermission, "circle of links");
  expect_refused("magic", Errc::kPermission, "leads out of the export root");
}

TEST_F(OpenBeneathTest, RefusesWhatIsNoFileWithoutTouchingIt) {
  std::filesystem::create_directory(root + "/folder");
  ASSERT_EQ(::mkfifo((root + "/fifo").c_str(), 0600), 0);
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = root + "/socket";
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  ASSERT_EQ(::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);

  expect_refused("folder", Errc::kInvalid, "a directory");
  expect_refused("fifo", Errc::kInvalid, "a FIFO");  // an open() that waited would hang here
  expect_refused("socket", Errc::kInvalid, "a socket");
  expect_refused("missing", Errc::kNotFound, "there is no");
  expect_refused("disk/below", Errc::kNotFound, "not a directory");
}

TEST_F(OpenBeneathTest, RefusesDevicesNotMeant) {
  if (::mknod((root + "/null").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0 ||
      ::mknod((root + "/loop").c_str(), S_IFBLK | 0600, makedev(7, 0)) != 0) {
    GTEST_SKIP() << "making device nodes needs root";
  }
  expect_refused("null", Errc::kInvalid, "a character device");
  expect_refused("null", Errc::kInvalid, "a character device", {.allow_block_device = true});
  expect_refused("loop", Errc::kPermission, "exporting devices is not allowed");
}

TEST_F(OpenBeneathTest, SaysWhenPermissionIsMissing) {
  ASSERT_EQ(::chmod((root + "/disk").c_str(), 0444), 0);
  if (::geteuid() == 0) ::setfsuid(65534);  // of this thread, for file access only
  expect_refused("disk", Errc::kPermission, "no permission to read and write");
  const bool readable = open("disk", {.read_only = true}).ok();
  ::setfsuid(::geteuid());
  EXPECT_TRUE(readable);
}

TEST_F(OpenBeneathTest, ALockLetsOneWriterOrManyReadersIn) {
  {
    auto writer = open("disk", {.lock = true});
    ASSERT_TRUE(writer.ok());
    expect_refused("disk", Errc::kBusy, "locked by another process", {.lock = true});
    expect_refused("disk", Errc::kBusy, "locked by another process",
                   {.read_only = true, .lock = true});
    EXPECT_TRUE(open("disk").ok()) << "who does not ask for the lock is not held up";
  }
  auto reader = open("disk", {.read_only = true, .lock = true});
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(open("disk", {.read_only = true, .lock = true}).ok());
  expect_refused("disk", Errc::kBusy, "locked by another process", {.lock = true});
}

TEST_F(OpenBeneathTest, ANoteStaysWithTheFileThatItWasGiven) {
  const auto file = std::move(open("disk")).value();
  const Result<uint64_t> none = file->note();
  if (none.code() == Errc::kNotSupported) GTEST_SKIP() << none.error().message();
  EXPECT_EQ(none.value(), 0u);
  ASSERT_TRUE(file->set_note(0x0807060504030201).ok());
  EXPECT_EQ(file->note().value(), 0x0807060504030201u);
  std::filesystem::rename(root + "/disk", root + "/moved");
  EXPECT_EQ(std::move(open("moved")).value()->note().value(), 0x0807060504030201u);
}

TEST_F(OpenBeneathTest, AMarkIsKeptBesideTheNote) {
  const auto file = std::move(open("disk")).value();
  const Result<File::Mark> none = file->mark();
  if (none.code() == Errc::kNotSupported) GTEST_SKIP() << none.error().message();
  EXPECT_EQ(none.value(), File::Mark());
  ASSERT_TRUE(file->set_note(7).ok());
  ASSERT_TRUE(file->set_mark({0x0807060504030201, 9}).ok());
  EXPECT_EQ(std::move(open("disk")).value()->mark().value(), (File::Mark{0x0807060504030201, 9}));
  EXPECT_EQ(file->note().value(), 7u);
}

TEST_F(OpenBeneathTest, SaysThatTheRootIsMissingAndNotWhereItWas) {
  const auto file = host->open_beneath(scratch / "no-root", "disk", {});
  EXPECT_EQ(file.code(), Errc::kNotFound);
  EXPECT_NE(file.error().message().find("export root"), std::string::npos);
  EXPECT_EQ(file.error().message().find("no-root"), std::string::npos);
}

}  // namespace
}  // namespace braid::base
