// Clients of Linux cannot hold their I/O until there is a path again: a cable that is away for as
// long as two kernels would bear is borne.
#include "trs/kernel_client_rig.h"

namespace braid::trs {
namespace {

using base::kSecond;
using testing::KernelClient;
using testing::kHostileIp;
using testing::kServerIp;

class Patience : public KernelClient {
 protected:
  void cut(bool on) {
    world.fabric().set_black_hole(kHostileIp, kServerIp, on);
    world.fabric().set_black_hole(kServerIp, kHostileIp, on);
  }
  size_t sessions() const { return server->server->sessions().size(); }
};

class PatienceOf : public Patience, public ::testing::WithParamInterface<uint64_t> {};

/// An answer is under way all the time: the queue pair has to bear it, and the heartbeats.
TEST_P(PatienceOf, ACableThatIsAwayForSecondsCostsNoPath) {
  store.hold = true;
  read(1, target->rkey, 0);
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  cut(true);
  store.hold = false;
  server->release();
  world.run_for(GetParam() * kSecond);
  cut(false);
  ASSERT_TRUE(until([&] { return cid1->immediates().size() == 1; }, 5 * kSecond));
  EXPECT_TRUE(data_came(1));
  EXPECT_EQ(sessions(), 2u);
  EXPECT_FALSE(cid0->lost() || cid1->lost());
}

INSTANTIATE_TEST_SUITE_P(Seconds, PatienceOf, ::testing::Values(1u, 2u, 5u, 10u));

TEST_F(Patience, HasAnEnd) {
  cut(true);
  world.run_for(20 * kSecond);
  EXPECT_EQ(sessions(), 2u);
  ASSERT_TRUE(until([&] { return sessions() == 1; }, 15 * kSecond));
}

TEST_F(Patience, IsNotForClientsOfBraid) {
  world.fabric().set_black_hole(testing::kClientIp, kServerIp, true);
  world.fabric().set_black_hole(kServerIp, testing::kClientIp, true);
  ASSERT_TRUE(until([&] { return sessions() == 1; }, 2 * kSecond));
  world.fabric().heal_all();
  ASSERT_TRUE(until([&] { return sessions() == 2; }));
  client->disconnected_calls = 0;  // it was meant
}

}  // namespace
}  // namespace braid::trs
