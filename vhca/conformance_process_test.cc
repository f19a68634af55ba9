// The contract between two processes, one of which is killed or stopped by the kernel: what rigs
// whose ends share a process cannot show.
#include "vhca/soft/inhost/party_test.h"

namespace braid::vhca::conformance {
namespace {

using soft::inhost::Child;
using soft::inhost::Memory;
using soft::inhost::Party;
using soft::inhost::PartyOptions;
using soft::inhost::WireKind;

constexpr uint32_t kProcessBytes = 64;
constexpr uint32_t kReceives = 8;
constexpr size_t kReceiveAt = 64 * 1024;
constexpr size_t kCounterAt = 512 * 1024;

struct Way {
  const char* name;
  WireKind wire;
  Memory memory;
  /// By shared memory: what a stopped process is asked for is done all the same, and no connection
  /// is lost without the others.
  bool by_memory;
};
void PrintTo(const Way& way, std::ostream* out) {  // NOLINT: gtest's name
  *out << way.name;
}

class ConformanceProcesses : public testing::TestWithParam<Way> {
 protected:
  static PartyOptions options() {
    PartyOptions made{.memory = GetParam().memory, .wire = GetParam().wire};
    made.parameters.ack_timeout = 13;  // 34 ms, twice: a peer that is there is never lost by it
    made.parameters.retry_count = 1;
    return made;
  }
  static constexpr uint64_t kRetryNs = (4096ull << 13) * 2;

  /// Has kReceives receives, tells of those that were used when its peer goes, polls meanwhile.
  static int serve(const PartyOptions& options, const std::function<void(uint32_t)>& tell) {
    Party party(options);
    tell(party.listen());
    party.make_qp();
    for (uint32_t i = 0; i < kReceives; ++i) {
      if (party.post_recv(i, kReceiveAt + i * kProcessBytes, kProcessBytes) != 0) return 2;
    }
    if (!party.accept().ok()) return 3;
    uint32_t received = 0;
    const bool went = party.run_until([&] {
      Wc wc;
      while (party.cq->poll({&wc, 1}) == 1) received += wc.status == IBV_WC_SUCCESS ? 1 : 0;
      return party.connection->disconnected();
    });
    tell(received);
    return went ? 0 : 4;
  }

  void SetUp() override {
    client = std::make_unique<Party>(options());
    client->make_qp();
    ASSERT_TRUE(client->connect(static_cast<uint16_t>(server.number())).ok());
    client->connection->on_disconnect([this] { told = true; });
  }
  void expect(uint64_t wr_id, ibv_wc_status status) {
    const std::optional<Wc> wc = client->next();
    ASSERT_TRUE(wc.has_value()) << wr_id;
    EXPECT_EQ(wc->wr_id, wr_id);
    EXPECT_EQ(wc->status, status);
  }
  /// Lets the client move for so long; true if nothing completes.
  bool quiet_for(uint64_t duration_ns) {
    const uint64_t until_ns = client->host->now_ns() + duration_ns;
    Wc wc;
    return client->run_until([&] {
      return count_ > 0 || client->host->now_ns() >= until_ns || poll(wc);
    }) && count_ == 0;
  }
  void stop_server() {
    server.signal(SIGSTOP);
    ASSERT_TRUE(server.wait_stopped());
  }
  SendWr add_one(uint64_t wr_id, Sge& sge) {
    sge = {reinterpret_cast<uint64_t>(client->buffer.data() + kCounterAt), 8, client->mr->lkey};
    SendWr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.atomic = {.remote_addr = client->peer.address + kCounterAt,
                    .compare_add = 1,
                    .swap = 0,
                    .rkey = client->peer.rkey};
    return wr;
  }

  Child server{[](const auto& tell) { return serve(options(), tell); }};
  bool told = false;
  std::unique_ptr<Party> client;

