// Notices: a server's word, without data, that there is something to ask for.
#include "trs/hostile_client_rig.h"
#include "trs/multipath_rig.h"

namespace braid::trs {
namespace {

using base::kMillisecond;
using base::kSecond;
using testing::HostileClient;
using testing::MultipathRig;
using testing::ServerProcess;
using testing::SessionRig;

constexpr uint32_t kOlder = kAllFeatures & ~wire::kFeatureNotices;

/// With all clients, each time on the server's home reactor.
void raise(ServerProcess& server) {
  server.home().post([&server] {
    for (ServerSession* session : server.server->sessions()) session->raise_notice();
  });
  server.home().wake();
}
void clear(ServerProcess& server) {
  server.home().post([&server] {
    for (ServerSession* session : server.server->sessions()) session->clear_notice();
  });
  server.home().wake();
}

class Notices : public SessionRig {
 protected:
  Notices() : SessionRig(2) {}
  bool until_noticed(unsigned count) {
    return until([&, count] { return client->notice_calls == count; }, 10 * kMillisecond);
  }
};

TEST_F(Notices, ReachTheClientOnceAndAtOnce) {
  connect();
  EXPECT_TRUE(client->session->limits().notices);
  world.run_for(3 * kSecond);
  EXPECT_EQ(client->notice_calls, 0u);
  raise(*server);
  EXPECT_TRUE(until_noticed(1));
  world.run_for(3 * kSecond);
  EXPECT_EQ(client->notice_calls, 1u);
}

TEST_F(Notices, AreSentAgainOnlyAfterTheyWereCleared) {
  connect();
  for (int i = 0; i < 3; ++i) raise(*server);
  EXPECT_TRUE(until_noticed(1));
  raise(*server);
  world.run_for(kSecond);
  EXPECT_EQ(client->notice_calls, 1u);
  clear(*server);
  raise(*server);
  EXPECT_TRUE(until_noticed(2));
}

TEST_F(Notices, RaisedBeforeTheClientKnowsOfItsSessionReachIt) {
  store.raises_notices = true;
  connect();
  EXPECT_TRUE(until_noticed(1));
}

TEST_F(Notices, ReachNoOlderClient) {
  connect([](ClientOptions& options) { options.features = kOlder; });
  EXPECT_FALSE(server->server->sessions().front()->takes_notices());
  raise(*server);
  world.run_for(3 * kSecond);
  EXPECT_EQ(client->notice_calls, 0u);
  EXPECT_EQ(client->disconnected_calls, 0u);
}

TEST_F(Notices, OfAnOlderServerAreNotToBeExpected) {
  adjust_server = [](ServerOptions& options) { options.features = kOlder; };
  connect();
  EXPECT_FALSE(client->session->limits().notices);
  kill_server();
  adjust_server = {};
  start_server();
  ASSERT_TRUE(until([&] { return client->restored_calls == 1; }));
  EXPECT_TRUE(client->session->limits().notices) << "it came back as a newer one";
  raise(*server);
  EXPECT_TRUE(until_noticed(1));
}

class NoticesByTwoPaths : public MultipathRig {
 protected:
  NoticesByTwoPaths() : MultipathRig(2) {}
};

TEST_F(NoticesByTwoPaths, LostWithAPathComeByTheOther) {
  connect_both();
  to_client_a(true);
  raise(*server);
  world.run_for(10 * kMillisecond);
  ASSERT_EQ(client->notice_calls, 0u) << "it goes by path A";
  EXPECT_TRUE(until([&] { return client->notice_calls > 0; }, 3 * kSecond));
  EXPECT_EQ(client->disconnected_calls, 0u);
}

TEST_F(NoticesByTwoPaths, ComeByAPathThatJoinsUntilTheyAreCleared) {
  connect_both();
  raise(*server);
  ASSERT_TRUE(until([&] { return client->notice_calls == 1; }));
  cut_b(true);
  ASSERT_TRUE(until_up(1));
  world.run_for(3 * kSecond);
  unsigned before = client->notice_calls;
  cut_b(false);
  ASSERT_TRUE(until_up(2));
  world.run_for(10 * kMillisecond);
  EXPECT_EQ(client->notice_calls, before + 1) << "nobody knows what the client's user has seen";
  clear(*server);
  before = client->notice_calls;
  cut_b(true);
  ASSERT_TRUE(until_up(1));
  cut_b(false);
  ASSERT_TRUE(until_up(2));
  world.run_for(10 * kMillisecond);
  EXPECT_EQ(client->notice_calls, before);
}

class NoticesByHand : public HostileClient {
 protected:
  bool has_notice() {
    for (const Imm imm : cid0->immediates()) {
      if (imm.type == ImmType::kNotice) return true;
    }
    return false;
  }
};

TEST_F(NoticesByHand, WithoutASendSlotGoAsSoonAsThereIsOne) {
  open_session(1, kAllFeatures);
  // Each is answered, as far as the client has receives and the server has sends.
  for (int i = 0; i < 120; ++i) {
    raw->write_imm(*cid0, {}, 0, 0, encode_imm({ImmType::kHeartbeat, 0}));
    world.run_for(20 * base::kMicrosecond);
    cid0->poll();
  }
  raise(*server);
  world.run_for(10 * kMillisecond);
  ASSERT_FALSE(has_notice());
  ASSERT_FALSE(cid0->lost());
  for (size_t i = 0; i < 64; ++i) raw->post_receive(*cid0, i);
  EXPECT_TRUE(until([&] { return has_notice(); }, 100 * kMillisecond));
  EXPECT_FALSE(cid0->lost());
}

TEST_F(NoticesByHand, OfAClientEndItsSession) {
  open_session(1, kAllFeatures);
  raw->write_imm(*cid0, {}, 0, 0, encode_imm({ImmType::kNotice, 0}));
  expect_breach("immediate of an unknown type");
}

TEST_F(NoticesByHand, AreNotSentToAKernel) {
  handshake_as_kernel();
  send_info(0);
  ASSERT_TRUE(until([&] { return server->server->sessions().size() == 2; }));
  for (int i = 0; i < 10; ++i) {
    raise(*server);
    world.run_for(50 * kMillisecond);
    ASSERT_FALSE(has_notice());
  }
  EXPECT_FALSE(cid0->lost());
}

}  // namespace
}  // namespace braid::trs
