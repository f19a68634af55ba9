// A real block device: a loop device over a scratch file, which the kernel takes down when its last
// descriptor is closed, however the test ends.
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cstring>

#include "base/linux/fd.h"
#include "base/linux/test_support.h"

namespace braid::base {
namespace {

/// The device beneath the scratch folder as "disk"; not valid where that is not possible.
Fd attach_loop(const ScratchFolder& folder, size_t size_bytes) {
  folder.make_file("image", size_bytes);
  const Fd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  const Fd image(::open((folder / "image").c_str(), O_RDWR | O_CLOEXEC));
  if (!control.valid()) return {};
  for (int tries = 0; tries < 50; ++tries) {
    const int number = ::ioctl(control.fd(), LOOP_CTL_GET_FREE);
    if (number < 0) return {};
    Fd device(::open(fmt::format("/dev/loop{}", number).c_str(), O_RDWR | O_CLOEXEC));
    if (!device.valid()) return {};
    loop_config config{};
    config.fd = static_cast<uint32_t>(image.fd());
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (::ioctl(device.fd(), LOOP_CONFIGURE, &config) == 0) {
      struct stat what;
      ::fstat(device.fd(), &what);
      if (::mknod((folder / "disk").c_str(), S_IFBLK | 0600, what.st_rdev) != 0) return {};
      return device;
    }
    if (errno != EBUSY) return {};  // EBUSY: another process took the same one
  }
  return {};
}

class BlockDeviceTest : public testing::Test {
 public:
  void SetUp() override {
    device = attach_loop(folder, kSize);
    if (!device.valid()) GTEST_SKIP() << "no loop device can be had here (root is needed)";
    const Reactor::Options options{.name = "r"};
    reactor = std::move(Reactor::create(*host, options)).value();
  }
  Result<std::unique_ptr<File>> open() {
    return host->open_beneath(folder.path(), "disk", {.allow_block_device = true});
  }
  Errc run(File& file, IoOpcode opcode, uint64_t offset, uint64_t length, std::byte* buffer) {
    IoOp op;
    op.file = &file;
    op.opcode = opcode;
    op.offset_bytes = offset;
    op.length_bytes = length;
    op.buffer = buffer;
    return run_io(*reactor, op);
  }

  static constexpr size_t kSize = 8 << 20;
  std::unique_ptr<Host> host = quiet_linux_host();
  ScratchFolder folder;
  Fd device;
  std::unique_ptr<Reactor> reactor;
};

TEST_F(BlockDeviceTest, SaysWhatItIs) {
  auto file = open();
  ASSERT_TRUE(file.ok()) << file.error().message();
  const File::Info& info = file.value()->info();
  EXPECT_TRUE(info.block_device);
  EXPECT_TRUE(info.direct);
  EXPECT_EQ(info.size_bytes, kSize);
  EXPECT_EQ(info.logical_block_bytes, 512u);
  EXPECT_TRUE(info.can_write_zeroes);
  EXPECT_EQ(info.identity.substr(0, 5), "disk:");
  EXPECT_NE(info.identity.find(host->boot_id()), std::string::npos)
      << "a loop device has no name of its own: " << info.identity;
}

TEST_F(BlockDeviceTest, ReadsWritesFlushesAndZeroes) {
  auto file = std::move(open()).value();
  alignas(4096) static std::byte out[16384], in[16384];
  std::memset(out, 0x42, sizeof out);
  EXPECT_EQ(run(*file, IoOpcode::kWrite, 4096, sizeof out, out), Errc::kOk);
  EXPECT_EQ(run(*file, IoOpcode::kFlush, 0, 0, nullptr), Errc::kOk);
  EXPECT_EQ(run(*file, IoOpcode::kWriteZeroes, 8192, 4096, nullptr), Errc::kOk);
  if (file->info().can_discard) {
    EXPECT_EQ(run(*file, IoOpcode::kDiscard, 12288, 4096, nullptr), Errc::kOk);
    std::memset(out + 8192, 0, 4096);
  }
  std::memset(out + 4096, 0, 4096);
  EXPECT_EQ(run(*file, IoOpcode::kRead, 4096, sizeof in, in), Errc::kOk);
  EXPECT_EQ(std::memcmp(in, out, sizeof in), 0);
  EXPECT_EQ(run(*file, IoOpcode::kWriteZeroes, 100, 512, nullptr), Errc::kInvalid);
  EXPECT_EQ(run(*file, IoOpcode::kRead, kSize, 512, in), Errc::kOutOfRange);
}

TEST_F(BlockDeviceTest, IsNotOpenedForWritingTwice) {
  auto first = open();
  ASSERT_TRUE(first.ok());
  const auto second = open();
  EXPECT_EQ(second.code(), Errc::kBusy);
  EXPECT_NE(second.error().message().find("in use"), std::string::npos);
}

}  // namespace
}  // namespace braid::base
