// Sessions whose ends prove a key, and what those who cannot are able to do: nothing.
#include <utility>

#include "trs/handshake.h"
#include "trs/hostile_client_rig.h"
#include "trs/multipath_rig.h"
#include "trs/test_keys.h"

namespace braid::trs::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kAuth = wire::kFeatureAuthentication;

class Authentication : public MultipathRig {
 protected:
  Authentication() {
    client_key = test_key("vm7");
    adjust_server = [this](ServerOptions& options) { options.keys = keys; };
    adjust_client = {};
  }
  /// Why no session comes about.
  std::string refusal_of(const std::function<void(ClientOptions&)>& adjust) {
    if (server == nullptr) start_server();
    start_client();
    client->open(adjust);
    EXPECT_TRUE(until([&] { return client->opened || client->open_error.has_value(); }));
    EXPECT_FALSE(client->opened);
    if (!client->open_error) return "";
    code = client->open_error->code();
    return client->open_error->message();
  }
  uint64_t refused(const char* reason) {
    const ServerStatistics statistics = server->server->statistics();
    const auto found = statistics.keys_refused.find(reason);
    return found == statistics.keys_refused.end() ? 0 : found->second;
  }
  void expect_io_works() {
    auto io = client->make_io(Direction::kWrite, 0, 4096);
    client->submit(*io);
    ASSERT_TRUE(until([&] { return io->done; }));
    EXPECT_EQ(io->status, Errc::kOk);
  }
  void expect_nothing_left_over() {
    EXPECT_TRUE(until([&] { return server->server->statistics().unproven == 0; }, 7 * kSecond));
  }

  std::shared_ptr<const KeyRing> keys = test_ring({test_key("vm7"), test_key("vm8", 2)});
  Errc code = Errc::kOk;
};

TEST_F(Authentication, BothHaveTheKey) {
  connect();
  EXPECT_NE(client->session->limits().features & kAuth, 0u);
  ASSERT_EQ(server->server->sessions().size(), 1u);
  EXPECT_EQ(server->server->sessions()[0]->key_name(), "vm7");
  expect_io_works();
  expect_nothing_left_over();
  expect_all_permits_back();
}

TEST_F(Authentication, ClientWithoutAKeyIsToldSo) {
  EXPECT_THAT(refusal_of({}), HasSubstr("lets in only clients with a key"));
  EXPECT_EQ(refused(refusal::kNoKey), 1u);
  EXPECT_EQ(store.opened, 0u);
}

TEST_F(Authentication, WrongKeyAndUnknownNameHaveClearWords) {
  EXPECT_THAT(refusal_of([](ClientOptions& options) { options.key = test_key("vm7", 9); }),
              HasSubstr("10.0.0.1:1234: the server refused our key \"vm7\""));
  EXPECT_EQ(code, Errc::kPermission);
  EXPECT_EQ(refused(refusal::kWrongKey), 1u);
  client_host->kill();
  EXPECT_THAT(refusal_of([](ClientOptions& options) { options.key = test_key("vm9"); }),
              HasSubstr("the server refused our key \"vm9\""));
  EXPECT_EQ(refused(refusal::kUnknownKey), 1u);
  EXPECT_EQ(store.opened, 0u);
  expect_nothing_left_over();
}

TEST_F(Authentication, ClientWithAKeyTakesNoServerWithout) {
  adjust_server = {};
  EXPECT_THAT(refusal_of([](ClientOptions& options) { options.key = test_key("vm7"); }),
              HasSubstr("the server asks for no key, though we have key \"vm7\""));
  EXPECT_EQ(code, Errc::kPermission);
  EXPECT_EQ(store.opened, 0u);
}

TEST_F(Authentication, ServerWithNoKeysAtAllLetsInNobody) {
  keys = test_ring({});
  EXPECT_THAT(refusal_of([](ClientOptions& options) { options.key = test_key("vm7"); }),
              HasSubstr("the server refused our key \"vm7\""));
}

TEST_F(Authentication, PathThatComesBackProvesAgain) {
  connect();
  kill_server();
  auto io = client->make_io(Direction::kWrite, 0, 4096);
  client->submit(*io);
  start_server();
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(io->status, Errc::kOk);
  EXPECT_EQ(server->server->sessions()[0]->key_name(), "vm7");
}

