// The verbs contract, memory windows of type 2B: what a bind gives to whom, how it ends, and that
// nothing is touched through it after that.
#include <gtest/gtest.h>

#include <cerrno>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

constexpr int kReadWrite = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

class ConformanceWindows : public Pair {
 protected:
  void SetUp() override {
    Pair::SetUp();
    if (IsSkipped()) return;
    const DeviceAttr attr = rig->device(kServer).query();
    if ((attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) == 0) {
      GTEST_SKIP() << GetParam().name << ": the device says that it has none";
    }
  }
  /// The server's window can be bound to all of its buffer.
  void connect_with_window(const ConnectParameters& server_parameters = {}) {
    if (server.qp != nullptr) {
      window.reset();
      client = End{};
      server = End{};
    }
    EndOptions options;
    options.mr_access = kAllAccess | IBV_ACCESS_MW_BIND;
    connect({}, options, {}, server_parameters);
    window = std::move(*server.pd->alloc_mw(IBV_MW_TYPE_2));
  }
  void TearDown() override { window.reset(); }

  SendWr bind_work(uint32_t key, size_t offset, uint64_t length, int access = kReadWrite) {
    SendWr wr{};
    wr.wr_id = 500;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = window.get();
    wr.bind_mw.rkey = key;
    wr.bind_mw.bind_info.mr = server.mr.get();
    wr.bind_mw.bind_info.addr = server.address(offset);
    wr.bind_mw.bind_info.length = length;
    wr.bind_mw.bind_info.mw_access_flags = static_cast<unsigned>(access);
    return wr;
  }
  static SendWr invalidate_work(uint32_t key) {
    SendWr wr{};
    wr.wr_id = 501;
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = key;
    return wr;
  }
  /// Binds with the next key of the window and gives it.
  uint32_t bind(size_t offset, uint64_t length, int access = kReadWrite) {
    key_ = ibv_inc_rkey(key_ != 0 && key_ >> 8 == window->rkey >> 8 ? key_ : window->rkey);
    EXPECT_EQ(post_send(server, bind_work(key_, offset, length, access)), 0);
    const Wc wc = next_sent(server);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
    EXPECT_EQ(wc.wr_id, 500u);
    return key_;
  }
  void invalidate(uint32_t key) {
    ASSERT_EQ(post_send(server, invalidate_work(key)), 0);
    const Wc wc = next_sent(server);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
  }
  /// A request of the client through the window.
  ibv_wc_status access(ibv_wr_opcode opcode, uint32_t key, size_t remote_offset, uint32_t length) {
    SendWr wr = work(client, server, opcode, 1, 0, length, remote_offset);
    wr.wr.rdma.rkey = key;
    EXPECT_EQ(post_send(client, wr), 0);
    return next_sent(client).status;
  }
  ibv_wc_status send_and_invalidate(uint32_t key, uint32_t length = 64) {
    SendWr wr = work(client, server, IBV_WR_SEND_WITH_INV, 2, 0, length);
    wr.invalidate_rkey = key;
    EXPECT_EQ(post_send(client, wr), 0);
    return next_sent(client).status;
  }

  /// An access through the window of 4 KiB at 8 KiB that may not be.
  struct BadAccess {
    const char* name;
    ibv_wr_opcode opcode;
    int granted;
    size_t offset;
    uint32_t length;
  };
  void refuse_accesses(std::initializer_list<BadAccess> accesses) {
    for (const BadAccess& each : accesses) {
      SCOPED_TRACE(each.name);
      connect_with_window();
      const uint32_t key = bind(8192, 4096, each.granted);
      SendWr wr = work(client, server, each.opcode, 1, 0, each.length, each.offset);
      wr.wr.rdma.rkey = key;
      if (each.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = server.address(each.offset);
        wr.wr.atomic.rkey = key;
      }
      ASSERT_EQ(post_send(client, wr), 0);
      EXPECT_EQ(next_sent(client).status, IBV_WC_REM_ACCESS_ERR);
      EXPECT_EQ(server.buffer[each.offset], std::byte{0});
    }
  }

