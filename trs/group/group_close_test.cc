// The end of a group that is busy, what a group refuses, and a server that takes requests and
// answers none: it is nobody's trouble but its own.
#include "trs/group/group_rig.h"

namespace braid::trs::testing {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;

/// Reactors.
class GroupClose : public GroupRig, public ::testing::WithParamInterface<size_t> {
 protected:
  GroupClose() : GroupRig(GetParam()) {}
  std::unique_ptr<GroupIo> write(Group& group, uint64_t offset, size_t reactor) {
    auto io = client->make_io(offset, 4096);
    fill(io->buffer, offset + 1);
    client->submit(group, *io, reactor);
    return io;
  }
  size_t last() const { return reactor_count - 1; }
  std::optional<Errc> refusal(Group& group, ClientSession& session) {
    std::optional<Errc> code;
    client->run([](Group& to, ClientSession& of, std::optional<Errc>& out) -> base::Task<void> {
      auto added = co_await to.add_leg(of, LegPolicy::kWait);
      out = added.code();
    }(group, session, code));
    EXPECT_TRUE(until([&] { return code.has_value(); }));
    return code;
  }
};

TEST_P(GroupClose, WaitsForALegThatIsBeingRemoved) {
  connect(2);
  Group& group = make_group({0, 1});
  disks[1]->hold = true;
  const auto io = write(group, 0, last());
  ASSERT_TRUE(until([&] { return servers[1]->held.size() == 1; }));
  bool removed = false, closed = false;
  client->run(client->remove_task(group, 1, removed));
  client->run(client->close_task(group, closed));
  world.run_for(kSecond);
  EXPECT_FALSE(closed) << "a device may still read the buffer";
  EXPECT_FALSE(removed);
  servers[1]->release();
  ASSERT_TRUE(until([&] { return closed; }));
  EXPECT_TRUE(removed);
  EXPECT_EQ(io->completions, 1u);
  EXPECT_TRUE(io->request.all_ok());
  client->groups.clear();
  world.run_for(kSecond);
  expect_all_permits_back();
}

TEST_P(GroupClose, WaitsForALegThatIsBeingAdded) {
  connect(2);
  Group& group = make_group({0});
  size_t slot = kLegsMax;
  bool closed = false;
  client->run(client->add_task(group, 1, LegPolicy::kWait, slot));
  client->run(client->close_task(group, closed));
  ASSERT_TRUE(until([&] { return closed; }));
  EXPECT_EQ(slot, 1u);
  EXPECT_EQ(group.legs(), 0u);
}

TEST_P(GroupClose, EndsAllThatWaitsAndAllThatIsOnAWire) {
  connect(3);
  Group& group = make_group({0, 1, 2});
  disks[1]->hold = true;
  std::vector<std::unique_ptr<GroupIo>> all;  // more than there are permits
  for (uint64_t i = 0; i < 40; ++i) all.push_back(write(group, i * 4096, i % reactor_count));
  ASSERT_TRUE(until([&] { return !servers[1]->held.empty(); }));
  world.run_for(50 * kMillisecond);
  bool closed = false;
  client->run(client->close_task(group, closed));
  world.run_for(kSecond);
  EXPECT_FALSE(closed);
  servers[1]->release();
  ASSERT_TRUE(until([&] { return closed; }));
  for (const auto& io : all) {
    ASSERT_EQ(io->completions, 1u);
    for (size_t leg = 0; leg < 3; ++leg) {
      const Errc status = io->request.results[leg].status;
      EXPECT_TRUE(status == Errc::kOk || status == Errc::kCanceled);
      EXPECT_TRUE(status != Errc::kOk || stored(leg, *io));
    }
  }
  expect_all_permits_back();
}

// As many groups as a healthy server has permits wait for one whose disk hangs.
TEST_P(GroupClose, AHungDiskDoesNotUseUpPermitsOfOthers) {
  connect(3);
  const bool first_is_lower = client->sessions[0]->id() < client->sessions[1]->id();
  const size_t healthy = first_is_lower ? 0 : 1;  // whose permit is taken first
  const size_t hung = 1 - healthy;
  disks[hung]->hold = true;
  std::vector<std::unique_ptr<GroupIo>> stuck;
  for (uint64_t i = 0; i < 60; ++i) {
    stuck.push_back(write(make_group({healthy, hung}), i % 64 * 4096, last()));
  }
  Group& whole = make_group({healthy, 2});
  world.run_for(100 * kMillisecond);
  const uint64_t began_ns = world.now_ns();
  for (uint64_t i = 0; i < 100; ++i) {
    const auto io = write(whole, (1 << 19) + i % 16 * 4096, last());
    ASSERT_TRUE(until([&] { return io->done(); }, kSecond)) << i;
    EXPECT_TRUE(io->request.all_ok());
  }
  EXPECT_LT(world.now_ns() - began_ns, kSecond);
  servers[hung]->release();
  for (const auto& io : stuck) {
    ASSERT_TRUE(until([&] { return io->done(); }));
    EXPECT_TRUE(io->request.all_ok());
  }
  expect_all_permits_back();
}

// Both servers are slow and have more to do than permits, from users of one of them alone. Who
// needs both at one time gets them.
TEST_P(GroupClose, WhoNeedsTwoBusyServersIsNotStarved) {
  connect(2);
  std::vector<Group*> alone = {&make_group({0}), &make_group({1})};
  Group& both = make_group({0, 1});
  bool enough = false;
  std::vector<std::unique_ptr<GroupIo>> all;
  for (uint64_t i = 0; i < 80; ++i) {
    Group& group = *alone[i % 2];
    auto io = client->make_io(i * 4096, 512);
    io->after = [&](GroupIo& self) {
      if (!enough) group.queue(last()).submit(self.request);
    };
    all.push_back(std::move(io));
    client->submit(group, *all.back(), last());
  }
  disks[0]->hold = disks[1]->hold = true;
  std::vector<std::unique_ptr<GroupIo>> wanted;
  for (uint64_t i = 0; i < 4; ++i) wanted.push_back(write(both, (1 << 19) + i * 4096, last()));
  const auto all_done = [&] {
    return std::all_of(wanted.begin(), wanted.end(), [](const auto& io) { return io->done(); });
  };
  // A disk that does one after the other, in 5 ms each.
  for (int i = 0; i < 4000 && !all_done(); ++i) {
    world.run_for(5 * kMillisecond);
    for (LegServer* server : servers) server->release_one();
  }
  EXPECT_TRUE(all_done());
  enough = true;
  for (LegServer* server : servers) server->release();
  for (const auto& io : wanted) EXPECT_TRUE(io->request.all_ok());
  for (Group* group : alone) close(*group);
  close(both);
  expect_all_permits_back();
}

TEST_P(GroupClose, SessionsOfOtherReactorsAreNoLegs) {
  connect(1);
  Group& group = make_group({0});
  const size_t other = reactor_count == 1 ? 2 : 1;
  std::vector<base::Reactor*> reactors = client->reactor_list();
  reactors.resize(other, reactors.front());
  client->groups.push_back(std::move(*Group::create(reactors)));
  EXPECT_EQ(refusal(*client->groups.back(), *client->sessions[0]), Errc::kInvalid);
  EXPECT_EQ(refusal(group, *client->sessions[0]), Errc::kExists);
}

INSTANTIATE_TEST_SUITE_P(Reactors, GroupClose, ::testing::Values(1u, 2u, 4u),
                         [](const auto& param) { return "R" + std::to_string(param.param); });

class GroupSlots : public GroupRig {};

TEST_F(GroupSlots, ThereAreSixteen) {
  connect(kLegsMax + 1);
  Group& group = make_group({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  std::optional<Errc> code;
  client->run([](Group& to, ClientSession& of, std::optional<Errc>& out) -> base::Task<void> {
    auto added = co_await to.add_leg(of, LegPolicy::kWait);
    out = added.code();
  }(group, *client->sessions[kLegsMax], code));
  ASSERT_TRUE(until([&] { return code.has_value(); }));
  EXPECT_EQ(code, Errc::kNoSpace);
  bool removed = false;
  client->run(client->remove_task(group, 7, removed));
  ASSERT_TRUE(until([&] { return removed; }));
  EXPECT_EQ(add(group, kLegsMax), 7u);
}

}  // namespace
}  // namespace braid::trs::testing
