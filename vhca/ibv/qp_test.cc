// The end of a queue pair whose completion queue others use too, on fakes of the libraries.
#include "vhca/ibv/qp.h"

#include <gtest/gtest.h>

#include "vhca/ibv/fakes_test.h"

namespace braid::vhca::ibv {
namespace {

class IbvQpEnd : public IbvFakes {};

// A device may give the number of a QP away again as soon as that is gone: to a QP of another
// thread, which completes into the CQ that both use before the first one's end has returned.
TEST_F(IbvQpEnd, TakesNoCompletionOfAQpThatHasItsNumberNext) {
  make_qp();
  complete(1);
  made.when_destroyed = [&] { complete(2); };
  qp.reset();
  Wc wc[4];
  ASSERT_EQ(cq->poll(wc), 1);
  EXPECT_EQ(wc[0].wr_id, 2u);
}

// What rxe leaves in the CQ, and what the device completes until it is told to stop.
TEST_F(IbvQpEnd, LeavesNoCompletionBehind) {
  make_qp();
  complete(1);
  complete(2, 9);
  made.when_modified = [&](ibv_qp_state to) {
    EXPECT_EQ(to, IBV_QPS_RESET);
    complete(3);
  };
  qp.reset();
  EXPECT_EQ(made.modified_to, std::vector{IBV_QPS_RESET});
  Wc wc[4];
  ASSERT_EQ(cq->poll(wc), 1);
  EXPECT_EQ(wc[0].wr_id, 2u);
}

// The device is gone, say: the program still hears nothing of a QP that it has destroyed.
TEST_F(IbvQpEnd, LeavesNoCompletionBehindIfItCannotBeReset) {
  make_qp();
  complete(1);
  made.modification = EIO;
  qp.reset();
  Wc wc[4];
  EXPECT_EQ(cq->poll(wc), 0);
}

}  // namespace
}  // namespace braid::vhca::ibv
