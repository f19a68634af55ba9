// Memory windows of an RDMA device, on fakes of the libraries: how binds reach the driver, which
// knows none of our objects, and what is left of a window whose memory has gone.
#include "vhca/ibv/memory.h"

#include <gtest/gtest.h>

#include "vhca/ibv/fakes_test.h"

namespace braid::vhca::ibv {
namespace {

class IbvWindows : public IbvFakes {
 protected:
  IbvWindows() {
    made.attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    make_qp();
    memory = std::move(*pd->reg_mr(bytes, sizeof bytes, IBV_ACCESS_MW_BIND));
    window = std::move(*pd->alloc_mw(IBV_MW_TYPE_2));
  }
  ~IbvWindows() override {
    window.reset();
    memory.reset();
  }
  /// A request that sends nothing, and one that binds the window, each with its number.
  static SendWr send(uint64_t wr_id) {
    SendWr wr{};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_SEND;
    return wr;
  }
  SendWr bind(uint64_t wr_id, uint32_t key) {
    SendWr wr{};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw.mw = window.get();
    wr.bind_mw.rkey = key;
    wr.bind_mw.bind_info.mr = memory.get();
    wr.bind_mw.bind_info.length = sizeof bytes;
    return wr;
  }

  std::byte bytes[64];
  std::unique_ptr<Mr> memory;
  std::unique_ptr<Mw> window;
};

TEST_F(IbvWindows, AChainWithABindIsPostedOneByOneWithTheDriversObjects) {
  SendWr chain[] = {send(1), bind(2, 0x107), send(3)};
  chain[0].next = &chain[1];
  chain[1].next = &chain[2];
  const SendWr* bad = nullptr;
  ASSERT_EQ(qp->post_send(chain, &bad), 0);
  EXPECT_EQ(made.chain_lengths, (std::vector<size_t>{1, 1, 1}));
  ASSERT_EQ(made.posted.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(made.posted[i].wr_id, i + 1);
  EXPECT_EQ(made.posted[1].bind_mw.mw, &made.windows[0]);
  EXPECT_EQ(made.posted[1].bind_mw.bind_info.mr, &made.memory[0]);
  EXPECT_EQ(made.posted[1].bind_mw.rkey, 0x107u);
  EXPECT_EQ(made.windows[0].rkey, 0x107u) << "by which rxe's driver finds it the next time";
  EXPECT_EQ(chain[1].next, &chain[2]) << "what the user gave is as it was";
  EXPECT_EQ(chain[1].bind_mw.mw, window.get());
}

TEST_F(IbvWindows, AChainStopsAtWhatTheDriverRefuses) {
  SendWr chain[] = {send(1), bind(2, 0x107), send(3)};
  chain[0].next = &chain[1];
  chain[1].next = &chain[2];
  const SendWr* bad = nullptr;
  made.refused_wr_id = 2;
  EXPECT_EQ(qp->post_send(chain, &bad), ENOMEM);
  EXPECT_EQ(bad, &chain[1]);
  EXPECT_EQ(made.posted.size(), 1u);
  EXPECT_EQ(made.windows[0].rkey, 0x100u) << "not bound, so its key is the old one";
}

// The device does not deregister memory with windows; and a window that went with it binds nothing.
TEST_F(IbvWindows, TheEndOfMemoryTakesItsWindowsAlong) {
  const SendWr* bad = nullptr;
  SendWr wr = bind(1, 0x101);
  ASSERT_EQ(qp->post_send(&wr, &bad), 0);
  made.deregistrations = {EBUSY};
  memory.reset();
  EXPECT_EQ(made.windows_deallocated, 1);
  memory = std::move(*pd->reg_mr(bytes, sizeof bytes, IBV_ACCESS_MW_BIND));
  wr = bind(2, 0x102);
  EXPECT_EQ(qp->post_send(&wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  window.reset();
  EXPECT_EQ(made.windows_deallocated, 1) << "once";
}

TEST_F(IbvWindows, WhatIsNotBoundStaysWhenMemoryEnds) {
  memory.reset();
  EXPECT_EQ(made.windows_deallocated, 0);
  window.reset();
  EXPECT_EQ(made.windows_deallocated, 1);
}

}  // namespace
}  // namespace braid::vhca::ibv
