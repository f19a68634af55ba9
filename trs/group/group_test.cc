// Groups of sessions: what each leg did is told, whatever the others did.
#include "trs/group/group_rig.h"

namespace braid::trs::testing {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;

/// Reactors.
class GroupTest : public GroupRig, public ::testing::WithParamInterface<size_t> {
 protected:
  GroupTest() : GroupRig(GetParam()) {}
  size_t last() const { return reactor_count - 1; }
  std::unique_ptr<GroupIo> write(Group& group, uint64_t offset, LegMask legs = kAllLegs) {
    auto io = client->make_io(offset, 4096);
    fill(io->buffer, offset + 1);
    io->request.legs = legs;
    client->submit(group, *io, last());
    return io;
  }
  bool until_done(const GroupIo& io) {
    const bool done = until([&] { return io.done(); });
    EXPECT_EQ(io.completions, done ? 1u : 0u);
    return done;
  }
};

TEST_P(GroupTest, OneWriteFromOneBufferReachesAllLegsByTwoMessagesEach) {
  connect(3);
  Group& group = make_group({0, 1, 2});
  std::vector<std::pair<uint64_t, uint64_t>> before;
  for (size_t i = 0; i < 3; ++i) before.push_back(messages(i));
  constexpr uint64_t kWrites = 200;
  for (uint64_t n = 0; n < kWrites; ++n) {
    auto io = client->make_io(n % 64 * 4096, 4096);
    fill(io->buffer, n);
    io->request.words = {n, 2 * n};
    io->request.has_words = true;
    client->submit(group, *io, n % reactor_count);
    ASSERT_TRUE(until_done(*io));
    EXPECT_EQ(io->request.sent_to, 0b111u);
    EXPECT_TRUE(io->request.all_ok());
    for (size_t leg = 0; leg < 3; ++leg) {
      EXPECT_TRUE(stored(leg, *io));
      EXPECT_TRUE(io->request.results[leg].answered);
      EXPECT_TRUE(io->request.results[leg].has_answer_words);
      EXPECT_EQ(io->request.results[leg].answer_words, (std::array<uint64_t, 2>{n + 1, 2 * n + 1}));
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(messages(i).first - before[i].first, kWrites);
    EXPECT_EQ(messages(i).second - before[i].second, kWrites);
  }
  expect_all_permits_back();
  close(group);
}

TEST_P(GroupTest, LegThatFailsIsTold) {
  connect(3);
  Group& group = make_group({0, 1, 2});
  disks[1]->fails = Errc::kNoSpace;
  const auto io = write(group, 0);
  ASSERT_TRUE(until_done(*io));
  EXPECT_EQ(io->request.succeeded(), 0b101u);
  EXPECT_EQ(io->request.results[1].status, Errc::kNoSpace);
  EXPECT_TRUE(io->request.results[1].answered);
  EXPECT_FALSE(io->request.all_ok());
}

TEST_P(GroupTest, SlowLegIsWaitedFor) {
  connect(2);
  Group& group = make_group({0, 1});
  disks[0]->hold = true;
  const auto io = write(group, 0);
  ASSERT_TRUE(until([&] { return servers[0]->held.size() == 1; }));
  world.run_for(500 * kMillisecond);
  EXPECT_FALSE(io->done());
  servers[0]->release();
  ASSERT_TRUE(until_done(*io));
  EXPECT_TRUE(io->request.all_ok());
}

TEST_P(GroupTest, ReadGoesToOneLegAndToNoMore) {
  connect(2);
  Group& group = make_group({0, 1});
  fill(std::span(disks[1]->bytes).first(4096), 77);
  auto io = client->make_io(0, 4096);
  io->request.direction = Direction::kRead;
  io->request.legs = 0b10;
  client->submit(group, *io);
  ASSERT_TRUE(until_done(*io));
  EXPECT_TRUE(io->request.all_ok());
  EXPECT_TRUE(stored(1, *io));
  EXPECT_EQ(disks[0]->requests, 0u);
  auto wrong = client->make_io(0, 4096);
  wrong->request.direction = Direction::kRead;
  client->submit(group, *wrong);
  ASSERT_TRUE(until_done(*wrong));
  EXPECT_EQ(wrong->request.sent_to, 0u);
}

TEST_P(GroupTest, LegThatIsNotThereIsTold) {
  connect(1);
  Group& group = make_group({0});
  const auto io = write(group, 0, 0b101);
  ASSERT_TRUE(until_done(*io));
  EXPECT_EQ(io->request.sent_to, 0b101u);
  EXPECT_EQ(io->request.succeeded(), 0b001u);
  EXPECT_EQ(io->request.results[2].status, Errc::kCanceled);
  const auto nowhere = write(group, 0, 0b1000);
  ASSERT_TRUE(until_done(*nowhere));
  EXPECT_FALSE(nowhere->request.all_ok());
}

TEST_P(GroupTest, LegThatWaitsGetsTheWriteWhenItsPathIsBack) {
  connect(2);
  Group& group = make_group({0, 1});
  kill_server(1);
  ASSERT_TRUE(until([&] { return !connected(1); }));
  const auto io = write(group, 0);
  ASSERT_TRUE(until([&] { return disks[0]->requests == 1; }));
  world.run_for(3 * kSecond);
  EXPECT_FALSE(io->done());
  start_server(1);
  ASSERT_TRUE(until_done(*io));
  EXPECT_TRUE(io->request.all_ok());
  EXPECT_TRUE(stored(1, *io));
}

TEST_P(GroupTest, LegThatFailsFastCostsTheOthersNothing) {
  connect(2);
  Group& group = make_group({0, 1}, LegPolicy::kFailFast);
  disks[1]->hold = true;
  const auto in_flight = write(group, 0);
  ASSERT_TRUE(until([&] { return servers[1]->held.size() == 1 && disks[0]->requests == 1; }));
  kill_server(1);
  disks[1]->hold = false;
  const uint64_t killed_ns = world.now_ns();
  ASSERT_TRUE(until_done(*in_flight));
  EXPECT_LT(world.now_ns() - killed_ns, kSecond);
  EXPECT_EQ(in_flight->request.succeeded(), 0b01u);
  EXPECT_EQ(in_flight->request.results[1].status, Errc::kDisconnected);
  EXPECT_FALSE(in_flight->request.results[1].answered);
  const uint64_t now_ns = world.now_ns();
  const auto later = write(group, 4096);
  ASSERT_TRUE(until_done(*later));
  EXPECT_LT(world.now_ns() - now_ns, 10 * kMillisecond);
  EXPECT_EQ(later->request.results[1].status, Errc::kDisconnected);
  start_server(1);
  ASSERT_TRUE(until([&] { return connected(1); }));
  const auto again = write(group, 8192);
  ASSERT_TRUE(until_done(*again));
  EXPECT_TRUE(again->request.all_ok());
  expect_all_permits_back();
}

TEST_P(GroupTest, RemovalEndsWhenNothingIsInFlightThere) {
  connect(2);
  Group& group = make_group({0, 1});
  disks[1]->hold = true;
  const auto io = write(group, 0);
  ASSERT_TRUE(until([&] { return servers[1]->held.size() == 1; }));
  bool removed = false;
  client->run(client->remove_task(group, 1, removed));
  world.run_for(kSecond);
  EXPECT_FALSE(removed) << "its device may still read the buffer";
  EXPECT_EQ(group.legs(), 0b01u);
  const auto without = write(group, 4096);
  ASSERT_TRUE(until_done(*without));
  EXPECT_EQ(without->request.sent_to, 0b01u);
  servers[1]->release();
  ASSERT_TRUE(until([&] { return removed; }));
  ASSERT_TRUE(until_done(*io));
  EXPECT_TRUE(io->request.all_ok());
  EXPECT_EQ(add(group, 1), 1u) << "the slot is free again";
}

TEST_P(GroupTest, RemovalOfALegWithoutAPathEndsWhatWaitsForIt) {
  connect(2);
  Group& group = make_group({0, 1});
  kill_server(1);
  ASSERT_TRUE(until([&] { return !connected(1); }));
  std::vector<std::unique_ptr<GroupIo>> all;  // more than there are permits
  for (uint64_t i = 0; i < 40; ++i) all.push_back(write(group, i * 4096));
  world.run_for(kSecond);
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const auto& io) { return io->done(); }), 0);
  bool removed = false;
  client->run(client->remove_task(group, 1, removed));
  ASSERT_TRUE(until([&] { return removed; }, 5 * kSecond));
  for (const auto& io : all) {
    ASSERT_TRUE(until_done(*io));
    EXPECT_EQ(io->request.succeeded(), 0b01u);
    EXPECT_EQ(io->request.results[1].status, Errc::kCanceled);
    EXPECT_TRUE(stored(0, *io));
  }
  expect_all_permits_back();
}

