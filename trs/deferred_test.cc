// A client without numbers that gives a path up while its answers still wait there for send slots,
// and sends the same requests by another path: each is done again and answered there.
//
// The first path has connection 1 full of answers that nobody confirms: three work requests each
// (data, invalidation, answer), so that less than twelve fit.
#include "trs/kernel_client_rig.h"

namespace braid::trs {
namespace {

using base::kMillisecond;
using testing::KernelClient;
using testing::kHostileIp;
using testing::kServerIp;
using testing::RawConnection;
using testing::RawPeer;

constexpr const char* kOtherIp = "10.0.0.4";  // of the same client
constexpr uint32_t kReads = 12;

class Deferred : public KernelClient {
 protected:
  using KernelClient::KernelClient;
  void SetUp() override {
    KernelClient::SetUp();
    auto& machine = world.add_machine("hostile's other port");
    world.fabric().add_port(machine, kOtherIp);
    auto& host = machine.start_process("hostile");
    auto program = std::make_unique<RawPeer>(host, kOtherIp);
    other = program.get();
    host.run(std::move(program));
    open_other();
  }
  void TearDown() override {
    other0.reset();
    other1.reset();
    KernelClient::TearDown();
  }
  void open_other() {
    other0 = connect_other(kernel_conn_req(0, 3));
    other1 = connect_other(kernel_conn_req(1, 3));
    ASSERT_TRUE(other0->connection && other1->connection);
    wire::InfoReq req;
    std::memcpy(req.session_name.data(), "hostile", 7);
    req.braid_admin_permits = its_features == 0 ? 0 : 1;
    other->send(*other0, wire::bytes_of(req));
    ASSERT_TRUE(until([&] {
      other0->poll();
      return other0->completions.size() >= 2;
    }));
    ASSERT_TRUE(wire::parse_info_rsp(other->received(0, 24), 32 << 10, other_chunks).ok());
  }
  std::unique_ptr<RawConnection> connect_other(const wire::ConnReq& request) {
    auto connection = other->make();
    other->connect(*connection, testing::to_vector(wire::bytes_of(request)));
    EXPECT_TRUE(until([&] { return connection->decided; }));
    return connection;
  }
  /// All reads by the first path are answered at the server, and some answers wait there.
  void stall_answers() {
    store.hold = true;
    for (uint32_t i = 0; i < kReads; ++i) {
      read(first_chunk + i, bind(first_chunk + i), wire::kNeedInvalidate);
      ASSERT_TRUE(until([&] { return server->held.size() == i + 1; }));
    }
    world.fabric().set_black_hole(kServerIp, kHostileIp, true);
    store.hold = false;
    server->release();
  }
  void read_by_other() {
    for (uint32_t i = 0; i < kReads; ++i) {
      const uint32_t chunk = first_chunk + i;
      const auto bytes = read_request(*other, chunk, other->mr->rkey, 0);
      const uint32_t at = kDataBytes;
      other->write_imm(*other1, std::as_bytes(std::span(bytes)), other_chunks[chunk].address + at,
                       other_chunks[chunk].key,
                       ImmCodec(kDepth).encode({chunk, at + uint32_t{sizeof(testing::StoreOp)}}));
      // One by one: all are sent from the same memory.
      ASSERT_TRUE(until([&] { return sends_done() == i + 1; }));
    }
  }
  size_t sends_done() {
    other1->poll();
    return static_cast<size_t>(
        std::count_if(other1->completions.begin(), other1->completions.end(),
                      [](const vhca::Wc& wc) { return wc.opcode == IBV_WC_RDMA_WRITE; }));
  }
  ptrdiff_t answers() {
    const auto all = other1->immediates();  // heartbeats as well
    return std::count_if(all.begin(), all.end(),
                         [](const Imm& imm) { return imm.type == ImmType::kAnswer; });
  }
  void expect_answered_by_other() {
    // Sooner than silence could end the path, or the session.
    EXPECT_TRUE(until([&] { return answers() == kReads; }, 500 * kMillisecond))
        << answers() << " of " << kReads;
    for (uint32_t i = 0; i < kReads; ++i) EXPECT_TRUE(data_came(*other, first_chunk + i)) << i;
    EXPECT_EQ(store.requests, 2 * kReads);
    EXPECT_TRUE(server->server->statistics().breaches.empty());
  }

  uint32_t first_chunk = 1;
  RawPeer* other = nullptr;
  std::unique_ptr<RawConnection> other0, other1;
  std::vector<wire::ChunkRegion> other_chunks = std::vector<wire::ChunkRegion>(kDepth);
};

TEST_F(Deferred, AnswersThatWaitWhenTheirPathEndsMakeRoomForWhatCameAgain) {
  stall_answers();
  read_by_other();
  expect_answered_by_other();
}

/// An older Braid's connection 1 is served by another reactor than the one that ends paths.
class DeferredBesideHome : public Deferred {
 protected:
  DeferredBesideHome() : Deferred(3, kOldFeatures) {}
};

TEST_F(DeferredBesideHome, AnswersThatGetASlotBeforeTheirPathEndsMakeRoomForWhatCameAgain) {
  stall_answers();
  server_host->hang(server->home());  // the end of the first path has to wait
  read_by_other();
  world.fabric().set_black_hole(kServerIp, kHostileIp, false);
  expect_answered_by_other();
  server_host->unhang(server->home());
}

}  // namespace
}  // namespace braid::trs
