// A peer process that is stopped (SIGSTOP) in the middle of a copy to or from our memory. What it
// may still touch is held: the flush of its QP, and the deregistration of that memory. All else
// goes on.
//
// The copy is stopped at a known place: a page of the peer's own buffer may not be accessed, and
// the handler of the fault stops the process, then opens the page. So it is the shipping code that
// stands there, and it goes on with SIGCONT.
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include "vhca/soft/device.h"
#include "vhca/soft/inhost/party_test.h"

namespace braid::vhca::soft::inhost {
namespace {

constexpr uint32_t kPage = 4096;
constexpr uint32_t kCopyBytes = 4 * kPage;
constexpr size_t kTarget = 65536;  // of the copy, in the survivor's buffer
constexpr std::byte kOld{0x11}, kNew{0x77};

std::byte* closed_page = nullptr;
void stop_in_fault(int) {
  ::kill(::getpid(), SIGSTOP);
  ::mprotect(closed_page, kPage, PROT_READ | PROT_WRITE);
}

/// The buffer's page at `offset` stops the process at its first use.
void stop_at(Party& party, size_t offset) {
  closed_page = party.buffer.data() + offset;
  struct sigaction action {};
  action.sa_handler = &stop_in_fault;
  BRAID_ASSERT(::sigaction(SIGSEGV, &action, nullptr) == 0);
  BRAID_ASSERT(::mprotect(closed_page, kPage, PROT_NONE) == 0);
}

/// Connects, waits for a message if it is `asked`, and is stopped half way through an RDMA
/// operation; goes on after SIGCONT. 0 if it was executed.
int stopping_peer(uint16_t port, ibv_wr_opcode opcode, bool asked = false) {
  Party party;
  party.make_qp();
  std::fill(party.buffer.begin(), party.buffer.end(), kNew);
  if (asked && party.post_recv(1, kTarget, 8) != 0) return 6;
  if (!party.connect(port).ok()) return 2;
  if (asked && !party.next()) return 7;
  stop_at(party, 2 * kPage);
  if (party.post_send(opcode, 1, 0, kCopyBytes, kTarget) != 0) return 3;
  const std::optional<Wc> wc = party.next();
  if (!wc) return 4;
  // The gate was open when it began, so it was executed.
  return wc->status == IBV_WC_SUCCESS ? 0 : 5;
}

/// Answers one SEND by another, for ever.
int echo_peer(uint16_t port) {
  Party party;
  party.make_qp();
  for (uint32_t i = 0; i < 8; ++i) {
    if (party.post_recv(i, kTarget + i * kPage, kPage) != 0) return 2;
  }
  if (!party.connect(port).ok()) return 3;
  for (;;) {
    const std::optional<Wc> wc = party.next();
    if (!wc) return 4;
    if (wc->status != IBV_WC_SUCCESS) return 0;
    if ((wc->opcode & IBV_WC_RECV) == 0) continue;
    if (party.post_send(IBV_WR_SEND, 0, kTarget + wc->wr_id * kPage, wc->byte_len) != 0) return 5;
    if (party.post_recv(wc->wr_id, kTarget + wc->wr_id * kPage, kPage) != 0) return 6;
  }
}

/// A QP of the survivor with its connection.
struct Kept {
  std::unique_ptr<Qp> qp;
  std::unique_ptr<Connection> connection;
};

class StoppedPeerTest : public testing::TestWithParam<ibv_wr_opcode> {
 protected:
  explicit StoppedPeerTest(const PartyOptions& options = {}) : survivor(options) {}

  /// Connects an honest peer, then one that stands in the middle of a copy when this returns.
  void connect_both() {
    const uint16_t port = survivor.listen();
    honest_process.emplace([port](const auto&) { return echo_peer(port); });
    survivor.make_qp();
    ASSERT_TRUE(survivor.accept().ok());
    honest = {std::move(survivor.qp), std::move(survivor.connection)};

    std::fill(survivor.buffer.begin(), survivor.buffer.end(), kOld);
    const ibv_wr_opcode opcode = GetParam();
    stopped_process.emplace([=](const auto&) { return stopping_peer(port, opcode); });
    survivor.make_qp();
    for (uint32_t i = 0; i < 3; ++i) ASSERT_EQ(survivor.post_recv(100 + i, 0, 8), 0);
    ASSERT_TRUE(survivor.accept().ok());
    stopped = {std::move(survivor.qp), std::move(survivor.connection)};
    ASSERT_TRUE(stopped_process->wait_stopped());
  }

