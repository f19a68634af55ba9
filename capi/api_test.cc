// The C interface on each kind of device: what is written is read, one at a time and many, and what
// is wrong is refused in words.
#include <gmock/gmock.h>

#include <cerrno>
#include <cstring>
#include <numeric>

#include "capi/test_context.h"

namespace braid::capi {
namespace {

using test::Context;
using test::info_of;
using test::new_context;
using test::open;
using test::pattern;
using test::statistics_of;
using testing::HasSubstr;

constexpr size_t kMiB = 1 << 20;

enum class Kind { kMemory, kFile, kInHost, kTcp };

class CApi : public test::WithServer, public testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    context_ = new_context();
    std::string name = "memory:8M";
    if (GetParam() == Kind::kFile) name = "file:" + (folder_ / "disk.img");
    if (GetParam() == Kind::kInHost) serve();
    if (GetParam() == Kind::kTcp) {
      serve(bnbd::test::Wire::kTcp);
      ASSERT_EQ(::braid_set(context_.get(), "wire", "tcp"), 0);
    }
    if (server_) name = target("disk.img");
    disk_ = open(context_, name);
    ASSERT_NE(disk_, nullptr);
  }
  char* allocate(size_t bytes) {
    auto* const memory = static_cast<char*>(::braid_alloc(disk_, bytes));
    EXPECT_NE(memory, nullptr) << ::braid_error(context_.get());
    return memory;
  }

  Context context_;
  braid_device* disk_ = nullptr;
};

TEST_P(CApi, WhatIsWrittenIsRead) {
  char* const memory = allocate(64 << 10);
  const auto written = pattern(64 << 10, 1);
  std::memcpy(memory, written.data(), written.size());
  ASSERT_EQ(::braid_pwrite(disk_, memory, written.size(), 12 << 10, BRAID_FUA), 0)
      << ::braid_error(context_.get());
  std::memset(memory, 0, written.size());
  ASSERT_EQ(::braid_pread(disk_, memory, written.size(), 12 << 10), 0);
  EXPECT_EQ(std::memcmp(memory, written.data(), written.size()), 0);
  EXPECT_EQ(::braid_flush(disk_), 0);
  EXPECT_STREQ(::braid_error(context_.get()), "");
  EXPECT_EQ(statistics_of(disk_).copies, 0);
  EXPECT_EQ(::braid_dealloc(disk_, memory), 0);
}

TEST_P(CApi, LongerRequestsThanTheDeviceTakesAreSentInPieces) {
  const size_t length = 3 * kMiB + (8 << 10);
  ASSERT_GT(length, info_of(disk_).max_io_bytes);
  char* const memory = allocate(length);
  const auto written = pattern(length, 2);
  std::memcpy(memory, written.data(), length);
  ASSERT_EQ(::braid_pwrite(disk_, memory, length, 4096, 0), 0) << ::braid_error(context_.get());
  std::memset(memory, 0, length);
  ASSERT_EQ(::braid_pread(disk_, memory, length, 4096), 0);
  EXPECT_EQ(std::memcmp(memory, written.data(), length), 0);
  EXPECT_GT(statistics_of(disk_).writes, 1);
  EXPECT_EQ(statistics_of(disk_).write_bytes, length);
}

TEST_P(CApi, AnyMemoryDoesAndTheCopiesOfARemoteDeviceAreCounted) {
  std::vector<char> mine = pattern(100 << 10, 3);
  const std::vector<char> written = mine;
  ASSERT_EQ(::braid_pwrite(disk_, mine.data(), mine.size(), 0, 0), 0);
  std::fill(mine.begin(), mine.end(), 0);
  ASSERT_EQ(::braid_pread(disk_, mine.data(), mine.size(), 0), 0);
  EXPECT_EQ(mine, written);
  EXPECT_EQ(statistics_of(disk_).copies, server_ ? 2 : 0);
}