TEST_P(GroupTest, LegWithoutAPathDoesNotUseUpPermitsOfOthers) {
  connect(3);
  Group& broken = make_group({0, 1});
  Group& whole = make_group({0, 2});
  kill_server(1);
  ASSERT_TRUE(until([&] { return !connected(1); }));
  std::vector<std::unique_ptr<GroupIo>> stuck;
  for (uint64_t i = 0; i < 40; ++i) stuck.push_back(write(broken, i * 4096));
  world.run_for(100 * kMillisecond);
  for (uint64_t i = 0; i < 100; ++i) {
    const auto io = write(whole, (1 << 19) + i % 16 * 4096);
    ASSERT_TRUE(until_done(*io)) << i;
    EXPECT_TRUE(io->request.all_ok());
  }
  start_server(1);
  for (const auto& io : stuck) {
    ASSERT_TRUE(until_done(*io));
    EXPECT_TRUE(io->request.all_ok());
  }
  expect_all_permits_back();
}

TEST_P(GroupTest, GroupsThatShareFewPermitsInACircleAllGoOn) {
  adjust_server = [this](ServerOptions& options) {
    options.queue_depth = static_cast<uint32_t>(1 + reactor_count);  // one permit per reactor
  };
  connect(3);
  std::vector<Group*> groups = {&make_group({0, 1}), &make_group({1, 2}), &make_group({2, 0})};
  constexpr uint64_t kRounds = 300;
  std::vector<std::unique_ptr<GroupIo>> all;
  std::vector<uint64_t> finished(groups.size(), 0);
  bool enough = false;
  unsigned running = 0, wrong = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (uint64_t lane = 0; lane < 4 * reactor_count; ++lane) {
      auto io = client->make_io((g * 64 + lane) * 4096, 512);
      const size_t reactor = lane % reactor_count;
      io->after = [&, g, reactor](GroupIo& self) {
        if (!self.request.all_ok()) ++wrong;
        enough = enough || ++finished[g] == kRounds;
        if (enough) {
          --running;
        } else {
          groups[g]->queue(reactor).submit(self.request);
        }
      };
      ++running;
      all.push_back(std::move(io));
      client->submit(*groups[g], *all.back(), reactor);
    }
  }
  ASSERT_TRUE(until([&] { return running == 0; }));
  EXPECT_EQ(wrong, 0u);
  for (const uint64_t count : finished) EXPECT_GT(count, kRounds / 4) << "one group was starved";
  expect_all_permits_back();
}

TEST_P(GroupTest, SessionIsALegOnceAndOfTheSameReactors) {
  connect(1);
  Group& group = make_group({0});
  std::optional<Errc> code;
  client->run([](Group& to, ClientSession& session, std::optional<Errc>& out) -> base::Task<void> {
    auto added = co_await to.add_leg(session, LegPolicy::kWait);
    out = added.code();
  }(group, *client->sessions[0], code));
  ASSERT_TRUE(until([&] { return code.has_value(); }));
  EXPECT_EQ(code, Errc::kExists);
}

INSTANTIATE_TEST_SUITE_P(Reactors, GroupTest, ::testing::Values(1u, 2u, 4u),
                         [](const auto& param) { return "R" + std::to_string(param.param); });

}  // namespace
}  // namespace braid::trs::testing
