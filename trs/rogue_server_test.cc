// A client with a key at a server that has none and says what it likes, or at one whose connections
// are not all its own.
#include <gmock/gmock.h>

#include "trs/handshake.h"
#include "trs/raw_peer.h"
#include "trs/test_keys.h"

namespace braid::trs::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kRogueAuth = wire::kFeatureAuthentication;

class RogueServer final : public RawPeer {
 public:
  explicit RogueServer(base::sim::SimHost& process) : RawPeer(process, kServerIp) {
    answer.queue_depth = uint16_t{16};
    answer.max_io_size = 16u << 10;
    answer.max_hdr_size = 16u << 10;
    answer.braid_magic = wire::kBraidMagic;
    answer.braid_features = kAllFeatures | kRogueAuth;
    listener = std::move(*device->listen(home(), {kServerIp, kPort}, 16));
    task = accept_loop();
    task.start();
  }
  wire::ConnRsp answer;
  std::vector<std::unique_ptr<RawConnection>> accepted;
  std::vector<wire::ConnReq> asked;
  std::unique_ptr<vhca::Listener> listener;
  base::Task<void> task;

 private:
  base::Task<void> accept_loop() {
    for (;;) {
      auto request = co_await listener->next();
      if (!request.ok()) co_return;
      accepted.push_back(make());
      asked.push_back(*wire::parse_conn_req((*request)->private_data()));
      RawConnection& raw = *accepted.back();
      vhca::ConnectParameters parameters;
      parameters.private_data = wire::bytes_of(answer);
      auto result = co_await (*request)->accept(home(), *raw.qp, parameters);
      if (result.ok()) raw.connection = std::move(*result);
    }
  }
};

class RogueServerTest : public SessionRig {
 protected:
  void SetUp() override {
    server_host = &server_machine->start_process("rogue");
    auto program = std::make_unique<RogueServer>(*server_host);
    rogue = program.get();
    server_host->run(std::move(program));
    start_client();
    client->open([](ClientOptions& options) { options.key = test_key("vm7"); });
  }
  RawConnection& cid0() { return *rogue->accepted.front(); }
  /// Until the client has sent this many messages.
  void heard(size_t count) {
    ASSERT_TRUE(until([&] {
      if (rogue->accepted.empty()) return false;
      cid0().poll();
      const auto& all = cid0().completions;
      return static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const vhca::Wc& wc) {
               return wc.opcode == IBV_WC_RECV && wc.status == IBV_WC_SUCCESS;
             })) >= count;
    }));
  }
  std::string error() {
    EXPECT_TRUE(until([&] { return client->open_error.has_value() || client->opened; }));
    EXPECT_EQ(rogue->accepted.size(), 1u) << "no further connection before the proof";
    return client->open_error ? client->open_error->message() : "";
  }
  RogueServer* rogue = nullptr;
};

TEST_F(RogueServerTest, ThatForgesItsProofIsFoundOut) {
  heard(1);
  rogue->send(cid0(), wire::bytes_of(wire::AuthChallenge()));
  heard(2);
  wire::AuthResult forged;
  forged.proof.fill(1);
  rogue->send(cid0(), wire::bytes_of(forged));
  EXPECT_THAT(error(), HasSubstr("has not proved that it has key \"vm7\""));
}

TEST_F(RogueServerTest, ThatReflectsTheClientsProofIsFoundOut) {
  heard(1);
  rogue->send(cid0(), wire::bytes_of(wire::AuthChallenge()));
  heard(2);
  wire::AuthProof proof;
  std::memcpy(&proof, rogue->received(1, sizeof(proof)).data(), sizeof(proof));
  wire::AuthResult reflected;
  reflected.proof = proof.proof;
  rogue->send(cid0(), wire::bytes_of(reflected));
  EXPECT_THAT(error(), HasSubstr("has not proved that it has key \"vm7\""));
}

TEST_F(RogueServerTest, ThatWelcomesWithoutAChallengeIsFoundOut) {
  heard(1);
  rogue->send(cid0(), wire::bytes_of(wire::AuthResult()));
  EXPECT_THAT(error(), HasSubstr("where a challenge is due"));
}

TEST_F(RogueServerTest, ThatAnswersBeforeItIsAskedIsFoundOut) {
  ASSERT_TRUE(until([&] { return !rogue->accepted.empty() && cid0().connection != nullptr; }));
  rogue->send(cid0(), wire::bytes_of(wire::AuthResult()));
  EXPECT_NE(error(), "");
}

/// One that has the key, but whose other connections, or info answer, are somebody else's.
class HijackedServerTest : public RogueServerTest {
 protected:
  void welcome() {
    heard(1);
    handshake.emplace(test_ring({test_key("vm7")}), rogue->asked[0], rogue->answer, wire::Nonce{});
    (void)handshake->received(rogue->received(0, sizeof(wire::AuthBegin)));
    rogue->send(cid0(), wire::bytes_of(handshake->challenge()));
    heard(2);
    const auto step = handshake->received(rogue->received(1, sizeof(wire::AuthProof)));
    ASSERT_EQ(step.kind, ServerHandshake::Step::Kind::kProven);
    rogue->send(cid0(), wire::bytes_of(handshake->welcome()));
  }
  std::string error() {
    EXPECT_TRUE(until([&] { return client->open_error.has_value() || client->opened; }));
    return client->open_error ? client->open_error->message() : "";
  }
  std::optional<ServerHandshake> handshake;
};

TEST_F(HijackedServerTest, ConnectionThatAnswersWithoutProofIsFoundOut) {
  welcome();
  EXPECT_THAT(error(), HasSubstr("connection 1 was answered by somebody who does not have key"));
}

TEST_F(HijackedServerTest, InfoAnswerWithoutProofIsFoundOut) {
  welcome();
  // The client's first connection of I/O comes with what the one before was answered.
  wire::ConnReq join = rogue->asked[0];
  join.cid = uint16_t{1};
  rogue->answer.braid_proof = handshake->secret().joined(join, rogue->answer);
  heard(3);
  struct {
    wire::InfoRsp head;
    wire::SgDescriptor region;
    wire::Proof proof;
  } answer{};
  answer.head.sg_cnt = uint16_t{1};
  answer.head.braid_epoch = 1u;
  answer.region.address = reinterpret_cast<uint64_t>(rogue->memory.data());
  answer.region.key = rogue->mr->rkey;
  answer.region.length = 16u * (32u << 10);
  std::vector<std::byte> message(sizeof(answer));
  std::memcpy(message.data(), &answer, sizeof(answer));
  rogue->send(cid0(), message);
  EXPECT_THAT(error(), HasSubstr("info answer without a proof of key \"vm7\""));
}

TEST_F(RogueServerTest, ThatSaysNothingIsGivenUp) {
  heard(1);
  EXPECT_THAT(error(), HasSubstr("did not answer to the proof of our key"));
}

TEST_F(RogueServerTest, ThatSendsTooMuchIsGivenUp) {
  heard(1);
  rogue->send(cid0(), std::vector<std::byte>(400));
  EXPECT_NE(error(), "");
}

}  // namespace
}  // namespace braid::trs::testing