TEST_P(CApi, DiscardedAndClearedRangesReadAsZeroes) {
  char* const memory = allocate(kMiB);
  const std::vector<char> zeroes(128 << 10);
  for (const bool clear : {true, false}) {
    std::memset(memory, 'x', kMiB);
    ASSERT_EQ(::braid_pwrite(disk_, memory, kMiB, 0, 0), 0);
    const int done = clear ? ::braid_write_zeroes(disk_, 64 << 10, zeroes.size(), BRAID_NO_UNMAP)
                           : ::braid_discard(disk_, 64 << 10, zeroes.size(), 0);
    ASSERT_EQ(done, 0) << ::braid_error(context_.get());
    ASSERT_EQ(::braid_pread(disk_, memory, kMiB, 0), 0);
    EXPECT_EQ(std::memcmp(memory + (64 << 10), zeroes.data(), zeroes.size()), 0);
    EXPECT_EQ(memory[(64 << 10) - 1], 'x');
    EXPECT_EQ(memory[192 << 10], 'x');
  }
}

TEST_P(CApi, ABatchEndsOnceForEachRequest) {
  constexpr unsigned kCount = 100;
  char* const memory = allocate(kCount * 4096);
  std::vector<braid_io> batch(kCount);
  for (const uint32_t op : {BRAID_OP_WRITE, BRAID_OP_READ}) {
    for (unsigned i = 0; i < kCount; ++i) {
      char* const block = memory + i * 4096;
      std::memset(block, op == BRAID_OP_WRITE ? 'a' + static_cast<int>(i) % 26 : 0, 4096);
      batch[i] = {.op = op,
                  .device = disk_,
                  .buffer = block,
                  .offset = i * 4096,
                  .length = 4096,
                  .user_data = i};
    }
    ASSERT_EQ(::braid_submit(context_.get(), batch.data(), kCount), static_cast<int>(kCount));
    std::vector<int> seen(kCount);
    for (unsigned done = 0; done < kCount;) {
      braid_completion ends[16];
      const int count = ::braid_poll(context_.get(), ends, 16, -1);
      ASSERT_GT(count, 0);
      for (int i = 0; i < count; ++i) {
        EXPECT_EQ(ends[i].result, 0);
        ++seen[ends[i].user_data];
      }
      done += static_cast<unsigned>(count);
    }
    EXPECT_EQ(seen, std::vector<int>(kCount, 1));
    braid_completion none;
    EXPECT_EQ(::braid_poll(context_.get(), &none, 1, -1), 0) << "nothing is in flight";
  }
  for (unsigned i = 0; i < kCount; ++i)
    ASSERT_EQ(memory[i * 4096 + 77], 'a' + static_cast<int>(i) % 26);
}

TEST_P(CApi, WhatIsInFlightWhenADeviceIsClosedEndsAndIsTold) {
  char* const memory = allocate(4096);
  const braid_io io{
      .op = BRAID_OP_READ, .device = disk_, .buffer = memory, .length = 4096, .user_data = 7};
  ASSERT_EQ(::braid_submit(context_.get(), &io, 1), 1);
  ASSERT_EQ(::braid_close(disk_), 0);
  braid_completion end{};
  ASSERT_EQ(::braid_poll(context_.get(), &end, 1, -1), 1);
  EXPECT_EQ(end.user_data, 7);
  EXPECT_THAT(end.result, testing::AnyOf(0, -ECANCELED));
}

