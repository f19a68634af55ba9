// What an RDMA device and its connection manager do by themselves, on fakes of both libraries.
// Needs no device.
#include "vhca/ibv/device.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <semaphore>
#include <thread>

#include "vhca/ibv/cm_channel.h"
#include "vhca/ibv/cq.h"
#include "vhca/ibv/fakes_test.h"
#include "vhca/ibv/qp.h"

namespace braid::vhca::ibv {
namespace {

// The library's copy of the state does not know what the device did by itself.
TEST_F(IbvFakes, AReceivePostedAfterTheDevicesOwnErrorIsFlushed) {
  make_qp();
  Wc wc[4];
  RecvWr wr{1, nullptr, nullptr, 0};
  const RecvWr* bad = nullptr;
  ASSERT_EQ(qp->post_recv(&wr, &bad), 0);
  EXPECT_TRUE(made.modified_to.empty());
  complete(1, 7, IBV_WC_RETRY_EXC_ERR);
  ASSERT_EQ(cq->poll(wc), 1);
  EXPECT_EQ(made.modified_to, std::vector{IBV_QPS_ERR}) << "what was posted before the poll";
  made.qp.state = IBV_QPS_RTS;  // a driver that keeps no such copy
  ASSERT_EQ(qp->post_recv(&wr, &bad), 0);
  EXPECT_EQ(made.modified_to.size(), 2u) << "and behind it";
  complete(2, 7, IBV_WC_WR_FLUSH_ERR);
  complete(3, 8, IBV_WC_WR_FLUSH_ERR);  // of a QP that is no more
  ASSERT_EQ(cq->poll(wc), 2);
  EXPECT_EQ(made.modified_to.size(), 2u) << "once";
}

// rxe tells of a receive that failed before it answers the peer, which it does not do in ERR.
TEST_F(IbvFakes, AQueuePairThatFailsIsFlushedWhenTheDeviceHasPutItInError) {
  make_qp();
  int queries = 0;
  made.when_queried = [&] {
    EXPECT_TRUE(made.modified_to.empty());
    if (++queries == 3) made.qp.state = IBV_QPS_ERR;
  };
  complete(1, 7, IBV_WC_REM_ACCESS_ERR);
  Wc wc[4];
  ASSERT_EQ(cq->poll(wc), 1);
  EXPECT_EQ(queries, 3);
  EXPECT_EQ(made.modified_to, std::vector{IBV_QPS_ERR});
}

// One thread polls the failure, and is late to tell of it: the program resets the QP meanwhile.
TEST_F(IbvFakes, AFailureFromBeforeAResetDoesNotUndoIt) {
  make_qp();
  complete(1, 7, IBV_WC_RETRY_EXC_ERR);
  std::binary_semaphore is_reset(0);
  made.when_modified = [&](ibv_qp_state to) {
    if (to == IBV_QPS_RESET) is_reset.release();
  };
  std::thread resetting;
  made.while_polling = [&] {
    resetting = std::thread([&] {
      QpAttr attr{};
      attr.qp_state = IBV_QPS_RESET;
      EXPECT_TRUE(qp->modify(attr, IBV_QP_STATE).ok());
    });
    is_reset.acquire();
  };
  Wc wc[4];
  (void)cq->poll(wc);
  resetting.join();
  EXPECT_EQ(made.modified_to, std::vector{IBV_QPS_RESET});
  EXPECT_EQ(made.qp.state, IBV_QPS_RESET);
  // What fails afterwards counts.
  made.qp.state = IBV_QPS_RTS;
  complete(2, 7, IBV_WC_RETRY_EXC_ERR);
  ASSERT_EQ(cq->poll(wc), 1);
  EXPECT_EQ(made.modified_to.back(), IBV_QPS_ERR);
}

// A completion that was kept while another QP went is polled by a thread that is as late.
TEST_F(IbvFakes, AKeptFailureFromBeforeAResetDoesNotUndoIt) {
  make_qp();
  complete(1, 7, IBV_WC_RETRY_EXC_ERR);
  static_cast<IbvCq&>(*cq).drop_completions(9);
  QpAttr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_TRUE(qp->modify(attr, IBV_QP_STATE).ok());
  Wc wc[4];
  EXPECT_EQ(cq->poll(wc), 0);
  EXPECT_EQ(made.modified_to, std::vector{IBV_QPS_RESET});
}

// What the device refuses for good is not silently left to its peers.
TEST_F(IbvFakes, MemoryThatStaysRegisteredIsTold) {
  make_qp();
  std::byte memory[64];
  const auto registered = [&] { return std::move(*pd->reg_mr(memory, sizeof memory, 0)); };
  made.deregistrations = {EBUSY};
  registered().reset();
  made.deregistrations = {EIO, EIO};
  registered().reset();  // the device is gone, say
  made.deregistrations = {EBUSY, EBUSY};
  // Peers could still come to memory that is used again.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(registered().reset(), "");
  EXPECT_EQ(lines_with("64 bytes"), 1u);
}

// Kernel 6.1 hangs when rxe repeats a request with a bind behind it.
TEST_F(IbvFakes, RxeCountsAsADeviceWithoutWindows) {
  made.attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  made.attr.vendor_id = 0xffffff;
  made.attr.max_mw = 100;
  make_qp();
  EXPECT_EQ(device->query().device_cap_flags, 0u);
  EXPECT_EQ(device->query().max_mw, 0);
  const auto window = pd->alloc_mw(IBV_MW_TYPE_2);
  EXPECT_EQ(window.code(), base::Errc::kNotSupported);
  EXPECT_NE(window.error().message().find("rxe"), std::string::npos) << window.error().message();
}

// Only tests of the seam ask, on a wire that loses nothing.
TEST_F(IbvFakes, RxeHasItsWindowsForWhoAsksByName) {
  made.attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  made.attr.vendor_id = 0xffffff;
  IbvOptions options;
  options.rxe_windows = true;
  make_qp(options);
  EXPECT_TRUE(pd->alloc_mw(IBV_MW_TYPE_2).ok());
}

TEST_F(IbvFakes, ADeviceThatHasNoWindowsSaysSo) {
  made.attr.device_cap_flags = IBV_DEVICE_MEM_MGT_EXTENSIONS;
  make_qp();
  const auto window = pd->alloc_mw(IBV_MW_TYPE_2);
  EXPECT_EQ(window.code(), base::Errc::kNotSupported);
  EXPECT_NE(window.error().message().find("has no memory windows"), std::string::npos);
}

// Completions that one thread polls while another drops those of a QP stay in order.
TEST_F(IbvFakes, CompletionsKeptWhileAQpGoesComeFirst) {
  make_qp();
  auto& ibv_cq = static_cast<IbvCq&>(*cq);
  for (uint64_t i = 0; i < 4; ++i) complete(i, i % 2 == 0 ? 9 : 7);
  ibv_cq.drop_completions(7);
  complete(4, 9);
  Wc wc[8];
  std::vector<uint64_t> polled;
  for (int count = 0; (count = cq->poll(wc)) > 0;) {
    for (int i = 0; i < count; ++i) polled.push_back(wc[i].wr_id);
  }
  EXPECT_EQ(polled, (std::vector<uint64_t>{0, 2, 4}));
}

TEST_F(IbvFakes, ThePeersFirstMessageConfirmsAConnection) {
  make_qp();
  rdma_cm_id id{};
  static_cast<IbvQp&>(*qp).accepting()->set(&id);
  ibv_async_event event{};
  event.event_type = IBV_EVENT_COMM_EST;
  event.element.qp = &made.qp;
  made.events.push_back(event);
  EXPECT_EQ(device->next_async_event()->type, IBV_EVENT_COMM_EST);
  ASSERT_EQ(made.notified.size(), 1u);
  EXPECT_EQ(made.notified[0].first, &id);
  EXPECT_EQ(made.notified[0].second, IBV_EVENT_COMM_EST);
  static_cast<IbvQp&>(*qp).accepting()->set(nullptr);
  made.events.push_back(event);
  (void)device->next_async_event();
  EXPECT_EQ(made.notified.size(), 1u) << "nobody waits";
}

// A cable that comes and goes for weeks under a program that never asks.
TEST_F(IbvFakes, PortEventsThatNobodyTakesDoNotPileUp) {
  make_qp();
  ibv_async_event event{};
  event.element.port_num = 1;
  for (int i = 0; i < 5000; ++i) {
    for (const auto type : {IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE}) {
      event.event_type = type;
      made.events.push_back(event);
    }
  }
  event.element.port_num = 2;
  event.event_type = IBV_EVENT_PORT_ERR;
  made.events.push_back(event);
  const auto next = [&] { return device->next_async_event().value_or(AsyncEvent{}); };
  EXPECT_EQ(next().type, IBV_EVENT_PORT_ERR);
  const AsyncEvent last = next();
  EXPECT_EQ(last.type, IBV_EVENT_PORT_ACTIVE) << "the last one is what holds";
  EXPECT_EQ(last.port, 1);
  EXPECT_EQ(next().port, 2) << "each port has its own";
  EXPECT_FALSE(device->next_async_event().has_value());
}

TEST_F(IbvFakes, ARefusedPostNeedsNoPlaceForTheRequest) {
  make_qp();
  SendWr send{};
  RecvWr receive{};
  made.qp.state = IBV_QPS_RESET;
  EXPECT_EQ(qp->post_send(&send, nullptr), EINVAL);
  EXPECT_EQ(qp->post_recv(&receive, nullptr), EINVAL);
}

// A client that gave up right after its request: both events may wait when the listener looks.
TEST_F(IbvFakes, WhatHappensToARequestIsItsOwn) {
  auto listening = std::move(*CmChannel::create(library));
  rdma_cm_id id{};
  std::unique_ptr<CmChannel> taken = std::move(*CmChannel::create(library));
  int requests = 0, others = 0;
  listening->on_event([&](const CmEvent& event) {
    if (event.request == nullptr) {
      ++others;
      return;
    }
    ++requests;
    ASSERT_TRUE(taken->adopt(event.request).ok());
  });
  made.cm_events.emplace_back(listening->verbs(), cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, id));
  made.cm_events.emplace_back(listening->verbs(), cm_event(RDMA_CM_EVENT_DISCONNECTED, id));
  listening->take_all();
  EXPECT_EQ(requests, 1);
  EXPECT_EQ(others, 0);
  const auto gone = taken->try_next();
  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(gone->type, RDMA_CM_EVENT_DISCONNECTED);
}

}  // namespace
}  // namespace braid::vhca::ibv
