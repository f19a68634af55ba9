// What a server does with a client that breaks the protocol: the session ends, nothing else does.
#include "trs/hostile_client_rig.h"

namespace braid::trs {
namespace {

using base::Errc;
using base::kSecond;
using testing::HostileClient;
using testing::RawConnection;
using testing::StoreOp;

TEST_F(HostileClient, NonsenseInTheConnectRequestIsRejected) {
  const std::vector<std::byte> nothing;
  EXPECT_EQ(try_connect(nothing)->reject_errno, ECONNRESET);
  const std::vector<std::byte> ones(56, std::byte{0xff});
  EXPECT_EQ(try_connect(ones)->reject_errno, ECONNRESET);
  wire::ConnReq old_version = conn_req(0);
  old_version.version = uint16_t{0x0100};
  EXPECT_EQ(try_connect(wire::bytes_of(old_version))->reject_errno, ECONNRESET);
  wire::ConnReq late = conn_req(0);
  late.flags = 0;
  EXPECT_EQ(try_connect(wire::bytes_of(late))->reject_errno, ENXIO);
  EXPECT_EQ(try_connect(wire::bytes_of(conn_req(1)))->reject_errno, ECONNRESET);
}

TEST_F(HostileClient, ReservedBytesAreZeroForWhoSentNoneOfOurs) {
  handshake_as_kernel();
  auto granted = wire::parse_accept(cid0->connection->peer_private_data());
  ASSERT_TRUE(granted.ok());
  EXPECT_EQ(granted->braid_magic, 0u);
  EXPECT_EQ(granted->braid_features, 0u);
}

TEST_F(HostileClient, SameConnectionTwiceIsRejected) {
  handshake();
  EXPECT_EQ(try_connect(wire::bytes_of(conn_req(0)))->reject_errno, ECONNRESET);
  EXPECT_EQ(try_connect(wire::bytes_of(conn_req(1)))->reject_errno, ECONNRESET);
}

TEST_F(HostileClient, HalfOpenPathIsClosedAfterATime) {
  handshake();
  EXPECT_FALSE(until([&] { return cid0->lost(); }, 9 * kSecond));
  EXPECT_TRUE(until([&] { return cid0->lost() && cid1->lost(); }, 2 * kSecond));
}

TEST_F(HostileClient, WhoIsNotAdmittedYetIsAskedForNoSignOfLife) {
  handshake();
  world.run_for(5 * kSecond);
  EXPECT_FALSE(cid0->lost() || cid1->lost());
  EXPECT_TRUE(cid0->immediates().empty());
  EXPECT_TRUE(cid1->immediates().empty());
}

TEST_F(HostileClient, WhoLeavesAtAnyStepOfTheSetUpLeavesNothing) {
  enum Step { kOneConnection, kBothConnections, kAsked, kAnswered, kSteps };
  for (int step = kOneConnection; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    cid0 = try_connect(wire::bytes_of(conn_req(0)));
    ASSERT_TRUE(cid0->connection);
    if (step >= kBothConnections) cid1 = try_connect(wire::bytes_of(conn_req(1)));
    ASSERT_TRUE(step < kBothConnections || cid1->connection);
    ASSERT_EQ(server->server->statistics().sessions, 2u);
    if (step >= kAsked) send_info();
    if (step >= kAnswered) {
      ASSERT_TRUE(until([&] {
        cid0->poll();
        return cid0->completions.size() >= 2;
      }));
    }
    cid0.reset();
    cid1.reset();
    EXPECT_TRUE(until([&] { return server->server->statistics().sessions == 1; }, 12 * kSecond));
  }
  open_session();
  EXPECT_EQ(server->server->sessions().size(), 2u);
}

TEST_F(HostileClient, InfoRequestDoesNotKeepAnIncompletePathOpen) {
  cid0 = try_connect(wire::bytes_of(conn_req(0)));  // and never connection 1
  ASSERT_TRUE(cid0->connection);
  send_info();
  EXPECT_FALSE(until([&] { return cid0->lost(); }, 9 * kSecond));
  EXPECT_TRUE(until([&] { return cid0->lost(); }, 2 * kSecond));
  EXPECT_TRUE(until([&] { return server->server->sessions().size() == 1; }, 5 * kSecond));
}

TEST_F(HostileClient, RequestBeforeTheInfoExchangeEndsTheSession) {
  handshake();
  raw->write_imm(*cid1, {}, 0, 0, ImmCodec(16).encode({1, 0}));
  expect_breach("came before the session was open, or after it broke the protocol");
}

TEST_F(HostileClient, BadInfoRequestsEndTheSession) {
  handshake();
  wire::InfoReq endless;
  endless.session_name.fill('x');
  raw->send(*cid0, wire::bytes_of(endless));
  expect_breach("malformed info request");
}

TEST_F(HostileClient, InfoRequestOfTheWrongLengthEndsTheSession) {
  handshake();
  const std::vector<std::byte> bytes(300);
  raw->send(*cid0, bytes);
  expect_refusal(*cid0, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(HostileClient, NumberOfAdminPermitsIsChecked) {
  for (const uint8_t wrong : {uint8_t{0}, uint8_t{16}, uint8_t{255}}) {
    handshake();
    send_info(wrong);
    expect_breach("impossible number of admin permits");
  }
}

TEST_F(HostileClient, AdminPermitsAreUsedOnConnectionZeroOnly) {
  open_session(3);
  request(*cid0, 2, 0, {2, 0, 0, 0}, 0);
  ASSERT_TRUE(until([&] { return !cid0->immediates().empty(); }));
  EXPECT_EQ(decode_answer(cid0->immediates()[0].payload).request_id, 2u);
  request(*cid1, 2, 0, {2, 0, 0, 0}, 0);
  expect_breach("came by a connection that does not own its chunk");
}

TEST_F(HostileClient, ImmediateInPlaceOfTheInfoRequestEndsTheSession) {
  handshake();
  raw->write_imm(*cid0, {}, 0, 0, encode_imm({ImmType::kHeartbeat, 0}));
  expect_breach("message out of order");
}

TEST_F(HostileClient, HonestRawSessionWorks) {
  open_session();
  // A write of 4 bytes without a user header, which the store's server finds invalid.
  request(*cid1, 1, 0, {1, 2, 3, 4, 2, 0, 0, 0}, 4);
  ASSERT_TRUE(until([&] { return !cid1->immediates().empty(); }));
  const Imm imm = cid1->immediates()[0];
  EXPECT_EQ(imm.type, ImmType::kAnswer);
  EXPECT_EQ(decode_answer(imm.payload).request_id, 1u);
  EXPECT_EQ(decode_answer(imm.payload).sys_errno, static_cast<uint32_t>(EINVAL));
}

TEST_F(HostileClient, SecondMessageEndsTheSession) {
  open_session();
  send_info();
  expect_refusal(*cid0, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(HostileClient, OffsetBeyondTheChunkEndsTheSession) {
  open_session();
  raw->write_imm(*cid1, {}, 0, 0, encode_imm({ImmType::kRequest, 0x1ffffff}));
  expect_breach("message beyond the chunk's end");
}

TEST_F(HostileClient, ImmediateOfUnknownTypeEndsTheSession) {
  open_session();
  raw->write_imm(*cid1, {}, 0, 0, 0x70000000u);
  expect_breach("immediate of an unknown type");
}

TEST_F(HostileClient, AnswerSentToTheServerEndsTheSession) {
  open_session();
  raw->write_imm(*cid1, {}, 0, 0, encode_answer({1, 0}));
  expect_breach("immediate of an unknown type");
}

TEST_F(HostileClient, MessageAcrossTheChunksEndEndsTheSession) {
  open_session();
  request(*cid1, 1, (32 << 10) - 4, {3, 0, 0, 0}, (32 << 10) - 4);
  expect_breach("message beyond the chunk's end");
}

TEST_F(HostileClient, UserHeaderLongerThanItsOffsetEndsTheSession) {
  open_session();
  request(*cid1, 1, 0, {0, 0, 2, 0, 0xff, 0xff}, 2);
  expect_breach("user header longer than what precedes the message");
}

TEST_F(HostileClient, ReadOfMoreThanTheDataAreaEndsTheSession) {
  open_session();
  std::vector<uint8_t> read = {3, 0, 0, 0, 0, 0, 1, 0};
  read.resize(24, 0);
  read[20] = 65;  // length, of an area of 64
  request(*cid1, 1, 64, read, 64);
  expect_breach("read of more than its data area");
}

TEST_F(HostileClient, WriteOfMoreThanGrantedEndsTheSession) {
  open_session();
  request(*cid1, 1, (16 << 10) + 1, {2, 0, 0, 0}, (16 << 10) + 1);
  expect_breach("more data than the session allows");
}

TEST_F(HostileClient, SecondRequestForABusyChunkEndsTheSession) {
  open_session();
  store.hold = true;
  request(*cid1, 1, 0, {2, 0, 0, 0}, 0);
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  request(*cid1, 1, 0, {2, 0, 0, 0}, 0);
  EXPECT_TRUE(until([&] { return cid1->lost(); }, 5 * kSecond));
  EXPECT_EQ(store.closed, sessions_before) << "its first request is still running";
  store.hold = false;
  server->release();
  expect_breach("names a chunk whose request is still running");
}

TEST_F(HostileClient, ChunkOfAnotherConnectionEndsTheSession) {
  open_session();
  request(*cid0, 1, 0, {2, 0, 0, 0}, 0);
  expect_breach("came by a connection that does not own its chunk");
}

TEST_F(HostileClient, KeysReachNothingOfAnotherSession) {
  open_session();
  const auto victims_cid0 = std::move(cid0), victims_cid1 = std::move(cid1);
  const wire::ChunkRegion victims_chunk = chunks[1];
  wire::ConnReq first = conn_req(0), second = conn_req(1);
  for (wire::ConnReq* req : {&first, &second}) {
    req->sess_uuid.bytes.fill(3);
    req->paths_uuid.bytes.fill(4);
  }
  handshake(first, second);
  send_info();
  ASSERT_TRUE(until([&] {
    cid0->poll();
    return cid0->completions.size() >= 2;
  }));
  const std::byte bytes[4] = {};
  raw->write_imm(*cid1, bytes, victims_chunk.address, victims_chunk.key,
                 ImmCodec(16).encode({1, 0}));
  ASSERT_TRUE(until([&] { return cid1->lost(); }));
  const auto refused = [](const vhca::Wc& wc) { return wc.status == IBV_WC_REM_ACCESS_ERR; };
  EXPECT_TRUE(std::any_of(cid1->completions.begin(), cid1->completions.end(), refused));
  EXPECT_FALSE(victims_cid0->lost() || victims_cid1->lost());
}

TEST_F(HostileClient, WrongKeyEndsTheSession) {
  open_session();
  chunks[1].key ^= 1;
  request(*cid1, 1, 0, {2, 0, 0, 0}, 0);
  expect_refusal(*cid1);
}

TEST_F(HostileClient, WriteBehindTheLastChunkEndsTheSession) {
  open_session();
  request(*cid1, 15, (32 << 10) - 2, {2, 0, 0, 0}, 0);
  expect_refusal(*cid1);
  EXPECT_TRUE(server->server->statistics().breaches.empty()) << "the device's refusal, not TRS's";
}

TEST_F(HostileClient, BreachesAreCountedByTheirReason) {
  for (int i = 0; i < 2; ++i) {
    open_session();
    raw->write_imm(*cid1, {}, 0, 0, 0x70000000u);
    expect_breach("immediate of an unknown type");
  }
  open_session();
  request(*cid0, 1, 0, {2, 0, 0, 0}, 0);
  expect_breach("came by a connection that does not own its chunk");
  handshake();
  send_info(0);
  expect_breach("impossible number of admin permits");
  EXPECT_EQ(breaches("immediate of an unknown type"), 2u);
  EXPECT_EQ(server->server->statistics().sessions_opened, 4u);
  const std::vector<std::byte> nothing;
  EXPECT_EQ(try_connect(nothing)->reject_errno, ECONNRESET);
  EXPECT_EQ(server->server->statistics().connects_refused, 1u);
}

TEST_F(HostileClient, ReadIntoMemoryThatIsNotItsOwnEndsTheSession) {
  open_session();
  StoreOp op;
  std::vector<uint8_t> read(64 + sizeof(op) + 24, 0);
  read[64 + sizeof(op)] = 3;
  read[64 + sizeof(op) + 2] = sizeof(op);
  read[64 + sizeof(op) + 6] = 1;
  read[64 + sizeof(op) + 8 + 12] = 64;  // address and key are zero
  request(*cid1, 1, 0, read, 64 + sizeof(op));
  expect_session_ended(100 * base::kMillisecond);  // by the server's own write
}

TEST_F(HostileClient, KernelClientMayUseAnyConnectionForAnyChunk) {
  handshake_as_kernel();
  send_info(0);
  ASSERT_TRUE(until([&] {
    cid0->poll();
    return cid0->completions.size() >= 2;
  }));
  ASSERT_TRUE(wire::parse_info_rsp(raw->received(0, 24), 32 << 10, chunks).ok());
  request(*cid0, 1, 0, {2, 0, 0, 0}, 0);
  ASSERT_TRUE(until([&] { return !cid0->immediates().empty(); }));
  request(*cid1, 0, 0, {2, 0, 0, 0}, 0);
  ASSERT_TRUE(until([&] { return !cid1->immediates().empty(); }));
}

TEST_F(HostileClient, KernelClientIsAskedOnConnectionZeroOnly) {
  handshake_as_kernel();
  send_info(0);
  size_t answered = 0;
  for (int i = 0; i < 60; ++i) {
    world.run_for(base::kSecond);
    for (; answered < cid0->immediates().size(); ++answered) {
      EXPECT_EQ(cid0->immediates()[answered].type, ImmType::kHeartbeat);
      raw->write_imm(*cid0, {}, 0, 0, encode_imm({ImmType::kHeartbeatAck, 0}));
    }
    ASSERT_FALSE(cid0->lost() || cid1->lost());
  }
  EXPECT_GT(answered, 3u);
  EXPECT_TRUE(cid1->immediates().empty());
}

TEST_F(HostileClient, SilentBraidClientIsAskedOnEachConnectionAndCutOff) {
  open_session();
  expect_session_ended();
  for (RawConnection* each : {cid0.get(), cid1.get()}) {
    ASSERT_FALSE(each->immediates().empty());
    EXPECT_EQ(each->immediates()[0].type, ImmType::kHeartbeat);
  }
}

}  // namespace
}  // namespace braid::trs