TEST_P(CApi, MalformedRequestsAreRefusedInWords) {
  std::vector<char> block(4096);
  const auto expect = [&](int status, int wanted, const std::string& words) {
    EXPECT_EQ(status, wanted) << words;
    EXPECT_THAT(::braid_error(context_.get()), HasSubstr(words));
  };
  expect(::braid_pread(disk_, block.data(), 100, 0), -EINVAL, "multiples of 512 bytes");
  expect(::braid_pread(disk_, block.data(), 4096, 100), -EINVAL, "read of 4096 bytes at 100");
  expect(::braid_pread(disk_, block.data(), 0, 0), -EINVAL, "more than 0");
  expect(::braid_pread(disk_, block.data(), 4096, 8 * kMiB), -ERANGE, "the device ends at 8388608");
  expect(::braid_pread(disk_, nullptr, 4096, 0), -EINVAL, "null");
  expect(::braid_pwrite(disk_, block.data(), 4096, 0, 8), -EINVAL, "flags 0x8 of a write");
  expect(::braid_discard(disk_, 0, 4096, BRAID_NO_UNMAP), -EINVAL, "flags 0x2 of a discard");
  braid_io io{.op = 9, .device = disk_};
  expect(::braid_submit(context_.get(), &io, 1), -EINVAL, "operation 9");
  io = {.op = BRAID_OP_READ, .device = disk_, .length = 4096};
  expect(::braid_submit(context_.get(), &io, 1), -EINVAL, "the buffer of a read");
  io = {.op = BRAID_OP_FLUSH, .device = nullptr};
  expect(::braid_submit(context_.get(), &io, 1), -EINVAL, "none of this context");
  io = {.op = BRAID_OP_FLUSH, .device = disk_, .reserved = {0, 1}};
  expect(::braid_submit(context_.get(), &io, 1), -EINVAL, "reserved words");
  expect(::braid_dealloc(disk_, block.data()), -EINVAL, "no memory that begins at");
  errno = 0;
  EXPECT_EQ(::braid_alloc(disk_, 0), nullptr);
  expect(-errno, -EINVAL, "memory of 0 bytes");
  EXPECT_EQ(::braid_alloc(nullptr, 4096), nullptr);
  EXPECT_EQ(errno, EINVAL);
  struct braid_info info {};
  expect(::braid_info(disk_, &info), -EINVAL, "want sizeof(struct braid_info)");
}

TEST_P(CApi, CallersWithOlderAndNewerStructuresAreServed) {
  struct {
    struct braid_info info;
    char newer[64];
  } both{};
  std::memset(both.newer, 'n', sizeof both.newer);
  both.info.struct_bytes = sizeof both;
  ASSERT_EQ(::braid_info(disk_, &both.info), 0);
  EXPECT_EQ(both.info.struct_bytes, sizeof(struct braid_info));
  EXPECT_EQ(both.info.size_bytes, 8 * kMiB);
  EXPECT_EQ((both.info.flags & BRAID_REMOTE) != 0, server_ != nullptr);
  EXPECT_EQ(both.newer[0], 'n');
  both.info = {};
  both.info.struct_bytes = offsetof(struct braid_info, flags);
  ASSERT_EQ(::braid_info(disk_, &both.info), 0);
  EXPECT_EQ(both.info.size_bytes, 8 * kMiB);
  EXPECT_EQ(both.info.logical_block_bytes, 0) << "an older caller's structure ends before it";
}

std::string kind_text(const testing::TestParamInfo<Kind>& of) {
  static constexpr const char* kNames[] = {"Memory", "File", "InHost", "Tcp"};
  return kNames[static_cast<size_t>(of.param)];
}
INSTANTIATE_TEST_SUITE_P(Devices, CApi,
                         testing::Values(Kind::kMemory, Kind::kFile, Kind::kInHost, Kind::kTcp),
                         kind_text);

class CApiWords : public testing::Test {
 protected:
  void refused(int status, int wanted, const std::string& words) const {
    EXPECT_EQ(status, wanted) << words;
    EXPECT_THAT(::braid_error(context_.get()), HasSubstr(words));
  }
  int open_as(const char* name) const {
    braid_device* device = nullptr;
    return ::braid_open(context_.get(), name, &device);
  }
  int set(const char* name, const char* value) const {
    return ::braid_set(context_.get(), name, value);
  }
  const Context context_ = new_context();
};