 private:
  bool poll(Wc& wc) {
    count_ += client->cq->poll({&wc, 1});
    return count_ > 0;
  }
  int count_ = 0;
};

TEST_P(ConformanceProcesses, APeerThatIsKilledIsNoticedAndEverythingCompletes) {
  ASSERT_EQ(client->post_recv(71, 0, kProcessBytes), 0);
  for (uint32_t i = 0; i < kReceives; ++i) {
    ASSERT_EQ(client->post_send(IBV_WR_SEND, i, 0, kProcessBytes), 0);
    expect(i, IBV_WC_SUCCESS);
  }
  // Waits for a receive that never comes.
  ASSERT_EQ(client->post_send(IBV_WR_SEND, 20, 0, kProcessBytes), 0);
  ASSERT_EQ(client->post_send(IBV_WR_RDMA_WRITE, 21, 0, kProcessBytes), 0);
  ASSERT_TRUE(quiet_for(5 * base::kMillisecond));
  server.signal(SIGKILL);
  ASSERT_TRUE(client->run_until([&] { return told; }));
  EXPECT_TRUE(client->connection->disconnected());
  const std::optional<Wc> first = client->next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->wr_id, 20u);
  EXPECT_TRUE(first->status == IBV_WC_RETRY_EXC_ERR || first->status == IBV_WC_WR_FLUSH_ERR);
  expect(21, IBV_WC_WR_FLUSH_ERR);
  expect(71, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(client->qp->query().qp_state, IBV_QPS_ERR);
}

// As NICs go on: what a stopped process is asked for is done by its memory's other users, or waits
// for it. It is no loss, however long it takes.
TEST_P(ConformanceProcesses, APeerThatIsStoppedLosesNothing) {
  stop_server();
  Sge sge{};
  const SendWr add = add_one(2, sge);
  const SendWr* bad = nullptr;
  std::memset(client->buffer.data(), 0x5a, kProcessBytes);
  ASSERT_EQ(client->post_send(IBV_WR_RDMA_WRITE, 1, 0, kProcessBytes, 4096), 0);
  ASSERT_EQ(client->qp->post_send(&add, &bad), 0);
  ASSERT_EQ(client->post_send(IBV_WR_RDMA_READ, 3, 8192, kProcessBytes, 4096), 0);
  ASSERT_EQ(client->post_send(IBV_WR_SEND, 4, 0, kProcessBytes), 0);
  if (GetParam().by_memory) {
    for (uint64_t i = 1; i <= 4; ++i) expect(i, IBV_WC_SUCCESS);
    EXPECT_EQ(client->buffer[8192], std::byte{0x5a});
  }
  ASSERT_TRUE(quiet_for(5 * kRetryNs));
  server.signal(SIGCONT);
  if (!GetParam().by_memory) {
    for (uint64_t i = 1; i <= 4; ++i) expect(i, IBV_WC_SUCCESS);
    EXPECT_EQ(client->buffer[8192], std::byte{0x5a});
  }
  // All of it was executed once.
  const SendWr again = add_one(5, sge);
  ASSERT_EQ(client->qp->post_send(&again, &bad), 0);
  expect(5, IBV_WC_SUCCESS);
  uint64_t before = 0;
  std::memcpy(&before, client->buffer.data() + kCounterAt, sizeof(before));
  EXPECT_EQ(before, 1u);
  EXPECT_FALSE(told);
  client->drop();
  EXPECT_EQ(server.number(), 1u);
  EXPECT_EQ(server.wait(), 0);
}

TEST_P(ConformanceProcesses, AMessageWithoutReceiveWaitsForAPeerThatIsStopped) {
  for (uint32_t i = 0; i < kReceives; ++i) {
    ASSERT_EQ(client->post_send(IBV_WR_SEND, i, 0, kProcessBytes), 0);
    expect(i, IBV_WC_SUCCESS);
  }
  stop_server();
  ASSERT_EQ(client->post_send(IBV_WR_SEND, 20, 0, kProcessBytes), 0);
  EXPECT_TRUE(quiet_for(2 * kRetryNs));
  EXPECT_FALSE(told);
  client->drop();
  server.signal(SIGCONT);
  EXPECT_EQ(server.number(), kReceives);
  EXPECT_EQ(server.wait(), 0);
}

TEST_P(ConformanceProcesses, APeerThatIsKilledWhileItIsStoppedIsNoticed) {
  stop_server();
  ASSERT_TRUE(quiet_for(base::kMillisecond));
  server.signal(SIGKILL);
  ASSERT_TRUE(client->run_until([&] { return told; }));
  ASSERT_EQ(client->post_send(IBV_WR_RDMA_WRITE, 1, 0, kProcessBytes), 0);
  const std::optional<Wc> wc = client->next();
  ASSERT_TRUE(wc.has_value());
  EXPECT_TRUE(wc->status == IBV_WC_RETRY_EXC_ERR || wc->status == IBV_WC_WR_FLUSH_ERR);
}

// Of both ends, within a process and between two.
TEST_P(ConformanceProcesses, OnlyConnectionsBySharedMemoryShareTheirFate) {
  EXPECT_EQ(client->qp->shares_fate(), GetParam().by_memory);
  Party asks(options()), listens(options());
  ASSERT_TRUE(connect_pair(asks, listens));
  EXPECT_EQ(asks.qp->shares_fate(), GetParam().by_memory);
  EXPECT_EQ(listens.qp->shares_fate(), GetParam().by_memory);
}

INSTANTIATE_TEST_SUITE_P(
    Devices, ConformanceProcesses,
    testing::Values(Way{"inhost", WireKind::kInHost, Memory::kSegment, true},
                    Way{"inhost_foreign", WireKind::kInHost, Memory::kForeign, true},
                    Way{"tcp", WireKind::kTcp, Memory::kSegment, false},
                    Way{"host", WireKind::kHost, Memory::kSegment, true},
                    Way{"host_foreign", WireKind::kHost, Memory::kForeign, true},
                    Way{"host_tcp", WireKind::kHostTcp, Memory::kSegment, false}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace braid::vhca::conformance