  /// A message to the honest peer and back.
  void exchange() {
    std::swap(survivor.qp, honest.qp);
    ASSERT_EQ(survivor.post_recv(1, 8192, 64), 0);
    ASSERT_EQ(survivor.post_send(IBV_WR_SEND, 2, 0, 64), 0);
    for (int due = 2; due > 0; --due) {
      const std::optional<Wc> wc = survivor.next();
      ASSERT_TRUE(wc.has_value());
      ASSERT_EQ(wc->status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc->qp_num, survivor.qp->number()) << "the QP of the stopped peer reported first";
    }
    std::swap(survivor.qp, honest.qp);
  }

  void to_error(Qp& qp) {
    QpAttr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_TRUE(qp.modify(attr, IBV_QP_STATE).ok());
    ASSERT_EQ(qp.query().qp_state, IBV_QPS_ERR);
  }

  /// All that was posted on the stopped peer's QP, in order.
  void expect_flushed() {
    for (const uint64_t wr_id : {200, 100, 101, 102, 103}) {
      const std::optional<Wc> wc = survivor.next();
      ASSERT_TRUE(wc.has_value()) << "the QP never drained";
      EXPECT_EQ(wc->status, IBV_WC_WR_FLUSH_ERR);
      EXPECT_EQ(wc->wr_id, wr_id);
      EXPECT_EQ(wc->qp_num, stopped.qp->number());
    }
  }
  /// Nothing was reported before the copy's last byte was there.
  void expect_copied() const {
    const auto target = survivor.buffer.subspan(kTarget, kCopyBytes);
    const std::byte expected = GetParam() == IBV_WR_RDMA_WRITE ? kNew : kOld;
    EXPECT_EQ(std::count(target.begin(), target.end(), expected), kCopyBytes);
  }