TEST_F(CApiWords, OfTargetsSayWhatWouldBeRight) {
  refused(open_as("disk.img"), -EINVAL, "HOST[:PORT]");
  refused(open_as("disk.img"), -EINVAL, "memory:SIZE");
  refused(open_as("memory:none"), -EINVAL, "size \"none\"");
  refused(open_as("null:0"), -EINVAL, "size \"0\"");
  refused(open_as("file:disk.img"), -EINVAL, "absolute path");
  refused(open_as("file:/no/such/disk.img"), -ENOENT, "file:/no/such/disk.img");
  refused(open_as("127.0.0.1:1/x"), -ECONNREFUSED, "127.0.0.1:1");
  refused(open_as("127.0.0.1:99999/x"), -EINVAL, "99999");
}

TEST_F(CApiWords, OfSettingsSayWhatWouldBeRight) {
  refused(set("colour", "red"), -EINVAL, "there is no setting \"colour\"");
  refused(set("access", "all"), -EINVAL, "access \"all\": want rw, ro or migration");
  refused(set("queue-depth", "0"), -EINVAL, "from 1 to 4096");
  refused(set("queue-depth", "5000"), -EINVAL, "from 1 to 4096");
  refused(set("poll", "fast"), -EINVAL, "poll \"fast\"");
  refused(set("give-up-after", "soon"), -EINVAL, "give-up-after \"soon\"");
  refused(set("wire", "string"), -EINVAL, "want auto or tcp");
  refused(set("device", "a,,b"), -EINVAL, "braid devices");
  refused(set("log", "loud"), -EINVAL, "want off, error");
  refused(set("name", std::string(300, 'n').c_str()), -EINVAL, "254");
  for (const char* const poll : {"0", "20us", "3ms", "never"}) EXPECT_EQ(set("poll", poll), 0);
  EXPECT_EQ(set("queue-depth", "2"), 0);
  ASSERT_EQ(open_as("memory:1M"), 0);
  refused(set("queue-depth", "4"), -EBUSY, "fixed");
  EXPECT_EQ(set("access", "ro"), 0);
  refused(open_as("memory:1M"), -EINVAL, "access ro");
  refused(set("key", "/no/such/key"), 0, "");
}

TEST_F(CApiWords, AFullQueueTakesWhatItCan) {
  ASSERT_EQ(set("queue-depth", "2"), 0);
  braid_device* const disk = open(context_, "memory:1M");
  const std::vector<braid_io> flushes(3, braid_io{.op = BRAID_OP_FLUSH, .device = disk});
  EXPECT_EQ(::braid_submit(context_.get(), flushes.data(), 3), 2);
  EXPECT_EQ(::braid_submit(context_.get(), flushes.data(), 3), 0);
  braid_completion ends[4];
  EXPECT_EQ(::braid_poll(context_.get(), ends, 4, 0), 2);
  EXPECT_EQ(::braid_submit(context_.get(), flushes.data(), 1), 1);
}

TEST_F(CApiWords, OfAContextWithoutDevices) {
  const braid_io io{.op = BRAID_OP_FLUSH};
  refused(::braid_submit(context_.get(), &io, 1), -EINVAL, "no device yet");
  EXPECT_STREQ(::braid_version(), "0.1.0");
  EXPECT_EQ(::braid_free(nullptr), 0);
}

TEST(CApiNull, EveryWrittenByteIsTakenAndAllReadsAreZeroes) {
  const Context context = new_context();
  braid_device* const disk = open(context, "null:1G");
  std::vector<char> block(4096, 'x');
  EXPECT_EQ(::braid_pwrite(disk, block.data(), block.size(), 0, 0), 0);
  EXPECT_EQ(::braid_pread(disk, block.data(), block.size(), 0), 0);
  EXPECT_EQ(block, std::vector<char>(4096));
}

}  // namespace
}  // namespace braid::capi
