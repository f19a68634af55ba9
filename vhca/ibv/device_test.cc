// What an RDMA device and its connection manager do by themselves, on a fake of both libraries:
// what no device can be made to do when a test wants it. Needs no device.
#include "vhca/ibv/device.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <functional>
#include <semaphore>
#include <thread>

#include "base/linux_host.h"
#include "base/log.h"
#include "vhca/ibv/cm_channel.h"
#include "vhca/ibv/cq.h"
#include "vhca/ibv/qp.h"

namespace braid::vhca::ibv {
namespace {

/// A descriptor that is never readable.
int silent_fd() {
  int ends[2];
  BRAID_ASSERT(::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
  ::close(ends[1]);
  return ends[0];
}

/// What stands behind the libraries' functions. The calls are plain functions, so there is one.
struct Machine {
  // --- verbs
  ibv_device device{};
  ibv_context context{};
  ibv_qp qp{};
  ibv_cq cq{};
  std::deque<ibv_wc> completions;
  std::deque<ibv_async_event> events;
  std::vector<ibv_qp_state> modified_to;
  ibv_device_attr attr{};  // further to what all have
  std::function<void()> while_polling;
  std::function<void(ibv_qp_state)> when_modified;
  std::deque<ibv_mr> memory;
  std::deque<int> deregistrations;  // what the next ones end with; then 0
  // --- the connection manager: what the kernel holds, by channel
  std::deque<std::pair<rdma_event_channel*, rdma_cm_event>> cm_events;
  std::vector<std::pair<rdma_cm_id*, ibv_event_type>> notified;
};
Machine* machine = nullptr;

int poll_cq(ibv_cq*, int count, ibv_wc* out) {
  if (machine->while_polling) std::exchange(machine->while_polling, nullptr)();
  int given = 0;
  for (; given < count && !machine->completions.empty(); ++given) {
    out[given] = machine->completions.front();
    machine->completions.pop_front();
  }
  return given;
}
int post_recv(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) {
  return 0;
}

VerbsCalls fake_verbs() {
  VerbsCalls calls;
  calls.open_device = [](ibv_device*) { return &machine->context; };
  calls.close_device = [](ibv_context* context) { return ::close(context->async_fd); };
  calls.query_device = [](ibv_context*, ibv_device_attr* attr) {
    *attr = machine->attr;
    attr->max_cqe = attr->max_qp_wr = 1 << 14;
    attr->max_sge = 32;
    return 0;
  };
  calls.get_async_event = [](ibv_context*, ibv_async_event* event) {
    if (machine->events.empty()) return -1;
    *event = machine->events.front();
    machine->events.pop_front();
    return 0;
  };
  calls.ack_async_event = [](ibv_async_event*) {};
  calls.alloc_pd = [](ibv_context*) { return new ibv_pd{}; };
  calls.dealloc_pd = [](ibv_pd* pd) {
    delete pd;
    return 0;
  };
  calls.reg_mr = [](ibv_pd*, void* address, size_t length, int) {
    auto* const mr = &machine->memory.emplace_back();
    mr->addr = address;
    mr->length = length;
    return mr;
  };
  calls.dereg_mr = [](ibv_mr*) {
    if (machine->deregistrations.empty()) return 0;
    const int result = machine->deregistrations.front();
    machine->deregistrations.pop_front();
    return result;
  };
  calls.create_cq = [](ibv_context* context, int, void* own, ibv_comp_channel*, int) {
    machine->cq.context = context;
    machine->cq.cq_context = own;
    return &machine->cq;
  };
  calls.destroy_cq = [](ibv_cq*) { return 0; };
  calls.create_qp = [](ibv_pd*, ibv_qp_init_attr* init) {
    machine->qp.context = &machine->context;
    machine->qp.qp_context = init->qp_context;
    machine->qp.qp_num = 7;
    machine->qp.state = IBV_QPS_RTS;
    return &machine->qp;
  };
  calls.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int) {
    machine->modified_to.push_back(attr->qp_state);
    qp->state = attr->qp_state;
    if (machine->when_modified) machine->when_modified(attr->qp_state);
    return 0;
  };
  calls.query_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr*) {
    attr->qp_state = qp->state;
    return 0;
  };
  calls.destroy_qp = [](ibv_qp*) { return 0; };
  return calls;
}

CmCalls fake_cm() {
  CmCalls calls;
  calls.create_event_channel = [] { return new rdma_event_channel{silent_fd()}; };
  calls.destroy_event_channel = [](rdma_event_channel* channel) {
    ::close(channel->fd);
    delete channel;
  };
  calls.destroy_id = [](rdma_cm_id*) { return 0; };
  calls.get_cm_event = [](rdma_event_channel* channel, rdma_cm_event** event) {
    for (auto at = machine->cm_events.begin(); at != machine->cm_events.end(); ++at) {
      if (at->first != channel) continue;
      *event = new rdma_cm_event(at->second);
      machine->cm_events.erase(at);
      return 0;
    }
    return -1;
  };
  calls.ack_cm_event = [](rdma_cm_event* event) {
    delete event;
    return 0;
  };
  // As the kernel: what it holds of the id goes along.
  calls.migrate_id = [](rdma_cm_id* id, rdma_event_channel* to) {
    for (auto& [channel, event] : machine->cm_events) {
      if (event.id == id) channel = to;
    }
    id->channel = to;
    return 0;
  };
  calls.notify = [](rdma_cm_id* id, ibv_event_type type) {
    machine->notified.emplace_back(id, type);
    return 0;
  };
  return calls;
}

/// The lines of the log. Written by the host's thread until the host has gone.
class Lines final : public base::LogSink {
 public:
  void write(base::LogLevel, std::string_view, std::string_view message) override {
    text += std::string(message) + "\n";
  }
  std::string text;
};

class IbvFakes : public ::testing::Test {
 protected:
  IbvFakes() {
    machine = &made;
    base::LinuxHostOptions options;
    options.log_sink = lines;
    host = std::move(*base::create_linux_host(options));
    reactor = std::move(*base::Reactor::create(*host, {}));
    auto fake = std::make_shared<Library>();
    fake->verbs = fake_verbs();
    fake->cm = fake_cm();
    library = fake;
  }
  ~IbvFakes() override {
    qp.reset();
    cq.reset();
    pd.reset();
    device.reset();
    machine = nullptr;
  }
  void make_qp() {
    made.context.device = &made.device;
    made.context.async_fd = silent_fd();
    made.context.ops.poll_cq = &poll_cq;
    made.context.ops.post_recv = &post_recv;
    device = std::move(*IbvDevice::create(*host, *reactor, library, made.device));
    pd = std::move(*device->alloc_pd());
    cq = std::move(*device->create_cq({.capacity = 16}));
    QpOptions options;
    options.send_cq = options.recv_cq = cq.get();
    qp = std::move(*pd->create_qp(options));
  }
  void complete(uint64_t wr_id, uint32_t qp_number = 7, ibv_wc_status status = IBV_WC_SUCCESS) {
    ibv_wc wc{};
    wc.wr_id = wr_id;
    wc.qp_num = qp_number;
    wc.status = status;
    made.completions.push_back(wc);
  }
  rdma_cm_event cm_event(rdma_cm_event_type type, rdma_cm_id& id) {
    rdma_cm_event event{};
    event.event = type;
    event.id = &id;
    return event;
  }

  Machine made;
  const std::shared_ptr<Lines> lines = std::make_shared<Lines>();
  std::unique_ptr<base::Host> host;
  std::unique_ptr<base::Reactor> reactor;
  std::shared_ptr<const Library> library;
  std::unique_ptr<Device> device;
  std::unique_ptr<Pd> pd;
  std::unique_ptr<Cq> cq;
  std::unique_ptr<Qp> qp;
};

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
  qp.reset();
  cq.reset();
  pd.reset();
  device.reset();
  reactor.reset();
  host.reset();
  EXPECT_NE(lines->text.find("64 bytes"), std::string::npos) << lines->text;
  EXPECT_EQ(lines->text.find("64 bytes"), lines->text.rfind("64 bytes")) << "once";
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
