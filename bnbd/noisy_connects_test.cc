// Clients that connect without end and could prove a key, but never do, beside a client that is as
// far away as RC can be, 120 ms: it needs some of its round trips for its proof. It is let in, and
// what it and another do is what they do alone. Two bounds see to it: how fast an address may begin
// paths, and whose path goes when there are too many (trs/authentication_test.cc has that alone).
#include <gtest/gtest.h>

#include "bnbd/test_noisy.h"
#include "trs/test_keys.h"

namespace braid::bnbd {
namespace {

using base::kMillisecond;
using test::ClientNode;
using test::Load;
using test::LoadShape;
using test::RawCrowd;
using trs::testing::test_key;

class NoisyConnects : public test::NoisyLoad {
 protected:
  // There and back, at most. The wire gives up who does not acknowledge within 134 ms.
  static constexpr uint64_t kFarNs = 120 * kMillisecond;
  NoisyConnects() : NoisyLoad({.keys = trs::testing::test_ring({test_key("clients")})}) {
    session_options.transport.key = test_key("clients");
    server_machine.add_disk("/exports/other.img", {.size_bytes = 4 << 20});
  }
  ~NoisyConnects() override { meanwhile = nullptr; }
  /// Of all that happens from now on, also while something is waited for.
  void begin_crowd() {
    trs::testing::RawPeer& peer = add_peer();
    crowd = std::make_unique<RawCrowd>(
        peer, trs::wire::kFeatureAuthentication | trs::wire::kFeaturePinnedPermits);
    base::sim::charge_turns(peer.home(), [this] {
      return (crowd->begun - std::exchange(connects_charged, crowd->begun)) * test::kConnectNs;
    });
    meanwhile = act;
    run(10 * kWindowNs, act);  // so many may come at once
  }
  /// As soon as its port is there, before anything has passed it.
  ClientNode& add_far_client(const std::string& name) {
    meanwhile = [this, ip = "10.0.1." + std::to_string(clients + 1)] {
      world.fabric().set_extra_delay(ip, test::kServerIp, kFarNs / 2);
      world.fabric().set_extra_delay(test::kServerIp, ip, kFarNs / 2);
      if (crowd) crowd->go_on();
    };
    ClientNode& far = add_client(name);
    meanwhile = crowd ? act : nullptr;
    return far;
  }
  const std::function<void()> act = [this] { crowd->go_on(); };
  uint64_t refused_by_key() {
    uint64_t sum = 0;
    for (const auto& [reason, count] : server->transport_statistics().keys_refused) sum += count;
    return sum;
  }
};

TEST_F(NoisyConnects, without_a_proof_keep_out_nobody_who_is_far_away) {
  begin_honest();
  begin_crowd();
  const uint64_t begun = crowd->begun, refused = refused_by_key();
  const uint64_t began_ns = world.now_ns();
  EXPECT_NE(add_far_client("far").session, nullptr);
  EXPECT_GT(world.now_ns() - began_ns, kFarNs) << "it is near";  // three round trips or more
  EXPECT_GT(crowd->begun - begun, 100u) << "it was no flood";
  EXPECT_GT(refused_by_key() - refused, 20u) << "nobody was driven out";
  expect_its_share(act);
  meanwhile = nullptr;
}

TEST_F(NoisyConnects, leave_who_is_far_away_its_throughput) {
  window_ns = 100 * kWindowNs;
  ClientNode& far = add_far_client("far");
  const LoadShape shape = {.depth = test::kQueueDepth};
  loads.push_back(std::make_unique<Load>(far, open(far, "other.img"), shape));
  honest = loads.back().get();
  alone = measure(*honest);
  EXPECT_GT(alone, 200u);
  begin_crowd();
  expect_its_share(act);
  meanwhile = nullptr;
}

}  // namespace
}  // namespace braid::bnbd
