// The proof of a key, without a wire: the golden bytes, and each attack on what is said.
#include "trs/handshake.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "trs/test_keys.h"

namespace braid::trs {
namespace {

using base::Errc;
using ::testing::HasSubstr;
using testing::test_key;
using testing::test_ring;
using Kind = ServerHandshake::Step::Kind;

wire::Nonce nonce(uint8_t value) {
  wire::Nonce bytes;
  bytes.fill(value);
  return bytes;
}

wire::ConnReq conn_req() {
  wire::ConnReq request;
  request.cid_num = uint16_t{3};
  request.recon_cnt = uint16_t{1};
  request.sess_uuid.bytes.fill(0xaa);
  request.paths_uuid.bytes.fill(0xbb);
  request.flags = wire::kFirstConn;
  request.braid_magic = wire::kBraidMagic;
  request.braid_features = 0x1fu;
  return request;
}

wire::ConnRsp conn_rsp() {
  wire::ConnRsp answer;
  answer.queue_depth = uint16_t{16};
  answer.max_io_size = 16u << 10;
  answer.max_hdr_size = 16u << 10;
  answer.braid_magic = wire::kBraidMagic;
  answer.braid_features = 0x1fu;
  return answer;
}

std::string hex(std::span<const uint8_t> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

/// Both ends, and what each heard of the connect.
struct Ends {
  KeyPtr client_key = test_key("vm7");
  std::shared_ptr<const KeyRing> keys = test_ring({test_key("vm7"), test_key("vm8", 2)});
  wire::ConnReq sent = conn_req(), heard = conn_req();
  wire::ConnRsp answered = conn_rsp(), understood = conn_rsp();
  std::optional<ClientHandshake> client;
  std::optional<ServerHandshake> server;

  void start(uint8_t client_nonce = 1, uint8_t server_nonce = 2) {
    client.emplace(client_key, sent, understood, nonce(client_nonce));
    server.emplace(keys, heard, answered, nonce(server_nonce));
  }
  /// What the client proves to a server that has challenged it.
  wire::AuthProof challenged() {
    EXPECT_EQ(server->received(wire::bytes_of(client->begin())).kind, Kind::kChallenge);
    auto proof = client->received(wire::bytes_of(server->challenge()));
    EXPECT_TRUE(proof.ok() && proof->has_value());
    return **proof;
  }
  ServerHandshake::Step prove() { return server->received(wire::bytes_of(challenged())); }
};

TEST(Handshake, BothProveAndShareASecret) {
  Ends ends;
  ends.start();
  ASSERT_EQ(ends.prove().kind, Kind::kProven);
  EXPECT_EQ(ends.server->key()->name(), "vm7");
  EXPECT_FALSE(ends.client->proven());
  auto last = ends.client->received(wire::bytes_of(ends.server->welcome()));
  ASSERT_TRUE(last.ok()) << last.error().message();
  EXPECT_FALSE(last->has_value());
  EXPECT_TRUE(ends.client->proven());
  wire::ConnReq join = conn_req();
  join.cid = uint16_t{1};
  EXPECT_EQ(ends.client->secret().join(join), ends.server->secret().join(join));
  EXPECT_EQ(ends.client->secret().joined(join, conn_rsp()),
            ends.server->secret().joined(join, conn_rsp()));
}

// Another implementation (Python's hmac and struct) made these from docs/authentication.md.
TEST(Handshake, ProofsHaveTheirGoldenBytes) {
  Ends ends;
  ends.start();
  const wire::AuthProof proof = ends.challenged();
  EXPECT_EQ(hex(proof.proof), "8719c53d251c23f364204e628bc6ff0a306d7eedfa8e049e8a930bcce22854b7");
  ASSERT_EQ(ends.server->received(wire::bytes_of(proof)).kind, Kind::kProven);
  EXPECT_EQ(hex(ends.server->welcome().proof),
            "75d700d3382ea06b81d8c77eaa73a24aa491781185aebf5fc070634e765246bf");
  wire::ConnReq join = conn_req();
  join.cid = uint16_t{1};
  EXPECT_EQ(hex(ends.server->secret().join(join).bytes), "cf3c5a77eccd786d7b627aaa1210be30");
  EXPECT_EQ(hex(ends.server->secret().joined(join, conn_rsp()).bytes),
            "4797eac6fe7df1d77b15f6170f84df88");
  wire::InfoReq info;
  std::memcpy(info.session_name.data(), "client", 6);
  EXPECT_EQ(hex(ends.server->secret().info(info)),
            "696a06bec3e4290a03c710b8d065b879e79b3b715ef94f724621496b80ae2d39");
  const wire::InfoRsp told;
  EXPECT_EQ(hex(ends.server->secret().told(info, wire::bytes_of(told))),
            "48fce6a26234800fe8b58415e06cdbe776ad4b16a3bffcca0b9b129c1ee9ffe5");
}

TEST(Handshake, WrongKeyIsRefusedAndToldApartAtTheServerOnly) {
  Ends wrong;
  wrong.client_key = test_key("vm7", 9);
  wrong.start();
  const auto step = wrong.prove();
  EXPECT_EQ(step.kind, Kind::kRefused);
  EXPECT_STREQ(step.reason, refusal::kWrongKey);
  EXPECT_THAT(step.detail, HasSubstr("\"vm7\""));

  Ends unknown;
  unknown.client_key = test_key("vm9");
  unknown.start();
  const auto other = unknown.prove();
  EXPECT_EQ(other.kind, Kind::kRefused);
  EXPECT_STREQ(other.reason, refusal::kUnknownKey);
  EXPECT_THAT(other.detail, HasSubstr("\"vm9\""));

  // A key of somebody else's name.
  Ends borrowed;
  borrowed.client_key = test_key("vm8", 1);
  borrowed.start();
  EXPECT_STREQ(borrowed.prove().reason, refusal::kWrongKey);

  const wire::AuthResult told = ServerHandshake::refuse(EKEYREJECTED);
  auto heard = wrong.client->received(wire::bytes_of(told));
  ASSERT_FALSE(heard.ok());
  EXPECT_EQ(heard.code(), Errc::kRefused);
  EXPECT_EQ(wrong.client->rejected_errno(), EKEYREJECTED);
}

TEST(Handshake, ServerWithoutTheKeyIsFoundOut) {
  Ends ends;
  ends.keys = test_ring({test_key("vm7", 9)});  // and a server that lets in everybody
  ends.start();
  (void)ends.challenged();
  wire::AuthResult forged;
  forged.proof.fill(7);
  auto heard = ends.client->received(wire::bytes_of(forged));
  ASSERT_FALSE(heard.ok());
  EXPECT_EQ(heard.code(), Errc::kPermission);
  EXPECT_THAT(heard.error().message(), HasSubstr("\"vm7\""));
  EXPECT_FALSE(ends.client->proven());
}

TEST(Handshake, ClientsProofReflectedIsNoServers) {
  Ends ends;
  ends.start();
  wire::AuthResult reflected;
  reflected.proof = ends.challenged().proof;
  EXPECT_EQ(ends.client->received(wire::bytes_of(reflected)).code(), Errc::kPermission);
}

TEST(Handshake, ClientsNonceReflectedAsAChallengeProvesNothing) {
  Ends ends;
  ends.start();
  wire::AuthChallenge reflected;
  reflected.nonce = ends.client->begin().nonce;
  auto proof = ends.client->received(wire::bytes_of(reflected));
  ASSERT_TRUE(proof.ok());
  wire::AuthResult back;
  back.proof = (*proof)->proof;
  EXPECT_EQ(ends.client->received(wire::bytes_of(back)).code(), Errc::kPermission);
}

TEST(Handshake, RecordedProofIsRefusedByTheNextChallenge) {
  Ends first;
  first.start(1, 2);
  const wire::AuthProof recorded = first.challenged();
  ASSERT_EQ(first.server->received(wire::bytes_of(recorded)).kind, Kind::kProven);

  ServerHandshake later(first.keys, conn_req(), conn_rsp(), nonce(3));
  EXPECT_EQ(later.received(wire::bytes_of(first.client->begin())).kind, Kind::kChallenge);
  EXPECT_STREQ(later.received(wire::bytes_of(recorded)).reason, refusal::kWrongKey);

  // The same to a client: a recorded server has answered another nonce.
  ClientHandshake next(first.client_key, conn_req(), conn_rsp(), nonce(4));
  ASSERT_TRUE(next.received(wire::bytes_of(first.server->challenge())).ok());
  EXPECT_EQ(next.received(wire::bytes_of(first.server->welcome())).code(), Errc::kPermission);
}

// Each byte of what the set-up says is bound: on its way from one end to the other one bit of it is
// changed, and the other end's own rules may well let it pass.
TEST(Handshake, NothingOfTheConnectCanBeChanged) {
  for (size_t i = sizeof(wire::ConnReq::owned_by_cm); i < sizeof(wire::ConnReq); ++i) {
    Ends ends;
    reinterpret_cast<uint8_t*>(&ends.heard)[i] ^= 1;
    ends.start();
    EXPECT_EQ(ends.prove().kind, Kind::kRefused) << "byte " << i << " of the request";
  }
  for (size_t i = 0; i < sizeof(wire::ConnRsp); ++i) {
    Ends ends;
    reinterpret_cast<uint8_t*>(&ends.understood)[i] ^= 1;
    ends.start();
    EXPECT_EQ(ends.prove().kind, Kind::kRefused) << "byte " << i << " of the answer";
  }
  Ends managed;  // what the connection manager may change
  managed.heard.owned_by_cm = {7, 4};
  managed.start();
  EXPECT_EQ(managed.prove().kind, Kind::kProven);
}

TEST(Handshake, NothingOfTheProofCanBeChanged) {
  for (size_t i = 0; i < sizeof(wire::AuthBegin); ++i) {
    Ends ends;
    ends.start();
    wire::AuthBegin begin = ends.client->begin();
    reinterpret_cast<uint8_t*>(&begin)[i] ^= 1;
    if (ends.server->received(wire::bytes_of(begin)).kind == Kind::kBreach) continue;
    auto proof = ends.client->received(wire::bytes_of(ends.server->challenge()));
    EXPECT_EQ(ends.server->received(wire::bytes_of(**proof)).kind, Kind::kRefused) << i;
  }
  for (size_t i = 0; i < sizeof(wire::AuthChallenge); ++i) {
    Ends ends;
    ends.start();
    (void)ends.server->received(wire::bytes_of(ends.client->begin()));
    wire::AuthChallenge challenge = ends.server->challenge();
    reinterpret_cast<uint8_t*>(&challenge)[i] ^= 1;
    auto proof = ends.client->received(wire::bytes_of(challenge));
    if (!proof.ok()) continue;
    EXPECT_EQ(ends.server->received(wire::bytes_of(**proof)).kind, Kind::kRefused) << i;
  }
  for (size_t i = 0; i < sizeof(wire::AuthProof); ++i) {
    Ends ends;
    ends.start();
    wire::AuthProof proof = ends.challenged();
    reinterpret_cast<uint8_t*>(&proof)[i] ^= 1;
    EXPECT_NE(ends.server->received(wire::bytes_of(proof)).kind, Kind::kProven) << i;
  }
  for (size_t i = 0; i < sizeof(wire::AuthResult); ++i) {
    Ends ends;
    ends.start();
    ASSERT_EQ(ends.prove().kind, Kind::kProven);
    wire::AuthResult result = ends.server->welcome();
    reinterpret_cast<uint8_t*>(&result)[i] ^= 1;
    EXPECT_FALSE(ends.client->received(wire::bytes_of(result)).ok()) << i;
    EXPECT_FALSE(ends.client->proven()) << i;
  }
}

TEST(Handshake, MessagesThatAreCutLongOrOutOfTurnEndIt) {
  const auto bytes = [](const auto& message) {
    const auto view = wire::bytes_of(message);
    return std::vector<std::byte>(view.begin(), view.end());
  };
  for (const int change : {-1, 1}) {
    Ends ends;
    ends.start();
    auto begin = bytes(ends.client->begin());
    begin.resize(begin.size() + static_cast<size_t>(change));
    EXPECT_EQ(ends.server->received(begin).kind, Kind::kBreach);
    // And nothing works from then on.
    EXPECT_EQ(ends.server->received(wire::bytes_of(ends.client->begin())).kind, Kind::kBreach);
  }
  Ends ends;
  ends.start();
  EXPECT_EQ(ends.server->received({}).kind, Kind::kBreach);

  Ends twice;
  twice.start();
  (void)twice.server->received(wire::bytes_of(twice.client->begin()));
  EXPECT_EQ(twice.server->received(wire::bytes_of(twice.client->begin())).kind, Kind::kBreach);

  Ends early;  // a result in place of the challenge, and a challenge after one
  early.start();
  wire::AuthResult result;
  EXPECT_EQ(early.client->received(wire::bytes_of(result)).code(), Errc::kProtocol);
  EXPECT_EQ(early.client->received(wire::bytes_of(early.server->challenge())).code(),
            Errc::kProtocol);

  Ends done;
  done.start();
  ASSERT_EQ(done.prove().kind, Kind::kProven);
  EXPECT_EQ(done.server->received(wire::bytes_of(done.client->begin())).kind, Kind::kBreach);
}

TEST(Handshake, OneGuessPerChallenge) {
  Ends ends;
  ends.client_key = test_key("vm7", 9);
  ends.start();
  EXPECT_EQ(ends.prove().kind, Kind::kRefused);
  wire::AuthProof again;
  EXPECT_EQ(ends.server->received(wire::bytes_of(again)).kind, Kind::kBreach);
}

TEST(Handshake, JoinsAreBoundToTheirConnectionAndPath) {
  Ends ends;
  ends.start();
  ASSERT_EQ(ends.prove().kind, Kind::kProven);
  const PathSecret& secret = ends.server->secret();
  wire::ConnReq join = conn_req();
  join.cid = uint16_t{1};
  const wire::Uuid proof = secret.join(join);
  for (size_t i = sizeof(join.owned_by_cm); i < sizeof(join); ++i) {
    wire::ConnReq other = join;
    reinterpret_cast<uint8_t*>(&other)[i] ^= 1;
    EXPECT_NE(secret.join(other), proof) << i;
  }
  Ends next;  // the same client, path and key, another time
  next.start(5, 6);
  ASSERT_EQ(next.prove().kind, Kind::kProven);
  EXPECT_NE(next.server->secret().join(join), proof);
}

TEST(Handshake, AlgorithmAndKeyNameAreChecked) {
  const std::function<void(wire::AuthBegin&)> wrongs[] = {
      [](wire::AuthBegin& begin) { begin.algorithm = uint16_t{2}; },
      [](wire::AuthBegin& begin) { begin.key_name = {}; },
      [](wire::AuthBegin& begin) { begin.key_name.fill('x'); },
      [](wire::AuthBegin& begin) {
        begin.key_name = {'a', 0, 'b'};
      },
      [](wire::AuthBegin& begin) {
        begin.key_name = {'a', '\n'};
      },
      [](wire::AuthBegin& begin) {
        begin.key_name = {'-', 'a'};
      },
  };
  for (const auto& wrong : wrongs) {
    Ends ends;
    ends.start();
    wire::AuthBegin begin = ends.client->begin();
    wrong(begin);
    EXPECT_EQ(ends.server->received(wire::bytes_of(begin)).kind, Kind::kBreach);
  }
}

}  // namespace
}  // namespace braid::trs
