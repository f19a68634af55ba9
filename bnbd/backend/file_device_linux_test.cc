// The file device on real files: io_uring and, where the file system can, O_DIRECT.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/linux_host.h"
#include "base/linux_test_folder.h"
#include "bnbd/backends.h"
#include "bnbd/test_block.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::Io;

constexpr uint64_t kSize = 8 << 20;

class RealFile : public testing::Test {
 protected:
  RealFile() {
    folder_.make_file("disk.img", kSize);
    base::LinuxHostOptions quiet;
    quiet.log_sink = base::make_null_sink();
    host_ = std::move(base::create_linux_host(quiet)).value();
    reactor_ = std::move(base::Reactor::create(*host_, {})).value();
  }
  ~RealFile() override { device_.reset(); }
  base::Result<std::unique_ptr<BlockDevice>> open(FileDeviceOptions options = {}) {
    options.root = root_;
    options.name = "disk.img";
    return reactor_->run_until_done(open_file_device(*reactor_, options));
  }
  Errc run(Io& io) {
    device_->submit(io.request);
    return reactor_->run_until_done(wait(*reactor_, io));
  }
  Errc run(Io&& io) { return run(io); }
  static base::Task<Errc> wait(base::Reactor& reactor, Io& io) {
    while (!io.status.has_value()) co_await reactor.sleep_ns(0);
    co_return *io.status;
  }
  bool reads_as(uint64_t offset, uint64_t length, int value) {
    Io read(BlockOp::kRead, offset, length, 0x55);
    return run(read) == Errc::kOk && read.all(value);
  }
  /// Space that the file takes on its disk.
  uint64_t allocated_bytes() const {
    struct stat what {};
    ::stat((root_ + "/disk.img").c_str(), &what);
    return static_cast<uint64_t>(what.st_blocks) * 512;
  }

  const base::ScratchFolder folder_{base::folder_on_disk()};
  const std::string& root_ = folder_.path();
  std::unique_ptr<base::Host> host_;
  std::unique_ptr<base::Reactor> reactor_;
  std::unique_ptr<BlockDevice> device_;
};

TEST_F(RealFile, keeps_what_is_written_with_and_without_direct_io) {
  int value = 1;
  for (bool direct : {true, false}) {
    device_ = std::move(open({.direct = direct})).value();
    for (uint64_t length : {uint64_t{4096}, uint64_t{65536}, uint64_t{1} << 20}) {
      ASSERT_EQ(run(Io(BlockOp::kWrite, 8192, length, value)), Errc::kOk);
      EXPECT_TRUE(reads_as(8192, length, value));
      ++value;
    }
    Io fua(BlockOp::kWrite, 0, 4096, value);
    EXPECT_EQ(run(fua.fua()), Errc::kOk);
    EXPECT_EQ(run(Io(BlockOp::kFlush)), Errc::kOk);
    EXPECT_TRUE(reads_as(0, 4096, value));
    device_.reset();
  }
}

TEST_F(RealFile, misaligned_memory_works_in_any_case) {
  device_ = std::move(open()).value();
  Io write(BlockOp::kWrite, 4096, 8192, 9);
  EXPECT_EQ(run(write.misaligned()), Errc::kOk);
  Io read(BlockOp::kRead, 4096, 8192);
  EXPECT_EQ(run(read.misaligned()), Errc::kOk);
  EXPECT_TRUE(read.all(9));
}

TEST_F(RealFile, discard_gives_space_back_and_reads_as_zeroes) {
  device_ = std::move(open()).value();
  if (device_->info().max_discard_bytes == 0) GTEST_SKIP() << "this file system punches no holes";
  for (uint64_t at = 0; at < kSize; at += 1 << 20) {
    ASSERT_EQ(run(Io(BlockOp::kWrite, at, 1 << 20, 3)), Errc::kOk);
  }
  ASSERT_EQ(run(Io(BlockOp::kFlush)), Errc::kOk);
  const uint64_t before = allocated_bytes();
  Io discard(BlockOp::kDiscard);
  discard.request.offset_bytes = 1 << 20;
  discard.request.length_bytes = 4 << 20;
  EXPECT_EQ(run(discard.fua()), Errc::kOk);
  EXPECT_LE(allocated_bytes() + (4 << 20), before);
  EXPECT_TRUE(reads_as(0, 1 << 20, 3));
  EXPECT_TRUE(reads_as(1 << 20, 1 << 20, 0));
  EXPECT_TRUE(reads_as(5 << 20, 1 << 20, 3));
}