TEST_F(Authentication, ServerThatComesBackWithoutTheKeyIsNotBelieved) {
  connect();
  kill_server();
  keys = nullptr;
  auto io = client->make_io(Direction::kWrite, 0, 4096);
  client->submit(*io);
  start_server();
  EXPECT_FALSE(until([&] { return io->done; }, 10 * kSecond));
  EXPECT_THAT(client->session->explain(), HasSubstr("asks for no key"));
  EXPECT_EQ(store.requests, 0u);
  kill_server();
  keys = test_ring({test_key("vm7")});
  start_server();
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(io->status, Errc::kOk);
}

TEST_F(Authentication, EachPathProves) {
  adjust_client = [](ClientProcess& process) {
    process.more_paths = {process.add_port(kClientIpB, kServerIpB)};
  };
  connect_both();
  auto writes = make_writes(8);
  cut_a(true);
  submit_all(writes);
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  expect_written_once(writes);
  cut_a(false);
  ASSERT_TRUE(until_up(2));  // again, without anybody's help
  EXPECT_EQ(server->server->sessions().size(), 1u);
  EXPECT_EQ(server->server->sessions()[0]->paths(), 2u);
}

TEST_F(Authentication, RevokedKeyEndsItsSessionsAndNoOthers) {
  connect();
  auto revoked = server->server->set_keys(test_ring({test_key("vm8", 2)}));
  ASSERT_TRUE(revoked.ok());
  EXPECT_EQ(*revoked, 1u);
  ASSERT_TRUE(until([&] { return client->disconnected_calls > 0; }));
  auto io = client->make_io(Direction::kWrite, 0, 4096);
  client->submit(*io);
  EXPECT_FALSE(until([&] { return io->done; }, 10 * kSecond));
  EXPECT_THAT(client->session->explain(), HasSubstr("the server refused our key \"vm7\""));

  auto none = server->server->set_keys(keys);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, 0u);
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(io->status, Errc::kOk);

  none = server->server->set_keys(test_ring({test_key("vm7"), test_key("vm9")}));
  EXPECT_EQ(*none, 0u);
  expect_io_works();
  EXPECT_EQ(client->disconnected_calls, 1u);
  auto replaced = server->server->set_keys(test_ring({test_key("vm7", 3)}));
  EXPECT_EQ(*replaced, 1u);
}

TEST_F(Authentication, KeysAreNeverLeftOut) {
  connect();
  EXPECT_EQ(server->server->set_keys(nullptr).code(), Errc::kInvalid);
  expect_io_works();
}

TEST_F(SessionRig, ServerWithoutKeysDoesNotBeginToAsk) {
  connect();
  EXPECT_EQ(server->server->set_keys(test_ring({})).code(), Errc::kInvalid);
}

class ManyConnections : public SessionRig {
 protected:
  ManyConnections() : SessionRig(4) {
    client_key = test_key("vm7");
    adjust_server = [](ServerOptions& options) {
      options.keys = test_ring({test_key("vm7")});
      options.queue_depth = 64;
    };
  }
};

TEST_F(ManyConnections, EachConnectionProves) {
  connect();
  for (size_t i = 0; i < reactor_count; ++i) {
    auto io = client->make_io(Direction::kWrite, i * 4096, 4096);
    client->submit(*io, i);
    ASSERT_TRUE(until([&] { return io->done; }));
    EXPECT_EQ(io->status, Errc::kOk);
  }
}

// --- by hand

