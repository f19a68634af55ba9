// A client without numbers that gives a path up while its requests are at the disk, or their
// answers still wait there for send slots, and sends them again by another path: each is done again
// and answered there.
//
// For answers that wait the first path has connection 1 full of those that nobody confirms: three
// work requests each (data, invalidation, answer), so that less than twelve fit.
#include "base/sim_charge.h"
#include "trs/kernel_client_rig.h"

namespace braid::trs {
namespace {

using base::kMillisecond;
using testing::KernelClient;
using testing::kHostileIp;
using testing::kServerIp;
using testing::RawConnection;
using testing::RawPeer;

constexpr uint32_t kReads = 12;

class Deferred : public KernelClient {
 protected:
  /// Of the same client, by a port of its own.
  struct Other {
    RawPeer* peer = nullptr;
    std::unique_ptr<RawConnection> cid0, cid1;
    std::vector<wire::ChunkRegion> chunks = std::vector<wire::ChunkRegion>(kDepth);
  };
  using KernelClient::KernelClient;
  void SetUp() override {
    KernelClient::SetUp();
    open(other, "10.0.0.4", 3);
  }
  void TearDown() override {
    for (Other* path : {&other, &third}) {
      path->cid0.reset();
      path->cid1.reset();
    }
    KernelClient::TearDown();
  }
  void open(Other& path, const char* ip, uint8_t name) {
    auto& machine = world.add_machine(std::string("hostile's port ") + ip);
    world.fabric().add_port(machine, ip);
    auto& host = machine.start_process("hostile");
    auto program = std::make_unique<RawPeer>(host, ip);
    path.peer = program.get();
    host.run(std::move(program));
    path.cid0 = connect(*path.peer, kernel_conn_req(0, name));
    path.cid1 = connect(*path.peer, kernel_conn_req(1, name));
    ASSERT_TRUE(path.cid0->connection && path.cid1->connection);
    wire::InfoReq req;
    std::memcpy(req.session_name.data(), "hostile", 7);
    req.braid_admin_permits = its_features == 0 ? 0 : 1;
    path.peer->send(*path.cid0, wire::bytes_of(req));
    ASSERT_TRUE(until([&] {
      path.cid0->poll();
      return path.cid0->completions.size() >= 2;
    }));
    ASSERT_TRUE(wire::parse_info_rsp(path.peer->received(0, 24), 32 << 10, path.chunks).ok());
  }
  std::unique_ptr<RawConnection> connect(RawPeer& peer, const wire::ConnReq& request) {
    auto connection = peer.make();
    peer.connect(*connection, testing::to_vector(wire::bytes_of(request)));
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
    for (uint32_t i = 0; i < kReads; ++i) read_by(other, first_chunk + i);
  }
  void read_by(Other& path, uint32_t chunk) {
    const auto bytes = read_request(*path.peer, chunk, path.peer->mr->rkey, 0);
    const uint32_t at = kDataBytes;
    const auto before = sends_done(path);
    path.peer->write_imm(*path.cid1, std::as_bytes(std::span(bytes)),
                         path.chunks[chunk].address + at, path.chunks[chunk].key,
                         ImmCodec(kDepth).encode({chunk, at + uint32_t{sizeof(testing::StoreOp)}}));
    // One by one: all are sent from the same memory.
    ASSERT_TRUE(until([&] { return sends_done(path) == before + 1; }));
  }
  static ptrdiff_t sends_done(Other& path) {
    path.cid1->poll();
    return std::count_if(path.cid1->completions.begin(), path.cid1->completions.end(),
                         [](const vhca::Wc& wc) { return wc.opcode == IBV_WC_RDMA_WRITE; });
  }
  static ptrdiff_t answers(Other& path) {
    path.cid1->poll();
    const auto all = path.cid1->immediates();  // heartbeats as well
    return std::count_if(all.begin(), all.end(),
                         [](const Imm& imm) { return imm.type == ImmType::kAnswer; });
  }
  void expect_answered_by_other() {
    // Sooner than silence could end the path, or the session.
    EXPECT_TRUE(until([&] { return answers(other) == kReads; }, 500 * kMillisecond))
        << answers(other) << " of " << kReads;
    for (uint32_t i = 0; i < kReads; ++i) EXPECT_TRUE(data_came(*other.peer, first_chunk + i)) << i;
    EXPECT_EQ(store.requests, 2 * kReads);
    EXPECT_TRUE(server->server->statistics().breaches.empty());
  }

