// What an answer of the kernel means for an operation.
#include "base/linux/uring_ops.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace braid::base {
namespace {

TEST(UringOps, WhatIsPutOffForEverFailsInTheEnd) {
  IoOp op;
  op.length_bytes = 4096;
  int asked = 1;
  IoProgress progress = IoProgress::kAgain;
  while ((progress = advance_io(op, -EAGAIN)) == IoProgress::kAgain) ASSERT_LT(++asked, 1000);
  EXPECT_EQ(progress, IoProgress::kRefused);
}

TEST(UringOps, AnyProgressStartsTheCountAnew) {
  IoOp op;
  op.length_bytes = uint64_t{1} << 20;
  for (int i = 0; i < 200; ++i) {
    for (int k = 0; k < 50; ++k) ASSERT_EQ(advance_io(op, -EAGAIN), IoProgress::kAgain);
    ASSERT_EQ(advance_io(op, 512), IoProgress::kAgain);
  }
  EXPECT_EQ(op.progressed_bytes, 200u * 512);
}

/// What is left of it is asked for, where it belongs, until all of it has moved.
TEST(UringOps, ATransferThatIsShortGoesOnWithTheRest) {
  for (const IoOpcode opcode : {IoOpcode::kRead, IoOpcode::kWrite}) {
    IoOp op;
    op.opcode = opcode;
    op.length_bytes = 4096;
    EXPECT_EQ(advance_io(op, 512), IoProgress::kAgain);
    EXPECT_EQ(op.progressed_bytes, 512u);
    EXPECT_EQ(advance_io(op, 3583), IoProgress::kAgain) << "a byte is missing";
    EXPECT_EQ(advance_io(op, 1), IoProgress::kDone);
  }
}

TEST(UringOps, ATransferThatStopsHalfwayFails) {
  for (const IoOpcode opcode : {IoOpcode::kRead, IoOpcode::kWrite}) {
    IoOp op;
    op.opcode = opcode;
    op.length_bytes = 4096;
    EXPECT_EQ(advance_io(op, 0), IoProgress::kPastEnd);
    EXPECT_EQ(advance_io(op, 2048), IoProgress::kAgain);
    EXPECT_EQ(advance_io(op, 0), IoProgress::kPastEnd) << "what moved before does not count";
    EXPECT_EQ(advance_io(op, -EIO), IoProgress::kFailed);
  }
}

}  // namespace
}  // namespace braid::base