  // --- windows
  void bind(Mw& mw, uint32_t key, Mr& mr, uint64_t address, uint64_t length) {
    SendWr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = &mw;
    wr.bind_mw.rkey = key;
    wr.bind_mw.bind_info = {.mr = &mr,
                            .addr = address,
                            .length = length,
                            .mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    const SendWr* bad = nullptr;
    ASSERT_EQ(survivor.qp->post_send(&wr, &bad), 0);
  }
  void invalidate(uint32_t key) {
    SendWr wr{};
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = key;
    const SendWr* bad = nullptr;
    ASSERT_EQ(survivor.qp->post_send(&wr, &bad), 0);
  }
  void invalidate_window() { invalidate(*survivor.told_key); }
  void expect_success(ibv_wc_opcode expected) {
    const std::optional<Wc> wc = survivor.next();
    ASSERT_TRUE(wc.has_value());
    EXPECT_EQ(wc->status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc->opcode, expected);
  }
  /// Connects a peer that stands, when this returns, in the middle of a copy to or from what the
  /// key of `window` gives it.
  void connect_by_window() {
    std::fill(survivor.buffer.begin(), survivor.buffer.end(), kOld);
    window = std::move(*survivor.pd->alloc_mw(IBV_MW_TYPE_2));
    survivor.told_key = ibv_inc_rkey(window->rkey);
    const uint16_t port = survivor.listen();
    const ibv_wr_opcode opcode = GetParam();
    stopped_process.emplace([=](const auto&) { return stopping_peer(port, opcode, true); });
    survivor.make_qp();
    ASSERT_TRUE(survivor.accept().ok());
    bind(*window, *survivor.told_key, *survivor.mr,
         reinterpret_cast<uint64_t>(survivor.buffer.data()) + kTarget, kCopyBytes);
    expect_success(IBV_WC_BIND_MW);
    ASSERT_EQ(survivor.post_send(IBV_WR_SEND, 2, 0, 8), 0);
    expect_success(IBV_WC_SEND);
    ASSERT_TRUE(stopped_process->wait_stopped());
  }
  void expect_nothing_completes() {
    Wc wc{};
    for (int i = 0; i < 5000; ++i) {
      ASSERT_EQ(survivor.cq->poll({&wc, 1}), 0) << "the peer is in the middle of its copy";
      survivor.reactor->turn();
    }
  }
  /// The buffer's registration goes; its memory when the peer has gone on.
  void expect_memory_kept() {
    bool gone = false;
    survivor.pd->dereg_mr(std::move(survivor.mr),
                          std::shared_ptr<void>(nullptr, [&gone](void*) { gone = true; }));
    for (int i = 0; i < 5000; ++i) survivor.reactor->turn();
    EXPECT_FALSE(gone);
    stopped_process->signal(SIGCONT);
    EXPECT_TRUE(survivor.run_until([&gone] { return gone; }));
    expect_copied();
  }

  Party survivor;
  std::unique_ptr<Mw> window;  // the survivor's
  Kept honest, stopped;
  std::optional<Child> honest_process, stopped_process;
};

TEST_P(StoppedPeerTest, HoldsTheFlushOfItsOwnQpUntilItGoesOn) {
  connect_both();
  to_error(*stopped.qp);
  std::swap(survivor.qp, stopped.qp);
  ASSERT_EQ(survivor.post_send(IBV_WR_RDMA_WRITE, 200, 0, 8), 0) << "posts are taken, and held";
  ASSERT_EQ(survivor.post_recv(103, 0, 8), 0);
  std::swap(survivor.qp, stopped.qp);
  for (int i = 0; i < 200; ++i) exchange();  // sees to it that nothing is reported meanwhile
  stopped_process->signal(SIGCONT);
  expect_flushed();
  expect_copied();
  EXPECT_EQ(stopped_process->wait(), 0);
}

TEST_P(StoppedPeerTest, WakesASleepingOwnerWhenItGoesOn) {
  connect_both();
  stopped.connection->disconnect();  // brings the QP to ERR as well, and hangs up
  std::swap(survivor.qp, stopped.qp);
  ASSERT_EQ(survivor.post_send(IBV_WR_RDMA_WRITE, 200, 0, 8), 0);
  ASSERT_EQ(survivor.post_recv(103, 0, 8), 0);
  std::swap(survivor.qp, stopped.qp);
  for (int i = 0; i < 20; ++i) exchange();
  stopped_process->signal(SIGCONT);
  // Asleep on the channel alone: the control reactor's clock must bring the news.
  std::vector<uint64_t> flushed;
  ASSERT_TRUE(survivor.run_until([&] {
    if (flushed.empty()) survivor.cq->arm();
    while (Cq* const cq = survivor.channel->next_event()) {
      cq->ack_events(1);
      Wc wc{};
      while (cq->poll({&wc, 1}) == 1) flushed.push_back(wc.wr_id);
    }
    return flushed.size() == 5;
  }));
  EXPECT_EQ(flushed, (std::vector<uint64_t>{200, 100, 101, 102, 103}));
  expect_copied();
}

TEST_P(StoppedPeerTest, LetsGoWhenItIsKilled) {
  connect_both();
  to_error(*stopped.qp);
  std::swap(survivor.qp, stopped.qp);
  ASSERT_EQ(survivor.post_send(IBV_WR_RDMA_WRITE, 200, 0, 8), 0);
  ASSERT_EQ(survivor.post_recv(103, 0, 8), 0);
  std::swap(survivor.qp, stopped.qp);
  for (int i = 0; i < 20; ++i) exchange();
  stopped_process->signal(SIGKILL);
  expect_flushed();
  EXPECT_EQ(survivor.buffer[kTarget + kCopyBytes - 1], kOld) << "it was not in the middle";
  EXPECT_EQ(stopped_process->wait(), 128 + SIGKILL);
}

TEST_P(StoppedPeerTest, KeepsTheMemoryThatItCopiesUntilItGoesOn) {
  connect_both();
  bool gone = false;
  survivor.pd->dereg_mr(std::move(survivor.mr),
                        std::shared_ptr<void>(nullptr, [&gone](void*) { gone = true; }));
  EXPECT_FALSE(gone);
  stopped.connection.reset();
  stopped.qp.reset();  // without being drained: what it had begun still counts
  // Other memory comes and goes, and other QPs go on.
  survivor.register_buffer();
  for (int i = 0; i < 20; ++i) {
    exchange();
    survivor.mr.reset();  // does not wait: nobody copies under this key
    survivor.register_buffer();
  }
  EXPECT_FALSE(gone);
  stopped_process->signal(SIGCONT);
  EXPECT_TRUE(survivor.run_until([&gone] { return gone; }));
  expect_copied();
}

TEST_P(StoppedPeerTest, GivesTheMemoryBackWhenItIsKilled) {
  connect_both();
  bool gone = false;
  survivor.pd->dereg_mr(std::move(survivor.mr),
                        std::shared_ptr<void>(nullptr, [&gone](void*) { gone = true; }));
  EXPECT_FALSE(gone);
  stopped_process->signal(SIGKILL);
  EXPECT_TRUE(survivor.run_until([&gone] { return gone; }));
}

TEST_P(StoppedPeerTest, HoldsTheInvalidationOfItsWindowUntilItGoesOn) {
  connect_by_window();
  invalidate_window();
  expect_nothing_completes();
  stopped_process->signal(SIGCONT);
  expect_success(IBV_WC_LOCAL_INV);
  expect_copied();
  EXPECT_EQ(stopped_process->wait(), 0);
  survivor.drop();
}

// The window went with its QP, not by an invalidation that waited.
TEST_P(StoppedPeerTest, KeepsMemoryThatItCopiesThroughAWindowOfAQpThatIsGone) {
  connect_by_window();
  survivor.drop();
  expect_memory_kept();
}

TEST_P(StoppedPeerTest, KeepsMemoryThatItCopiesThroughAWindowUnderInvalidation) {
  connect_by_window();
  invalidate_window();
  expect_memory_kept();
  survivor.drop();
}

TEST_P(StoppedPeerTest, HoldsTheEndOfItsWindowAfterTheQpIsGone) {
  connect_by_window();
  survivor.drop();
  std::atomic<bool> gone{false};
  std::thread end([&] {
    window.reset();
    gone.store(true);
  });
  for (int i = 0; i < 5000; ++i) {
    survivor.reactor->turn();
    survivor.host->yield();
  }
  EXPECT_FALSE(gone.load());
  stopped_process->signal(SIGCONT);
  end.join();
  expect_copied();
}

// A window that was invalidated in order binds no memory to strangers.
TEST_P(StoppedPeerTest, DoesNotHoldMemoryWhoseWindowWasInvalidatedBefore) {
  connect_by_window();
  auto other_memory = std::move(*survivor.host->create_segment(4096, "other"));
  auto other = std::move(*survivor.pd->reg_mr(other_memory->data(), 4096,
                                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
  const std::unique_ptr<Mw> second = std::move(*survivor.pd->alloc_mw(IBV_MW_TYPE_2));
  const uint32_t key = ibv_inc_rkey(second->rkey);
  bind(*second, key, *other, reinterpret_cast<uint64_t>(other_memory->data()), 4096);
  expect_success(IBV_WC_BIND_MW);
  invalidate(key);
  expect_success(IBV_WC_LOCAL_INV);
  bool gone = false;
  survivor.pd->dereg_mr(std::move(other),
                        std::shared_ptr<void>(nullptr, [&gone](void*) { gone = true; }));
  EXPECT_TRUE(gone);
  stopped_process->signal(SIGCONT);
  EXPECT_EQ(stopped_process->wait(), 0);
  survivor.drop();
}

class StoppedPeerOfBothWiresTest : public StoppedPeerTest {
 protected:
  StoppedPeerOfBothWiresTest() : StoppedPeerTest({.wire = WireKind::kHost}) {}
};

/// What it says of memory that it may not reach holds up nobody: it is not asked.
TEST_P(StoppedPeerOfBothWiresTest, IsNotAskedAboutLocalMemory) {
  connect_both();
  soft::Wire& wire = static_cast<SoftDevice&>(*survivor.device).wire();
  EXPECT_NE(wire.fence_peers(survivor.mr->rkey), nullptr) << "it stands in no copy";
  EXPECT_EQ(wire.fence_local(survivor.mr->rkey), nullptr);
  stopped_process->signal(SIGCONT);
}

TEST_P(StoppedPeerTest, ADeviceGoesWithoutWaitingForIt) {
  connect_both();
  bool gone = false;
  survivor.pd->dereg_mr(std::move(survivor.mr),
                        std::shared_ptr<void>(nullptr, [&gone](void*) { gone = true; }));
  to_error(*stopped.qp);
  stopped = {};
  honest = {};
  survivor.listener.reset();
  survivor.cq.reset();
  survivor.pd.reset();
  survivor.device.reset();
  EXPECT_TRUE(gone);
}

std::string operation_name(const testing::TestParamInfo<ibv_wr_opcode>& each) {
  return each.param == IBV_WR_RDMA_WRITE ? "Write" : "Read";
}
INSTANTIATE_TEST_SUITE_P(Operation, StoppedPeerTest,
                         testing::Values(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ), operation_name);
INSTANTIATE_TEST_SUITE_P(Operation, StoppedPeerOfBothWiresTest,
                         testing::Values(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ), operation_name);

}  // namespace
}  // namespace braid::vhca::soft::inhost