  uint32_t first_chunk = 1;
  Other other, third;
};

TEST_F(Deferred, AnswersThatWaitWhenTheirPathEndsMakeRoomForWhatCameAgain) {
  stall_answers();
  read_by_other();
  expect_answered_by_other();
}

TEST_F(Deferred, ARequestThatIsGivenUpByTwoPathsIsAnsweredByTheThird) {
  open(third, "10.0.0.5", 5);
  store.hold = true;
  read(first_chunk, bind(first_chunk), wire::kNeedInvalidate);
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  read_by(other, first_chunk);
  read_by(third, first_chunk);
  store.hold = false;
  server->release();
  EXPECT_TRUE(until([&] { return answers(third) == 1; }, 500 * kMillisecond));
  EXPECT_TRUE(data_came(*third.peer, first_chunk));
  EXPECT_EQ(answers(other), 0);
  EXPECT_EQ(store.requests, 2u) << "what came by the second path has not begun";
  EXPECT_TRUE(server->server->statistics().breaches.empty());
}

/// Its chunks are guarded by copies, of which a turn does a part: more come than that.
class DeferredCopies : public Deferred {
 protected:
  static constexpr uint32_t kWriteBytes = 16 << 10;
  static constexpr uint32_t kWrites = 4;  // what a turn takes
  DeferredCopies() {
    adjust_server = [](ServerOptions& options) { options.guard = ChunkGuard::kCopy; };
  }
  static uint64_t store_offset(uint32_t chunk) { return uint64_t{chunk} * kWriteBytes; }
  /// Of a store's bytes that nobody else writes.
  void write_by(RawPeer& peer, RawConnection& by, const wire::ChunkRegion& to, uint32_t chunk) {
    testing::StoreOp op;
    op.offset = store_offset(chunk);
    wire::WriteMsg message;
    message.usr_len = uint16_t{sizeof(op)};
    std::vector<std::byte> bytes(kWriteBytes + sizeof(op) + sizeof(message));
    fill(std::span(bytes).first(kWriteBytes), chunk);
    std::memcpy(bytes.data() + kWriteBytes, &op, sizeof(op));
    std::memcpy(bytes.data() + kWriteBytes + sizeof(op), &message, sizeof(message));
    const auto sent = [&by] {
      by.poll();
      return std::count_if(by.completions.begin(), by.completions.end(),
                           [](const vhca::Wc& wc) { return wc.opcode == IBV_WC_RDMA_WRITE; });
    };
    const auto before = sent();
    peer.write_imm(by, bytes, to.address, to.key,
                   ImmCodec(kDepth).encode({chunk, kWriteBytes + uint32_t{sizeof(op)}}));
    ASSERT_TRUE(until([&] { return sent() == before + 1; }));
  }
  uint64_t begun(uint32_t chunk) const {
    const auto& log = store.write_log;
    return static_cast<uint64_t>(std::count(log.begin(), log.end(), store_offset(chunk)));
  }
};

TEST_F(DeferredCopies, WriteThatComesAgainBetweenTwoPartsBeginsByTheOtherPathOnly) {
  base::sim::charge_turns(server->home(), [] { return 2 * kMillisecond; });
  for (uint32_t chunk = 1; chunk <= kWrites; ++chunk) write_by(*raw, *cid1, chunks[chunk], chunk);
  ASSERT_TRUE(until([&] { return !store.write_log.empty(); }));
  ASSERT_EQ(begun(kWrites), 0u) << "it was copied at once";
  write_by(*other.peer, *other.cid1, other.chunks[kWrites], kWrites);
  ASSERT_TRUE(until([&] { return answers(other) == 1; }, 500 * kMillisecond));
  EXPECT_EQ(begun(kWrites), 1u);
  const auto there = std::span(store.bytes).subspan(store_offset(kWrites), kWriteBytes);
  EXPECT_TRUE(filled(there, kWrites));
  EXPECT_TRUE(server->server->statistics().breaches.empty());
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
