// Memory of a device that requests use: it stays until they have ended, also those of other
// devices.
#include <gmock/gmock.h>

#include <cerrno>
#include <cstring>

#include "capi/test_context.h"

namespace braid::capi {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kBlock = 4096;

class CApiMemory : public test::WithServer {
 protected:
  void SetUp() override { serve(); }
  char* allocate(braid_device* owner, size_t bytes) {
    auto* const memory = static_cast<char*>(::braid_alloc(owner, bytes));
    EXPECT_NE(memory, nullptr) << ::braid_error(context_.get());
    return memory;
  }
  void submit_read(braid_device* device, char* into) {
    const braid_io read{.op = BRAID_OP_READ, .device = device, .buffer = into, .length = kBlock};
    ASSERT_EQ(::braid_submit(context_.get(), &read, 1), 1) << ::braid_error(context_.get());
  }
  template <typename Words>
  void expect_busy(int status, Words words) {
    EXPECT_EQ(status, -EBUSY);
    EXPECT_THAT(::braid_error(context_.get()), words);
  }
  int ended() {
    braid_completion end{};
    EXPECT_EQ(::braid_poll(context_.get(), &end, 1, -1), 1);
    return end.result;
  }
  test::Context context_ = test::new_context();
};

TEST_F(CApiMemory, OfADeviceStaysWhileARequestOfAnotherUsesIt) {
  braid_device* const owner = test::open(context_, target("ram"));
  braid_device* const user = test::open(context_, target("disk.img"));
  char* const memory = allocate(owner, 2 * kBlock);
  char* const beside = allocate(owner, kBlock);
  std::memset(memory, 'w', kBlock);
  ASSERT_EQ(::braid_pwrite(user, memory, kBlock, 0, BRAID_FUA), 0);
  server_.reset();
  submit_read(user, memory + kBlock);
  expect_busy(::braid_close(owner),
              AllOf(HasSubstr(target("ram") + ": its memory is in use by 1 request under way"),
                    HasSubstr("for " + target("disk.img")), HasSubstr("braid_poll()")));
  expect_busy(::braid_dealloc(owner, memory), HasSubstr("its memory at 0x"));
  submit_read(user, memory);
  expect_busy(::braid_close(owner),
              HasSubstr("2 requests under way, one of them for " + target("disk.img")));
  EXPECT_EQ(::braid_dealloc(owner, beside), 0) << "nothing uses that";
  serve();
  EXPECT_EQ(ended(), 0);
  EXPECT_EQ(ended(), 0);
  EXPECT_EQ(std::memcmp(memory, memory + kBlock, kBlock), 0) << "it was read";
  EXPECT_EQ(memory[kBlock], 'w');
  EXPECT_EQ(::braid_dealloc(owner, memory), 0) << ::braid_error(context_.get());
  EXPECT_EQ(::braid_close(owner), 0) << ::braid_error(context_.get());
  EXPECT_EQ(::braid_pread(user, std::vector<char>(kBlock).data(), kBlock, 0), 0);
}

TEST_F(CApiMemory, OfADeviceMayGoOnceTheOtherIsGivenUpOrClosed) {
  braid_device* const owner = test::open(context_, "memory:1M");
  char* const memory = allocate(owner, kBlock);
  for (const bool close : {false, true}) {
    braid_device* const user = test::open(context_, target("disk.img"));
    server_.reset();
    submit_read(user, memory);
    expect_busy(::braid_dealloc(owner, memory), HasSubstr(target("disk.img")));
    if (close) {
      EXPECT_EQ(::braid_close(user), 0) << "it has no memory of its own";
      EXPECT_EQ(ended(), -ECANCELED);
      break;
    }
    // It may not know yet that the server is away.
    braid_completion end{};
    EXPECT_TRUE(test::until([&] {
      EXPECT_EQ(::braid_give_up(user), 0);
      return ::braid_poll(context_.get(), &end, 1, 1'000'000) == 1;
    }));
    EXPECT_EQ(end.result, -ETIMEDOUT);
    EXPECT_EQ(::braid_close(user), 0);
    serve();
  }
  EXPECT_EQ(::braid_close(owner), 0) << ::braid_error(context_.get());
}

TEST_F(CApiMemory, IsNotGivenBackUnderARequestOfItsOwnDevice) {
  braid_device* const disk = test::open(context_, target("disk.img"));
  char* const memory = allocate(disk, kBlock);
  server_.reset();
  submit_read(disk, memory);
  expect_busy(::braid_dealloc(disk, memory), HasSubstr("for " + target("disk.img")));
  EXPECT_EQ(::braid_close(disk), 0) << "its own requests end first";
  EXPECT_EQ(ended(), -ECANCELED);
}

/// What is copied when its answer comes, while the context is freed, goes into memory that is
/// there: the address sanitizer sees if it does not.
TEST_F(CApiMemory, OfALaterDeviceStaysUntilAllHaveEndedWhenTheContextIsFreed) {
  constexpr size_t kReads = 64;
  braid_device* const user = test::open(context_, target("disk.img"));
  braid_device* const owner = test::open(context_, "memory:1M");
  char* const memory = allocate(owner, kReads * kBlock);
  for (size_t i = 0; i < kReads; ++i) submit_read(user, memory + i * kBlock);
  context_.reset();
}

}  // namespace
}  // namespace braid::capi