class UnprovenClient : public HostileClient {
 protected:
  UnprovenClient() {
    client_key = test_key("vm7");
    adjust_server = [](ServerOptions& options) {
      options.keys = test_ring({test_key("vm7"), test_key("vm8", 2), test_key("other", 3)});
    };
  }
  static wire::ConnReq auth_req(uint16_t cid = 0, uint16_t recon_cnt = 1) {
    wire::ConnReq request = conn_req(cid, kAllFeatures | kAuth);
    request.recon_cnt = recon_cnt;
    return request;
  }
  static size_t received_by(RawConnection& by) {
    by.poll();
    return static_cast<size_t>(
        std::count_if(by.completions.begin(), by.completions.end(), [](const vhca::Wc& wc) {
          return wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV;
        }));
  }
  /// The next message of the server to the connection that was made last.
  std::span<const std::byte> next_message(RawConnection& from, size_t index) {
    EXPECT_TRUE(until([&] { return received_by(from) > index; }, 3 * kSecond));
    return raw->received(index, sizeof(wire::AuthChallenge));
  }
  /// Connection 0, which proves `key`. The errno of the result.
  int prove(std::unique_ptr<RawConnection>& by, const wire::ConnReq& request, const KeyPtr& key) {
    by = try_connect(wire::bytes_of(request));
    if (!by->connection) return by->reject_errno;
    auto granted = wire::parse_accept(by->connection->peer_private_data());
    EXPECT_TRUE(granted.ok() && (granted->braid_features & kAuth) != 0);
    wire::Nonce nonce;
    nonce.fill(static_cast<uint8_t>(++nonces));
    handshake.emplace(key, request, *granted, nonce);
    raw->send(*by, wire::bytes_of(handshake->begin()));
    auto proof = handshake->received(next_message(*by, 0));
    EXPECT_TRUE(proof.ok() && proof->has_value());
    last_proof = **proof;
    raw->send(*by, wire::bytes_of(last_proof));
    auto result = handshake->received(next_message(*by, 1));
    if (!result.ok()) return handshake->rejected_errno();
    return 0;
  }
  wire::ConnReq joining(uint16_t cid = 1) {
    wire::ConnReq request = auth_req(cid);
    request.sess_uuid = handshake->secret().join(request);
    return request;
  }
  /// A session by hand, as an honest client makes it; up to its info request.
  void open_by_hand() {
    ASSERT_EQ(prove(cid0, auth_req(), test_key("vm8", 2)), 0);
    cid1 = try_connect(wire::bytes_of(joining()));
    ASSERT_TRUE(cid1->connection);
  }
  void send_proven_info(RawConnection& by, const std::function<void(std::span<std::byte>)>& spoil) {
    wire::InfoReq request;
    std::memcpy(request.session_name.data(), "by-hand", 7);
    request.braid_admin_permits = 1;
    std::vector<std::byte> message = to_vector(wire::bytes_of(request));
    const wire::Proof proof = handshake->secret().info(request);
    const auto bytes = std::as_bytes(std::span(proof));
    message.insert(message.end(), bytes.begin(), bytes.end());
    if (spoil) spoil(message);
    raw->send(by, message);
  }
  uint64_t refused(const char* reason) {
    const ServerStatistics statistics = server->server->statistics();
    const auto found = statistics.keys_refused.find(reason);
    return found == statistics.keys_refused.end() ? 0 : found->second;
  }

  std::optional<ClientHandshake> handshake;
  wire::AuthProof last_proof;
  unsigned nonces = 0;
};

TEST_F(UnprovenClient, HonestOneByHandIsLetIn) {
  open_by_hand();
  send_proven_info(*cid0, {});
  ASSERT_TRUE(until([&] { return server->server->sessions().size() == 2; }));
  EXPECT_EQ(server->server->sessions()[1]->key_name(), "vm8");
  EXPECT_EQ(server->server->statistics().unproven, 0u);
}

TEST_F(UnprovenClient, LinuxClientIsRejected) {
  wire::ConnReq linux_client = conn_req(0);
  linux_client.braid_magic = 0u;
  linux_client.braid_features = 0u;
  EXPECT_EQ(try_connect(wire::bytes_of(linux_client))->reject_errno, ENOKEY);
  EXPECT_EQ(try_connect(wire::bytes_of(conn_req(0, kAllFeatures)))->reject_errno, ENOKEY);
  EXPECT_EQ(refused(refusal::kNoKey), 2u);
}

TEST_F(UnprovenClient, RefusalIsTheLastThingThatItHears) {
  EXPECT_EQ(prove(cid0, auth_req(), test_key("vm8", 9)), EKEYREJECTED);
  raw->send(*cid0, wire::bytes_of(last_proof));  // is not even looked at
  EXPECT_TRUE(until([&] { return cid0->lost(); }, 3 * kSecond));
  EXPECT_EQ(refused(refusal::kWrongKey), 1u);
  EXPECT_EQ(server->server->sessions().size(), 1u);
}

TEST_F(UnprovenClient, ConnectionWithoutProofCannotJoin) {
  ASSERT_EQ(prove(cid0, auth_req(), test_key("vm8", 2)), 0);
  EXPECT_EQ(try_connect(wire::bytes_of(auth_req(1)))->reject_errno, EKEYREJECTED);
  wire::ConnReq wrong = joining();
  wrong.sess_uuid.bytes[15] ^= 1;
  EXPECT_EQ(try_connect(wire::bytes_of(wrong))->reject_errno, EKEYREJECTED);
  wire::ConnReq other_features = joining();
  other_features.braid_features = kAuth;
  EXPECT_EQ(try_connect(wire::bytes_of(other_features))->reject_errno, EKEYREJECTED);
  EXPECT_EQ(refused(refusal::kUnprovenConnection), 3u);

  const wire::ConnReq right = joining();
  cid1 = try_connect(wire::bytes_of(right));
  ASSERT_TRUE(cid1->connection);
  auto answer = wire::parse_accept(cid1->connection->peer_private_data());
  ASSERT_TRUE(answer.ok());
  wire::ConnRsp without = *answer;
  without.braid_proof = {};
  EXPECT_EQ(answer->braid_proof, handshake->secret().joined(auth_req(1), without));
  EXPECT_EQ(try_connect(wire::bytes_of(right))->reject_errno, ECONNRESET) << "replayed";
}