  std::unique_ptr<Mw> window;

 private:
  uint32_t key_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceWindows, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

TEST_P(ConformanceWindows, ABoundWindowGivesItsPartOfTheMemory) {
  connect_with_window();
  fill(client, 0, 64, 5);
  const uint32_t key = bind(8192, 4096);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, key, 8192, 64), IBV_WC_SUCCESS);
  EXPECT_TRUE(same(client, 0, server, 8192, 64));
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, key, 8192 + 4096 - 64, 64), IBV_WC_SUCCESS);
  EXPECT_EQ(access(IBV_WR_RDMA_READ, key, 8192, 4096), IBV_WC_SUCCESS);
}

TEST_P(ConformanceWindows, BoundsAreThoseOfTheWindow) {
  refuse_accesses({{"past its end", IBV_WR_RDMA_WRITE, kReadWrite, 8192 + 4096 - 63, 64},
                   {"before its start", IBV_WR_RDMA_READ, kReadWrite, 8191, 64}});
}

TEST_P(ConformanceWindows, AccessIsThatOfTheWindow) {
  refuse_accesses({{"written, to be read", IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_READ, 8192, 64},
                   {"read, to be written", IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_WRITE, 8192, 64},
                   {"atomic, not granted", IBV_WR_ATOMIC_FETCH_AND_ADD, kReadWrite, 8192, 8}});
}

TEST_P(ConformanceWindows, ARefusedAccessTellsTheResponder) {
  connect_with_window();
  const uint32_t key = bind(8192, 4096, IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, key, 8192, 64), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(next_event(kServer).type, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_P(ConformanceWindows, AWindowServesTheQpThatBoundIt) {
  connect_with_window();
  End client_b = make_end(kClient);
  End server_b = make_end(kServer);
  // Of the same PD, so that only the QP tells them apart.
  server_b.qp.reset();
  server_b.qp = std::move(*server.pd->create_qp({.send_cq = server_b.send_cq.get(),
                                                 .recv_cq = server_b.recv_cq.get(),
                                                 .td = server_b.td.get()}));
  connect_ends(client_b, server_b);
  ends.insert(ends.end(), {&client_b, &server_b});
  const uint32_t key = bind(8192, 4096);
  SendWr wr = work(client_b, server, IBV_WR_RDMA_WRITE, 1, 0, 64, 8192);
  ASSERT_EQ(post_send(client_b, wr), 0);
  EXPECT_EQ(next_sent(client_b).status, IBV_WC_SUCCESS) << "by the memory's own key";
  wr.wr.rdma.rkey = key;
  ASSERT_EQ(post_send(client_b, wr), 0);
  EXPECT_EQ(next_sent(client_b).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, key, 8192, 64), IBV_WC_SUCCESS);
  ends = {&client, &server};
  window.reset();
}

TEST_P(ConformanceWindows, AnInvalidatedWindowIsClosed) {
  connect_with_window();
  const uint32_t key = bind(8192, 4096);
  EXPECT_EQ(access(IBV_WR_RDMA_READ, key, 8192, 64), IBV_WC_SUCCESS);
  invalidate(key);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, key, 8192, 64), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(ConformanceWindows, EachBindHasAKeyOfItsOwn) {
  connect_with_window();
  uint32_t last = bind(8192, 64);
  for (int i = 0; i < 300; ++i) {
    invalidate(last);
    const uint32_t key = bind(8192 + static_cast<size_t>(i) * 64, 64);
    EXPECT_NE(key, last);
    EXPECT_EQ(key >> 8, window->rkey >> 8);
    ASSERT_EQ(access(IBV_WR_RDMA_WRITE, key, 8192 + static_cast<size_t>(i) * 64, 64),
              IBV_WC_SUCCESS);
    last = key;
  }
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, last ^ 1, 8192 + 299 * 64, 64), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(ConformanceWindows, ThePeerInvalidatesWithASend) {
  connect_with_window();
  for (const uint32_t length : {8u, 100u, 40'000u}) {
    const uint32_t key = bind(8192, 4096);
    ASSERT_EQ(post_recv(server, 71, 512 << 10, 64 << 10), 0);
    EXPECT_EQ(send_and_invalidate(key, length), IBV_WC_SUCCESS);
    const Wc wc = next_received(server);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(wc.byte_len, length);
  }
  // It is free, and bound anew.
  const uint32_t again = bind(0, 64);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, again, 0, 64), IBV_WC_SUCCESS);
  ASSERT_EQ(post_recv(server, 72, 512 << 10, 64), 0);
  EXPECT_EQ(send_and_invalidate(again), IBV_WC_SUCCESS);
  EXPECT_EQ(next_received(server).status, IBV_WC_SUCCESS);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, again, 0, 64), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(ConformanceWindows, TheReceiverIsToldWhichKeyAPeerInvalidated) {
  connect_with_window();
  for (uint64_t wr_id : {71, 72}) {
    const uint32_t key = bind(8192, 4096);
    ASSERT_EQ(post_recv(server, wr_id, 512 << 10, 64), 0);
    EXPECT_EQ(send_and_invalidate(key), IBV_WC_SUCCESS);
    const Wc wc = next_received(server);
    EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_WITH_INV});
    EXPECT_EQ(wc.invalidated_rkey, key);
  }
}

