// A client that breaks the rules, by hand, beside an honest one: for tests of what the server does.
#pragma once

#include <gmock/gmock.h>

#include <cerrno>
#include <cstring>

#include "trs/raw_peer.h"

namespace braid::trs::testing {

using base::Errc;
using base::kMillisecond;
using base::kSecond;

inline constexpr const char* kHostileIp = "10.0.0.3";

inline std::vector<std::byte> to_vector(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

class HostileClient : public SessionRig {
 protected:
  explicit HostileClient(std::vector<std::string> mutants = {}, size_t reactors = 1)
      : SessionRig(reactors, 1, std::move(mutants)) {}
  void SetUp() override {
    connect();  // an honest client, who must not notice anything
    auto& machine = world.add_machine("hostile");
    world.fabric().add_port(machine, kHostileIp);
    auto& host = machine.start_process("hostile");
    auto program = std::make_unique<RawPeer>(host, kHostileIp);
    raw = program.get();
    host.run(std::move(program));
  }
  void TearDown() override {
    auto io = client->make_io(Direction::kWrite, 0, 4096);
    client->submit(*io);
    ASSERT_TRUE(until([&] { return io->done; }));
    EXPECT_EQ(io->status, Errc::kOk);
    EXPECT_EQ(client->disconnected_calls, 0u) << "the honest client was disturbed";
    cid0.reset();
    cid1.reset();
    cid2.reset();
  }

  /// Of an older client, whose requests have no numbers.
  static constexpr uint32_t kOldFeatures = wire::kFeaturePinnedPermits | wire::kFeatureAdminPermits;

  static wire::ConnReq conn_req(uint16_t cid, uint32_t features = kOldFeatures) {
    wire::ConnReq req;
    req.cid = cid;
    req.cid_num = uint16_t{2};
    req.recon_cnt = uint16_t{1};
    req.sess_uuid.bytes.fill(1);
    req.paths_uuid.bytes.fill(2);
    req.flags = wire::kFirstConn;
    req.braid_magic = wire::kBraidMagic;
    req.braid_features = features;
    return req;
  }
  std::unique_ptr<RawConnection> try_connect(std::span<const std::byte> private_data) {
    auto connection = raw->make();
    raw->connect(*connection, to_vector(private_data));
    EXPECT_TRUE(until([&] { return connection->decided; }));
    return connection;
  }
  /// Both connections, no info exchange.
  void handshake(const wire::ConnReq& first = conn_req(0),
                 const wire::ConnReq& second = conn_req(1)) {
    cid0 = try_connect(wire::bytes_of(first));
    cid1 = try_connect(wire::bytes_of(second));
    ASSERT_TRUE(cid0->connection && cid1->connection);
  }
  void handshake_as_kernel() {
    wire::ConnReq first = conn_req(0), second = conn_req(1);
    for (wire::ConnReq* req : {&first, &second}) {
      req->braid_magic = 0u;
      req->braid_features = 0u;
    }
    handshake(first, second);
  }
  void send_info(uint8_t admin_permits = 1) {
    wire::InfoReq req;
    std::memcpy(req.session_name.data(), "hostile", 7);
    req.braid_admin_permits = admin_permits;
    raw->send(*cid0, wire::bytes_of(req));
  }
  /// A session with everything; chunks are known.
  void open_session(uint8_t admin_permits = 1, uint32_t features = kOldFeatures) {
    handshake(conn_req(0, features), conn_req(1, features));
    send_info(admin_permits);
    ASSERT_TRUE(until([&] {
      cid0->poll();
      return cid0->completions.size() >= 2;  // the SEND, and the answer
    }));
    auto announced =
        wire::parse_info_rsp(raw->received(0, cid0->completions.back().byte_len), 32 << 10, chunks);
    ASSERT_TRUE(announced.ok());
    epoch = *announced;
    sessions_before = store.closed;
  }
  /// Puts bytes at an offset of a chunk and announces a message at `imm_offset`.
  void request(RawConnection& by, uint32_t chunk, uint32_t at, std::vector<uint8_t> bytes,
               uint32_t imm_offset) {
    const uint32_t imm = ImmCodec(16).encode({chunk, imm_offset});
    raw->write_imm(by, std::as_bytes(std::span(bytes)), chunks[chunk % 16].address + at,
                   chunks[chunk % 16].key, imm);
  }
  /// Breaches of the protocol that the server has counted, by their reason.
  uint64_t breaches(const std::string& reason) {
    const ServerStatistics statistics = server->server->statistics();
    const auto found = statistics.breaches.find(reason);
    return found == statistics.breaches.end() ? 0 : found->second;
  }
  /// The session ends by a breach that was counted once, by this reason. (The end alone shows
  /// nothing: who is as silent as the raw client is cut off a second later anyway.)
  void expect_breach(const std::string& reason) {
    ++expected_breaches[reason];
    expect_session_ended();
    EXPECT_EQ(server->server->statistics().breaches, expected_breaches);
  }
  /// The device refuses what was done by a connection, and the session ends without a breach.
  void expect_refusal(RawConnection& by, ibv_wc_status status = IBV_WC_REM_ACCESS_ERR) {
    const auto told = [&] {
      by.poll();
      return std::any_of(by.completions.begin(), by.completions.end(),
                         [status](const vhca::Wc& wc) { return wc.status == status; });
    };
    EXPECT_TRUE(until(told, 100 * base::kMillisecond));
    expect_session_ended();
    EXPECT_EQ(server->server->statistics().breaches, expected_breaches);
  }
  void expect_session_ended(uint64_t within_ns = 5 * kSecond) {
    EXPECT_TRUE(until([&] { return cid0->lost() && cid1->lost(); }, within_ns));
    EXPECT_TRUE(until([&] { return server->server->sessions().size() == 1; }, within_ns));
  }

  RawPeer* raw = nullptr;
  std::unique_ptr<RawConnection> cid0, cid1;
  std::unique_ptr<RawConnection> cid2;  // of sessions with two I/O connections
  std::vector<wire::ChunkRegion> chunks = std::vector<wire::ChunkRegion>(16);
  uint64_t sessions_before = 0;
  uint32_t epoch = 0;
  decltype(ServerStatistics::breaches) expected_breaches;
};

}  // namespace braid::trs::testing
