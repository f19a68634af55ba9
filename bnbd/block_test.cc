#include "bnbd/block.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid::bnbd {
namespace {

using base::Errc;

class FixedRegion : public Region {
 public:
  explicit FixedRegion(size_t size) : bytes_(size) {}
  std::byte* data() const override { return const_cast<std::byte*>(bytes_.data()); }
  size_t size() const override { return bytes_.size(); }
  const vhca::Mr* mr() const override { return nullptr; }

 private:
  std::vector<std::byte> bytes_;
};

class BlockCheck : public testing::Test {
 protected:
  BlockCheck() {
    info_.size_bytes = 1 << 20;
    info_.logical_block_bytes = 512;
    info_.max_io_bytes = 64 << 10;
    info_.max_discard_bytes = 1 << 20;
    info_.max_write_zeroes_bytes = 128 << 10;
  }
  Errc judge(BlockOp op, uint64_t offset, uint64_t length) {
    BlockRequest request;
    request.op = op;
    request.offset_bytes = offset;
    request.length_bytes = length;
    request.buffer.address = &byte_;
    return check(info_, request);
  }
  BlockInfo info_;
  std::byte byte_{};
};

TEST_F(BlockCheck, the_first_and_the_last_block_are_in_range) {
  EXPECT_EQ(judge(BlockOp::kRead, 0, 512), Errc::kOk);
  EXPECT_EQ(judge(BlockOp::kWrite, (1 << 20) - 512, 512), Errc::kOk);
  EXPECT_EQ(judge(BlockOp::kDiscard, 0, 1 << 20), Errc::kOk);
}

TEST_F(BlockCheck, what_reaches_past_the_end_is_out_of_range) {
  EXPECT_EQ(judge(BlockOp::kRead, (1 << 20) - 512, 1024), Errc::kOutOfRange);
  EXPECT_EQ(judge(BlockOp::kWrite, 1 << 20, 512), Errc::kOutOfRange);
}

TEST_F(BlockCheck, an_offset_near_the_end_of_64_bits_does_not_wrap_around) {
  EXPECT_EQ(judge(BlockOp::kRead, UINT64_MAX - 511, 1024), Errc::kOutOfRange);
  EXPECT_EQ(judge(BlockOp::kDiscard, UINT64_MAX - 511, 512), Errc::kOutOfRange);
}

TEST_F(BlockCheck, parts_of_a_block_are_invalid) {
  EXPECT_EQ(judge(BlockOp::kRead, 100, 512), Errc::kInvalid);
  EXPECT_EQ(judge(BlockOp::kWrite, 0, 100), Errc::kInvalid);
  EXPECT_EQ(judge(BlockOp::kWrite, 0, 0), Errc::kInvalid);
}

TEST_F(BlockCheck, each_operation_has_its_own_maximum) {
  EXPECT_EQ(judge(BlockOp::kRead, 0, (64 << 10) + 512), Errc::kInvalid);
  EXPECT_EQ(judge(BlockOp::kWriteZeroes, 0, 128 << 10), Errc::kOk);
  EXPECT_EQ(judge(BlockOp::kWriteZeroes, 0, (128 << 10) + 512), Errc::kInvalid);
  info_.max_discard_bytes = 0;
  EXPECT_EQ(judge(BlockOp::kDiscard, 0, 512), Errc::kNotSupported);
}

TEST_F(BlockCheck, a_read_only_device_takes_reads_and_flushes_only) {
  info_.read_only = true;
  EXPECT_EQ(judge(BlockOp::kRead, 0, 512), Errc::kOk);
  EXPECT_EQ(judge(BlockOp::kFlush, 0, 0), Errc::kOk);
  EXPECT_EQ(judge(BlockOp::kWrite, 0, 512), Errc::kReadOnly);
  EXPECT_EQ(judge(BlockOp::kDiscard, 0, 512), Errc::kReadOnly);
  EXPECT_EQ(judge(BlockOp::kWriteZeroes, 0, 512), Errc::kReadOnly);
}

TEST_F(BlockCheck, a_flush_has_no_range) {
  EXPECT_EQ(judge(BlockOp::kFlush, 0, 512), Errc::kInvalid);
  EXPECT_EQ(judge(BlockOp::kFlush, 512, 0), Errc::kInvalid);
}

TEST_F(BlockCheck, a_buffer_lies_inside_the_region_it_names) {
  FixedRegion region(4096);
  BlockRequest request;
  request.length_bytes = 4096;
  request.buffer = {&region, region.data()};
  EXPECT_EQ(check(info_, request), Errc::kOk);
  request.buffer.address = region.data() + 512;
  EXPECT_EQ(check(info_, request), Errc::kInvalid);
  request.buffer.address = region.data() - 512;
  EXPECT_EQ(check(info_, request), Errc::kInvalid);
  request.buffer = {};
  EXPECT_EQ(check(info_, request), Errc::kInvalid) << "no buffer";
  request.may_lend = true;
  EXPECT_EQ(check(info_, request), Errc::kOk) << "a lent read may come without a buffer";
}

TEST(BlockStatistics, counts_by_kind_and_counts_failures_apart) {
  BlockStatistics statistics;
  BlockRequest request;
  request.op = BlockOp::kWrite;
  request.length_bytes = 4096;
  statistics.count(request, Errc::kOk);
  statistics.count(request, Errc::kIo);
  EXPECT_EQ(statistics.writes, 1u);
  EXPECT_EQ(statistics.write_bytes, 4096u);
  EXPECT_EQ(statistics.errors, 1u);
}

}  // namespace
}  // namespace braid::bnbd