TEST_P(ConformanceWindows, ThePeerInvalidatesOnlyWhatIsItsOwn) {
  for (const bool of_memory : {false, true}) {
    connect_with_window();
    const uint32_t key = bind(8192, 4096);
    ASSERT_EQ(post_recv(server, 71, 512 << 10, 64), 0);
    EXPECT_EQ(send_and_invalidate(of_memory ? server.mr->rkey : key ^ 1), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(next_received(server).status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(next_event(kServer).type, IBV_EVENT_QP_ACCESS_ERR);
  }
}

TEST_P(ConformanceWindows, WhatMayNotBeBoundIsNot) {
  struct Case {
    const char* name;
    std::function<void(SendWr&)> spoil;
  };
  std::unique_ptr<Mr> plain;
  const Case cases[] = {
      {"another window's key", [](SendWr& wr) { wr.bind_mw.rkey ^= 1u << 12; }},
      {"past the end of the memory",
       [](SendWr& wr) { wr.bind_mw.bind_info.length = kBufferBytes + 1; }},
      {"before its start", [](SendWr& wr) { --wr.bind_mw.bind_info.addr; }},
      {"no length", [](SendWr& wr) { wr.bind_mw.bind_info.length = 0; }},
      {"flags that no window has",
       [](SendWr& wr) { wr.bind_mw.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED; }},
      {"memory that is not to be bound",
       [&](SendWr& wr) { wr.bind_mw.bind_info.mr = plain.get(); }}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    plain.reset();
    connect_with_window();
    plain = std::move(*server.pd->reg_mr(server.buffer.data(), kBufferBytes, kAllAccess));
    SendWr wr = bind_work(ibv_inc_rkey(window->rkey), 0, kBufferBytes);
    each.spoil(wr);
    ASSERT_EQ(post_send(server, wr), 0);
    EXPECT_EQ(next_sent(server).status, IBV_WC_MW_BIND_ERR);
    EXPECT_EQ(state_of(server), IBV_QPS_ERR);
  }
  plain.reset();
}

TEST_P(ConformanceWindows, ABoundWindowIsNotBoundAgain) {
  connect_with_window();
  const uint32_t key = bind(8192, 64);
  ASSERT_EQ(post_send(server, bind_work(ibv_inc_rkey(key), 0, 64)), 0);
  EXPECT_EQ(next_sent(server).status, IBV_WC_MW_BIND_ERR);
}

TEST_P(ConformanceWindows, InvalidatingWhatIsNoWindowFails) {
  connect_with_window();
  ASSERT_EQ(post_send(server, invalidate_work(window->rkey)), 0);
  EXPECT_EQ(next_sent(server).status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(state_of(server), IBV_QPS_ERR);
}

TEST_P(ConformanceWindows, BindsTakeTheirTurn) {
  connect_with_window();
  fill(server, 0, 64, 4);
  // The client learns the key with a message that follows the bind, as protocols do.
  const uint32_t key = ibv_inc_rkey(window->rkey);
  ASSERT_EQ(post_recv(client, 71, 4096, 64), 0);
  ASSERT_EQ(post_send(server, bind_work(key, 0, 64)), 0);
  ASSERT_EQ(post_send(server, work(server, client, IBV_WR_SEND, 2, 0, 64)), 0);
  EXPECT_EQ(next_received(client).status, IBV_WC_SUCCESS);
  EXPECT_EQ(access(IBV_WR_RDMA_READ, key, 0, 64), IBV_WC_SUCCESS);
  EXPECT_EQ(next_sent(server).opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(next_sent(server).wr_id, 2u);
  // Unsignalled ones complete with the next.
  SendWr quiet_one = invalidate_work(key);
  quiet_one.send_flags = 0;
  ASSERT_EQ(post_send(server, quiet_one), 0);
  EXPECT_TRUE(quiet(server));
  EXPECT_EQ(access(IBV_WR_RDMA_READ, key, 0, 64), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(ConformanceWindows, ABindBehindAMessageThatWaitsIsNotThereYet) {
  connect_with_window();
  const uint32_t key = ibv_inc_rkey(window->rkey);
  ASSERT_EQ(post_send(server, work(server, client, IBV_WR_SEND, 1, 0, 64)), 0);
  EXPECT_TRUE(quiet(server)) << "no receive at the client";
  ASSERT_EQ(post_send(server, bind_work(key, 0, 64)), 0);
  EXPECT_TRUE(quiet(server));
  ASSERT_EQ(post_recv(client, 71, 4096, 64), 0);
  EXPECT_EQ(next_sent(server).wr_id, 1u);
  EXPECT_EQ(next_sent(server).wr_id, 500u);
  EXPECT_EQ(access(IBV_WR_RDMA_READ, key, 0, 64), IBV_WC_SUCCESS);
}

TEST_P(ConformanceWindows, ABindIsNotRepeatedWithAMessageThatIs) {
  connect_with_window();
  // Both are on their way before the answer, that there is no receive, comes.
  const uint32_t key = ibv_inc_rkey(window->rkey);
  ASSERT_EQ(post_send(server, work(server, client, IBV_WR_SEND, 1, 0, 64)), 0);
  ASSERT_EQ(post_send(server, bind_work(key, 0, 64)), 0);
  ASSERT_EQ(post_send(server, work(server, client, IBV_WR_SEND, 2, 0, 64)), 0);
  ASSERT_EQ(post_send(server, invalidate_work(key)), 0);
  ASSERT_EQ(post_send(server, work(server, client, IBV_WR_SEND, 3, 0, 64)), 0);
  EXPECT_TRUE(quiet(server));
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(post_recv(client, 70 + i, 4096, 64), 0);
  for (const uint64_t wr_id : {1, 500, 2, 501, 3}) {
    const Wc wc = next_sent(server);
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(next_received(client).wr_id, 70 + i);
}

TEST_P(ConformanceWindows, RnrRetriesAreNotCountedAnewByWhatIsDoneBehindTheMessage) {
  ConnectParameters thrice;
  thrice.rnr_retry_count = 3;
  connect_with_window(thrice);
  const uint32_t key = bind(0, 64);
  const uint64_t start_ns = rig->now_ns();
  ASSERT_EQ(post_send(server, work(server, client, IBV_WR_SEND, 1, 0, 64)), 0);
  ASSERT_EQ(post_send(server, invalidate_work(key)), 0);
  EXPECT_EQ(next_sent(server).status, IBV_WC_RNR_RETRY_EXC_ERR);
  const uint64_t lasted_ns = rig->now_ns() - start_ns;
  EXPECT_GE(lasted_ns, 3 * kRnrTimerNs);
  if (GetParam().virtual_time) {
    EXPECT_LT(lasted_ns, 4 * kRnrTimerNs);
  }
}

TEST_P(ConformanceWindows, MemoryKnowsOfItsWindows) {
  connect_with_window();
  EXPECT_FALSE(server.mr->has_windows());
  (void)bind(0, 64);
  EXPECT_TRUE(server.mr->has_windows()) << "what ibv_dereg_mr is refused for";
  window.reset();
  EXPECT_FALSE(server.mr->has_windows());
}

TEST_P(ConformanceWindows, TheEndOfMemoryEndsItsWindows) {
  connect_with_window();
  auto memory = std::move(*server.pd->reg_mr(server.buffer.data(), 64 << 10,
                                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
  SendWr wr = bind_work(ibv_inc_rkey(window->rkey), 0, 64);
  wr.bind_mw.bind_info.mr = memory.get();
  ASSERT_EQ(post_send(server, wr), 0);
  EXPECT_EQ(next_sent(server).status, IBV_WC_SUCCESS);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, wr.bind_mw.rkey, 0, 64), IBV_WC_SUCCESS)
      << "the memory itself may not be written by peers";
  memory.reset();
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, wr.bind_mw.rkey, 0, 64), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(ConformanceWindows, ADeallocatedWindowIsClosed) {
  connect_with_window();
  const uint32_t key = bind(0, 64);
  window.reset();
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, key, 0, 64), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(ConformanceWindows, TheEndOfTheQpEndsItsWindows) {
  connect_with_window();
  (void)bind(0, 64);
  EXPECT_TRUE(server.mr->has_windows());
  server.connection.reset();
  server.qp.reset();
  EXPECT_FALSE(server.mr->has_windows());
}

TEST_P(ConformanceWindows, PostsAndOptionsAreChecked) {
  connect_with_window();
  EXPECT_EQ(server.pd->alloc_mw(IBV_MW_TYPE_1).code(), base::Errc::kNotSupported);
  SendWr wr = bind_work(window->rkey, 0, 64);
  wr.bind_mw.mw = nullptr;
  EXPECT_EQ(post_send(server, wr), EINVAL);
  wr = bind_work(window->rkey, 0, 64);
  wr.bind_mw.bind_info.mr = nullptr;
  EXPECT_EQ(post_send(server, wr), EINVAL);
  ibv_mw other = *window;
  other.type = IBV_MW_TYPE_1;
  wr = bind_work(window->rkey, 0, 64);
  wr.bind_mw.mw = &other;
  EXPECT_EQ(post_send(server, wr), EINVAL);
  const DeviceAttr attr = rig->device(kServer).query();
  EXPECT_GE(attr.max_mw, 1);
}

TEST_P(ConformanceWindows, WhatWaitsIsFlushed) {
  connect_with_window();
  ASSERT_EQ(post_send(server, work(server, client, IBV_WR_SEND, 1, 0, 64)), 0);
  ASSERT_EQ(post_send(server, bind_work(ibv_inc_rkey(window->rkey), 0, 64)), 0);
  ASSERT_EQ(post_send(server, invalidate_work(ibv_inc_rkey(window->rkey))), 0);
  server.connection->disconnect();
  expect_flush(server, *server.send_cq, {1, 500, 501});
  ASSERT_EQ(post_send(server, invalidate_work(1)), 0);
  expect_flush(server, *server.send_cq, {501});
}

}  // namespace
}  // namespace braid::vhca::conformance