TEST_F(RealFile, write_zeroes_makes_zeroes_with_and_without_unmap) {
  device_ = std::move(open()).value();
  for (bool no_unmap : {false, true}) {
    ASSERT_EQ(run(Io(BlockOp::kWrite, 0, 1 << 20, 3)), Errc::kOk);
    Io zeroes(BlockOp::kWriteZeroes);
    zeroes.request.offset_bytes = 4096;
    zeroes.request.length_bytes = 65536;
    zeroes.request.no_unmap = no_unmap;
    EXPECT_EQ(run(zeroes), Errc::kOk);
    EXPECT_TRUE(reads_as(0, 4096, 3));
    EXPECT_TRUE(reads_as(4096, 65536, 0));
    EXPECT_TRUE(reads_as(69632, 4096, 3));
  }
}

TEST_F(RealFile, the_identity_stays_over_reopening_and_goes_with_the_file) {
  device_ = std::move(open()).value();
  const std::string identity = device_->info().identity;
  const uint64_t incarnation = device_->info().incarnation;
  device_.reset();
  device_ = std::move(open()).value();
  EXPECT_EQ(device_->info().identity, identity);
  EXPECT_EQ(device_->info().incarnation, incarnation);
  device_.reset();
  std::filesystem::rename(root_ + "/disk.img", root_ + "/old.img");
  std::ofstream(root_ + "/disk.img").close();
  std::filesystem::resize_file(root_ + "/disk.img", kSize);
  device_ = std::move(open()).value();
  EXPECT_NE(device_->info().identity, identity);
}

TEST_F(RealFile, a_file_that_is_empty_or_not_whole_blocks_is_refused_with_the_size_that_is_right) {
  for (const auto& [size, words] : {std::pair<uint64_t, std::string>{0, "is empty"},
                                    {100, "no multiple"},
                                    {kSize + 100, std::to_string(kSize + 100)}}) {
    std::filesystem::resize_file(root_ + "/disk.img", size);
    auto opened = open();
    ASSERT_EQ(opened.code(), Errc::kInvalid) << size;
    EXPECT_NE(opened.error().message().find(words), std::string::npos) << opened.error().message();
  }
}

TEST_F(RealFile, a_file_that_may_only_be_read_is_a_device_for_reading) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everything";
  std::filesystem::permissions(root_ + "/disk.img", std::filesystem::perms::owner_read);
  device_ = std::move(open()).value();
  EXPECT_TRUE(device_->info().read_only);
}

TEST_F(RealFile, grows_and_shrinks_and_notices_what_others_do) {
  auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  device_ = std::move(*opened);
  ASSERT_TRUE(reactor_->run_until_done(device_->resize(2 * kSize)).ok());
  EXPECT_EQ(std::filesystem::file_size(root_ + "/disk.img"), 2 * kSize);
  EXPECT_EQ(run(Io(BlockOp::kWrite, 2 * kSize - 4096, 4096, 3)), Errc::kOk);
  EXPECT_TRUE(reads_as(2 * kSize - 4096, 4096, 3));
  ASSERT_TRUE(reactor_->run_until_done(device_->resize(kSize)).ok());
  EXPECT_EQ(std::filesystem::file_size(root_ + "/disk.img"), kSize);
  EXPECT_EQ(run(Io(BlockOp::kWrite, kSize, 4096, 3)), Errc::kOutOfRange);
  std::filesystem::resize_file(root_ + "/disk.img", kSize + 4096 + 1);
  EXPECT_TRUE(*reactor_->run_until_done(device_->refresh_size()));
  EXPECT_EQ(device_->info().size_bytes, kSize + 4096) << "whole blocks";
  EXPECT_TRUE(reads_as(kSize, 4096, 0));
}

TEST_F(RealFile, a_priority_that_a_client_may_have_is_taken_by_the_kernel) {
  auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  device_ = std::move(*opened);
  for (const uint16_t kind : {2, 3}) {  // best effort, idle
    for (const BlockOp op : {BlockOp::kWrite, BlockOp::kRead}) {
      Io io(op, 0, 4096, 1);
      io.request.priority = static_cast<uint16_t>(kind << base::kIoPriorityClassShift);
      EXPECT_EQ(run(io), Errc::kOk) << kind;
    }
  }
  EXPECT_EQ(run(Io(BlockOp::kSecureErase, 0, 4096)), Errc::kNotSupported);
}

}  // namespace
}  // namespace braid::bnbd