TEST_F(UnprovenClient, NothingJoinsAPathThatHasNotProved) {
  cid0 = try_connect(wire::bytes_of(auth_req()));
  ASSERT_TRUE(cid0->connection);
  EXPECT_EQ(try_connect(wire::bytes_of(auth_req(1)))->reject_errno, EKEYREJECTED);
  EXPECT_EQ(server->server->statistics().unproven, 1u);
  EXPECT_EQ(server->server->statistics().sessions, 1u);  // the honest one's
}

TEST_F(UnprovenClient, InfoRequestInPlaceOfTheProofEndsThePath) {
  cid0 = try_connect(wire::bytes_of(auth_req()));
  send_info();
  EXPECT_TRUE(until([&] { return cid0->lost(); }, 3 * kSecond));
  EXPECT_EQ(store.opened, 1u);
}

TEST_F(UnprovenClient, MessagesOfTheWrongLengthEndThePath) {
  for (const size_t length : {size_t{0}, size_t{4}, sizeof(wire::AuthBegin) - 1,
                              sizeof(wire::AuthBegin) + 1, size_t{512}}) {
    cid0 = try_connect(wire::bytes_of(auth_req()));
    ASSERT_TRUE(cid0->connection);
    raw->send(*cid0, std::vector<std::byte>(length, std::byte{34}));
    EXPECT_TRUE(until([&] { return cid0->lost(); }, 3 * kSecond)) << length;
  }
}

TEST_F(UnprovenClient, ImmediateBeforeTheProofEndsThePath) {
  cid0 = try_connect(wire::bytes_of(auth_req()));
  raw->write_imm(*cid0, {}, 0, 0, encode_imm({ImmType::kHeartbeat, 0}));
  EXPECT_TRUE(until([&] { return cid0->lost(); }, 3 * kSecond));
}

TEST_F(UnprovenClient, InfoRequestIsProvedToo) {
  for (const size_t at :
       {size_t{0}, size_t{2}, size_t{257}, size_t{258}, size_t{272}, size_t{303}}) {
    open_by_hand();
    send_proven_info(*cid0, [at](std::span<std::byte> message) { message[at] ^= std::byte{1}; });
    EXPECT_TRUE(until([&] { return cid0->lost() && cid1->lost(); }, 3 * kSecond)) << at;
    EXPECT_TRUE(until([&] { return server->server->statistics().sessions == 1; }));
  }
  EXPECT_EQ(breaches("info request without proof"), 6u);
  open_by_hand();
  send_info();  // as one without a key does
  EXPECT_TRUE(until([&] { return cid0->lost(); }, 3 * kSecond));
  EXPECT_EQ(store.opened, 1u);
}

TEST_F(UnprovenClient, HasFiveSeconds) {
  cid0 = try_connect(wire::bytes_of(auth_req()));
  ASSERT_TRUE(cid0->connection);
  EXPECT_FALSE(until([&] { return cid0->lost(); }, 4 * kSecond));
  EXPECT_TRUE(until([&] { return cid0->lost(); }, 2 * kSecond));
  EXPECT_EQ(refused(refusal::kNoProofInTime), 1u);
  EXPECT_TRUE(until([&] { return server->server->statistics().unproven == 0; }));
}

