// Send slots of the server that answers do not use up.
#include "trs/hostile_client_rig.h"

namespace braid::trs {
namespace {

using base::kMicrosecond;
using base::kMillisecond;
using base::kSecond;
using testing::HostileClient;

class Sends : public HostileClient {
 protected:
  /// Answers that the server has given, sent or not.
  uint64_t answered() {
    for (ServerSession* const session : server->server->sessions())
      if (session->name() == "hostile") return session->path_statistics()[0][1].writes;
    return 0;
  }
  /// Asks as long as answers are sent, to a client that takes none when its receives are used up.
  void use_up_sends() {
    testing::StoreOp op;
    std::vector<uint8_t> bytes(sizeof(op) + 4);
    bytes[sizeof(op)] = 2;  // a write,
    bytes[sizeof(op) + 2] = sizeof(op);
    for (uint32_t i = 0; i < 500 && answered() == i; ++i) {
      request(*cid1, 1 + i % 15, 0, bytes, sizeof(op));
      world.run_for(20 * kMicrosecond);
      cid1->poll();
    }
  }
  void live_for(uint64_t duration_ns) {
    for (const uint64_t until_ns = world.now_ns() + duration_ns; world.now_ns() < until_ns;) {
      for (auto* const line : {cid0.get(), cid1.get()})
        raw->write_imm(*line, {}, 0, 0, encode_imm({ImmType::kHeartbeatAck, 0}));
      world.run_for(100 * kMillisecond);
    }
  }
};

TEST_F(Sends, AreLeftForHeartbeatsWhenAnswersWait) {
  open_session();
  use_up_sends();
  ASSERT_LT(answered(), 500u) << "each was sent";
  live_for(3 * kSecond);
  ASSERT_FALSE(cid1->lost());
  for (size_t i = 0; i < 64; ++i) raw->post_receive(*cid1, i);
  for (int i = 0; i < 10; ++i) {
    world.run_for(10 * kMillisecond);
    cid1->poll();
  }
  size_t heartbeats = 0;
  for (const Imm imm : cid1->immediates()) heartbeats += imm.type == ImmType::kHeartbeat ? 1 : 0;
  EXPECT_GE(heartbeats, 9u) << "it says each 300 ms that it lives";
}

}  // namespace
}  // namespace braid::trs
