// Of what its completions say a program has heard when it has fetched them: what it asks for before
// does not speak for them, nor know of flushes that failed (bnbd::BlockDevice::note_told()).
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "capi/context.h"
#include "capi/test_context.h"

namespace braid::capi {
namespace {

/// In front of the device that a program has opened: counts the requests of whose end it has heard.
class CountingDevice final : public bnbd::BlockDevice {
 public:
  explicit CountingDevice(bnbd::BlockDevice& below) : below_(below), info_(below.info()) {}

  const bnbd::BlockInfo& info() const override { return info_; }
  void submit(bnbd::BlockRequest& request) override {
    ++request.untold.words[0];
    if (!request.told_later) note_told(request.untold, true);
    below_.submit(request);
  }
  void note_told(bnbd::Untold& untold, bool) override { told += std::exchange(untold.words[0], 0); }
  base::Result<std::unique_ptr<bnbd::Region>> create_region(size_t size_bytes) override {
    return below_.create_region(size_bytes);
  }
  bnbd::BlockStatistics statistics() const override { return below_.statistics(); }

  bnbd::BlockInfo& change_info() { return info_; }
  uint64_t told = 0;

 private:
  bnbd::BlockDevice& below_;
  bnbd::BlockInfo info_;
};

class CApiTold : public testing::Test {
 protected:
  CApiTold() {
    device_->block = &counting_;
    counting_.change_info().max_io_bytes = 64 << 10;
  }
  void submit_write(uint64_t length) {
    const braid_io write = {
        .op = BRAID_OP_WRITE, .device = device_, .buffer = data_.data(), .length = length};
    ASSERT_EQ(::braid_submit(context_.get(), &write, 1), 1);
  }

  const test::Context context_ = test::new_context();
  braid_device* const device_ = test::open(context_, "memory:8M");
  CountingDevice counting_{*device_->block};
  std::vector<char> data_ = std::vector<char>(1 << 20);
};

TEST_F(CApiTold, ACompletionIsHeardOfWhenItIsFetched) {
  submit_write(4096);
  submit_write(256 << 10);  // four parts
  EXPECT_EQ(counting_.told, 0U);
  braid_completion completion;
  ASSERT_EQ(::braid_poll(context_.get(), &completion, 1, -1), 1);
  EXPECT_EQ(counting_.told, 1U);
  ASSERT_EQ(::braid_poll(context_.get(), &completion, 1, -1), 1);
  EXPECT_EQ(counting_.told, 5U);
  ASSERT_EQ(::braid_close(device_), 0);
}

TEST_F(CApiTold, SoIsAFlush) {
  const braid_io flush = {.op = BRAID_OP_FLUSH, .device = device_};
  ASSERT_EQ(::braid_submit(context_.get(), &flush, 1), 1);
  ASSERT_EQ(::braid_pread(device_, data_.data(), 4096, 0), 0);
  EXPECT_EQ(counting_.told, 1U) << "the read";
  braid_completion completion;
  ASSERT_EQ(::braid_poll(context_.get(), &completion, 1, -1), 1);
  EXPECT_EQ(counting_.told, 2U);
  ASSERT_EQ(::braid_close(device_), 0);
}

TEST_F(CApiTold, ACallIsHeardOfWhenItReturns) {
  submit_write(4096);
  ASSERT_EQ(::braid_pwrite(device_, data_.data(), 256 << 10, 0, 0), 0);
  EXPECT_EQ(counting_.told, 4U) << "its own parts, and nothing of the other's";
  ASSERT_EQ(::braid_close(device_), 0);
}

TEST_F(CApiTold, ADeviceThatIsClosedIsNotAskedAgain) {
  submit_write(4096);
  submit_write(4096);
  ASSERT_EQ(::braid_close(device_), 0);
  EXPECT_EQ(counting_.told, 2U);
  braid_completion completions[2];
  EXPECT_EQ(::braid_poll(context_.get(), completions, 2, 0), 2);
  EXPECT_EQ(counting_.told, 2U);
}

}  // namespace
}  // namespace braid::capi