// Who has no key knows the name of somebody's session (it is on the wire), and says "I am back".
TEST_F(UnprovenClient, EndsNobodysSession) {
  open_by_hand();
  send_proven_info(*cid0, {});
  ASSERT_TRUE(until([&] { return server->server->sessions().size() == 2; }));

  auto thief = try_connect(wire::bytes_of(auth_req(0, 2)));
  ASSERT_TRUE(thief->connection);
  // Not for long: nothing here sends heartbeats.
  EXPECT_FALSE(until([&] { return cid0->lost() || cid1->lost(); }, 200 * kMillisecond));
  raw->send(*thief, std::vector<std::byte>(sizeof(wire::AuthBegin), std::byte{1}));
  EXPECT_TRUE(until([&] { return thief->lost(); }, 3 * kSecond));
  EXPECT_FALSE(cid0->lost() || cid1->lost());
  EXPECT_EQ(server->server->sessions().size(), 2u);

  // Nor does who has another key.
  const KeyPtr other = test_key("other", 3);
  EXPECT_EQ(prove(thief, auth_req(0, 3), other), EACCES);
  EXPECT_FALSE(cid0->lost() || cid1->lost());
  EXPECT_EQ(refused(refusal::kOthersSession), 1u);

  // Its owner does.
  EXPECT_EQ(prove(thief, auth_req(0, 4), test_key("vm8", 2)), 0);
  EXPECT_TRUE(until([&] { return cid0->lost() && cid1->lost(); }, 3 * kSecond));
}

TEST_F(UnprovenClient, FloodOfHalfOpenOnesIsBoundedAndHoldsUpNobody) {
  std::vector<std::unique_ptr<RawConnection>> flood;
  for (uint8_t i = 0; i < 100; ++i) {
    wire::ConnReq request = auth_req();
    request.paths_uuid.bytes.fill(i);
    flood.push_back(try_connect(wire::bytes_of(request)));
    ASSERT_LE(server->server->statistics().unproven, 65u);
    ASSERT_EQ(server->server->statistics().sessions, 1u);
  }
  EXPECT_EQ(refused(refusal::kTooManyUnproven), 36u);
  ASSERT_EQ(prove(cid0, auth_req(), test_key("vm8", 2)), 0) << "an honest one among them";
  cid0.reset();
  EXPECT_TRUE(until([&] { return server->server->statistics().unproven == 0; }, 12 * kSecond));
  EXPECT_EQ(refused(refusal::kNoProofInTime) + refused(refusal::kTooManyUnproven), 100u);
}

// Who is far away needs some of its round trips, in which a flood begins more than there may be.
TEST_F(UnprovenClient, FloodFromOneAddressDrivesOutItselfOnly) {
  constexpr const char* kFarIp = "10.0.0.4";
  auto& machine = world.add_machine("far");
  world.fabric().add_port(machine, kFarIp);
  auto& host = machine.start_process("far");
  auto program = std::make_unique<RawPeer>(host, kFarIp);
  RawPeer* const near = std::exchange(raw, program.get());
  host.run(std::move(program));
  cid0 = try_connect(wire::bytes_of(auth_req()));
  ASSERT_TRUE(cid0->connection);
  raw = near;
  std::vector<std::unique_ptr<RawConnection>> flood;
  for (uint8_t i = 0; i < 100; ++i) {
    wire::ConnReq request = auth_req();
    request.paths_uuid.bytes.fill(static_cast<uint8_t>(100 + i));
    flood.push_back(try_connect(wire::bytes_of(request)));
    ASSERT_FALSE(cid0->lost()) << "after " << int{i};
  }
  EXPECT_EQ(refused(refusal::kTooManyUnproven), 37u);
}

TEST_F(UnprovenClient, ManyUnprovenOnesUseUpNoSessions) {
  std::vector<std::unique_ptr<RawConnection>> flood;
  for (uint8_t i = 0; i < 64; ++i) {  // as many as there may be sessions
    wire::ConnReq request = auth_req();
    request.paths_uuid.bytes.fill(i);
    flood.push_back(try_connect(wire::bytes_of(request)));
  }
  open_by_hand();
  send_proven_info(*cid0, {});
  EXPECT_TRUE(until([&] { return server->server->sessions().size() == 2; }));
}

TEST_F(UnprovenClient, StopsWithItsServer) {
  cid0 = try_connect(wire::bytes_of(auth_req()));
  ASSERT_TRUE(cid0->connection);
  auto& home = server->home();
  bool stopped = false;
  home.spawn([](Server& of, bool& done) -> base::Task<void> {
    co_await of.stop();
    done = true;
  }(*server->server, stopped));
  home.wake();
  EXPECT_TRUE(until([&] { return stopped; }));
  EXPECT_TRUE(until([&] { return cid0->lost(); }));
  kill_server();
  start_server();  // for the honest one
  ASSERT_TRUE(until([&] { return client->restored_calls == 1; }));
  client->disconnected_calls = 0;
}

}  // namespace
}  // namespace braid::trs::testing
