#include "bnbd/frontend/device_op.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid::bnbd {
namespace {

using base::Errc;

/// Records what it is asked; answers at once, or when told.
class RecordingDevice : public BlockDevice {
 public:
  struct Piece {
    BlockOp op;
    uint64_t offset_bytes;
    uint64_t length_bytes;
    std::byte* address;
    bool operator==(const Piece&) const = default;
  };
  const BlockInfo& info() const override { return info_; }
  void submit(BlockRequest& request) override {
    pieces.push_back(
        {request.op, request.offset_bytes, request.length_bytes, request.buffer.address});
    if (lend != nullptr && request.may_lend) request.lent = lend;
    if (pieces.size() == fail_at) return request.done(request, Errc::kNoSpace);
    if (request.told_later) {
      ++request.untold.words[0];
    } else {
      ++told;
    }
    if (later) {
      held.push_back(request);
    } else {
      request.done(request, Errc::kOk);
    }
  }
  base::Result<std::unique_ptr<Region>> create_region(size_t) override {
    return base::make_error(Errc::kNotSupported, "not needed");
  }
  BlockStatistics statistics() const override { return {}; }
  void note_told(Untold& untold, bool) override { told += std::exchange(untold.words[0], 0); }
  void answer_one() {
    BlockRequest* const request = held.pop_front();
    ASSERT_NE(request, nullptr);
    request->done(*request, Errc::kOk);
  }

  BlockInfo info_;
  std::vector<Piece> pieces;
  size_t fail_at = 0;
  bool later = false;
  uint64_t told = 0;  // pieces of whose good end the user has heard
  std::byte* lend = nullptr;
  base::IntrusiveList<BlockRequest> held;
};

class DeviceOpTest : public testing::Test {
 protected:
  DeviceOpTest() {
    device_.info_.size_bytes = 1 << 30;
    device_.info_.max_io_bytes = 64 * 1024;
    device_.info_.max_write_zeroes_bytes = 1 << 20;
    operation_.context = this;
    operation_.done = [](DeviceOp& operation, Errc status) {
      auto& self = *static_cast<DeviceOpTest*>(operation.context);
      ++self.completions_;
      self.status_ = status;
      self.told_at_end_ = self.device_.told;
    };
  }
  void start(BlockOp op, uint64_t offset, uint64_t length) {
    operation_.op = op;
    operation_.offset_bytes = offset;
    operation_.length_bytes = length;
    operation_.start(device_);
  }

  RecordingDevice device_;
  DeviceOp operation_;
  int completions_ = 0;
  Errc status_ = Errc::kOk;
  uint64_t told_at_end_ = 0;
};

TEST_F(DeviceOpTest, CutsATransferAndItsBufferAtTheDevicesMaximum) {
  std::vector<std::byte> memory(160 * 1024);
  operation_.buffer.address = memory.data();
  start(BlockOp::kRead, 4096, memory.size());
  const std::vector<RecordingDevice::Piece> expected = {
      {BlockOp::kRead, 4096, 65536, memory.data()},
      {BlockOp::kRead, 4096 + 65536, 65536, memory.data() + 65536},
      {BlockOp::kRead, 4096 + 131072, 32768, memory.data() + 131072}};
  EXPECT_EQ(device_.pieces, expected);
  EXPECT_EQ(completions_, 1);
}

TEST_F(DeviceOpTest, GoesOnWithEachPieceOnceTheOneBeforeIsDone) {
  device_.later = true;
  start(BlockOp::kWriteZeroes, 0, 3 << 20);
  for (size_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(device_.pieces.size(), i);
    EXPECT_EQ(completions_, 0);
    device_.answer_one();
  }
  EXPECT_EQ(completions_, 1);
}

TEST_F(DeviceOpTest, TellsOfAllPiecesWithTheLast) {
  device_.later = true;
  start(BlockOp::kWriteZeroes, 0, 3 << 20);
  device_.answer_one();
  device_.answer_one();
  EXPECT_EQ(device_.told, 1U) << "the last one, as it is submitted here";
  device_.answer_one();
  EXPECT_EQ(told_at_end_, 3U) << "before `done`";
}

TEST_F(DeviceOpTest, TellsOfPiecesBeforeOneThatFails) {
  device_.fail_at = 3;
  start(BlockOp::kWriteZeroes, 0, 100 << 20);
  EXPECT_EQ(device_.told, 2U);
}

TEST_F(DeviceOpTest, TellsLaterOfAllItWasStartedFor) {
  operation_.told_later = true;
  start(BlockOp::kWriteZeroes, 0, 2 << 20);
  start(BlockOp::kWriteZeroes, 2 << 20, 1 << 20);
  EXPECT_EQ(completions_, 2);
  EXPECT_EQ(device_.told, 0U);
  operation_.told();
  EXPECT_EQ(device_.told, 3U);
  operation_.told();
  EXPECT_EQ(device_.told, 3U);
}

TEST_F(DeviceOpTest, StopsAtTheFirstError) {
  device_.fail_at = 2;
  start(BlockOp::kWriteZeroes, 0, 100 << 20);
  EXPECT_EQ(device_.pieces.size(), 2U);
  EXPECT_EQ(completions_, 1);
  EXPECT_EQ(status_, Errc::kNoSpace);
}

TEST_F(DeviceOpTest, LeavesToTheDeviceToRefuseWhatItCannot) {
  start(BlockOp::kDiscard, 0, 1 << 20);
  ASSERT_EQ(device_.pieces.size(), 1U);
  EXPECT_EQ(device_.pieces[0].length_bytes, 1U << 20);
}

TEST_F(DeviceOpTest, TakesALentReadOnlyInOnePiece) {
  std::byte elsewhere = {};
  std::vector<std::byte> memory(128 * 1024);
  device_.lend = &elsewhere;
  operation_.may_lend = true;
  operation_.buffer.address = memory.data();
  start(BlockOp::kRead, 0, 4096);
  EXPECT_TRUE(operation_.lent());
  EXPECT_EQ(operation_.data(), &elsewhere);
  start(BlockOp::kRead, 0, 128 * 1024);
  EXPECT_FALSE(operation_.lent());
  EXPECT_EQ(operation_.data(), memory.data());
}

TEST_F(DeviceOpTest, FlushesOnceWithoutARange) {
  start(BlockOp::kFlush, 0, 0);
  EXPECT_EQ(device_.pieces.size(), 1U);
  EXPECT_EQ(completions_, 1);
}

}  // namespace
}  // namespace braid::bnbd
