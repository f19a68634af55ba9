// Groups under faults, by seed: what a leg said to have it has. What it did not say it has, or has
// not, or gets later, as long as its server may still have it at its disk: until a request is
// answered there that was submitted after the other one had ended.
#include "trs/group/group_rig.h"

namespace braid::trs::testing {
namespace {

using base::kMillisecond;
using base::kSecond;

constexpr uint64_t kBlockBytes = 16384;
constexpr size_t kServers = 3;

using Bytes = std::vector<std::byte>;

/// One block of all servers' disks, written again and again, one write at a time: nothing else
/// explains what lies there.
struct Lane {
  std::unique_ptr<GroupIo> io;
  Group* group = nullptr;
  std::vector<size_t> server_of;  // by slot
  size_t reactor = 0;
  uint64_t stamp = 0;
  uint64_t submitted_ns = 0;
  bool under_way = true;
  struct Copy {
    Bytes known;                // what the server had when it was last known
    std::vector<Bytes> doubts;  // what may have landed since, or may land
    uint64_t doubted_ns = 0;    // when the last of them ended
  };
  std::array<Copy, kServers> copies;
};

/// Reactors, seed.
class GroupFaults : public GroupRig,
                    public ::testing::WithParamInterface<std::tuple<size_t, uint64_t>> {
 protected:
  GroupFaults() : GroupRig(std::get<0>(GetParam()), std::get<1>(GetParam())) {
    // The same again, whoever is started anew.
    adjust_server = [depth = 4 + world.random().below(12),
                     guard = world.random().below(3)](ServerOptions& options) {
      options.guard = static_cast<ChunkGuard>(guard);
      options.queue_depth = static_cast<uint32_t>(depth);
    };
  }

  void add_lane(size_t index, Group& group, std::vector<size_t> server_of);
  void ended(Lane& lane);
  /// A second write of the lane: who fails fast goes on by the others while a fault lasts, and
  /// seconds of faults are many requests.
  base::Task<void> submit_later(Lane& lane, uint64_t pause_ns);
  void has_said_ok(Lane& lane, size_t server);
  void check(const Lane& lane);
  Bytes on_disk(size_t server, const Lane& lane) const;
  void one_fault();
  void wrong(const std::string& what) { violations.push_back(what); }

  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<std::string> violations;
  bool stopping = false;
  unsigned running = 0;
  uint64_t completed = 0, unknown = 0;
};

void GroupFaults::add_lane(size_t index, Group& group, std::vector<size_t> server_of) {
  auto lane = std::make_unique<Lane>();
  lane->group = &group;
  lane->server_of = std::move(server_of);
  lane->reactor = index % reactor_count;
  lane->stamp = index;
  lane->submitted_ns = world.now_ns();
  const auto length = static_cast<uint32_t>(1 + world.random().below(kBlockBytes));
  lane->io = client->make_io(index * kBlockBytes, length);
  lane->io->after = [this, self = lane.get()](GroupIo&) { ended(*self); };
  for (size_t server = 0; server < kServers; ++server)
    lane->copies[server].known = on_disk(server, *lane);
  fill(lane->io->buffer, lane->stamp);
  ++running;
  client->submit(group, *lane->io, lane->reactor);
  lanes.push_back(std::move(lane));
}

Bytes GroupFaults::on_disk(size_t server, const Lane& lane) const {
  const auto begin = disks[server]->bytes.begin() + static_cast<ptrdiff_t>(lane.io->offset);
  return {begin, begin + static_cast<ptrdiff_t>(lane.io->buffer.size())};
}

void GroupFaults::ended(Lane& lane) {
  GroupIo& io = *lane.io;
  ++completed;
  if (io.completions != 1) wrong("a request ended more than once");
  io.completions = 0;
  lane.under_way = false;
  for (size_t slot = 0; slot < lane.server_of.size(); ++slot) {
    const size_t server = lane.server_of[slot];
    if ((io.request.succeeded() >> slot & 1) != 0) {
      has_said_ok(lane, server);
    } else {
      ++unknown;
      lane.copies[server].doubts.emplace_back(io.buffer.begin(), io.buffer.end());
      lane.copies[server].doubted_ns = world.now_ns();
    }
  }
  check(lane);
  if (stopping) {
    --running;
    return;
  }
  const uint64_t pause_ns = world.random().below(20 * kMillisecond);
  client->reactors[lane.reactor]->spawn(submit_later(lane, pause_ns));
}

base::Task<void> GroupFaults::submit_later(Lane& lane, uint64_t pause_ns) {
  co_await client->reactors[lane.reactor]->sleep_ns(pause_ns);
  check(lane);
  lane.stamp += 1000;
  lane.submitted_ns = world.now_ns();
  lane.under_way = true;
  fill(lane.io->buffer, lane.stamp);
  lane.group->queue(lane.reactor).submit(lane.io->request);
}

/// It has what was written. And of what had ended before, nothing can land there any more.
void GroupFaults::has_said_ok(Lane& lane, size_t server) {
  if (!stored(server, *lane.io)) wrong("a leg said ok and has not what was written");
  lane.copies[server] = {.known = on_disk(server, lane)};
  for (auto& other : lanes) {
    Lane::Copy& copy = other->copies[server];
    if (other.get() == &lane || copy.doubts.empty() || copy.doubted_ns >= lane.submitted_ns)
      continue;
    check(*other);
    copy = {.known = on_disk(server, *other)};
  }
}

void GroupFaults::check(const Lane& lane) {
  for (const size_t server : lane.server_of) {
    const Lane::Copy& copy = lane.copies[server];
    if (lane.under_way && stored(server, *lane.io)) continue;
    const Bytes now = on_disk(server, lane);
    if (now != copy.known &&
        std::find(copy.doubts.begin(), copy.doubts.end(), now) == copy.doubts.end())
      wrong("a leg has what nobody wrote there since");
  }
}

void GroupFaults::one_fault() {
  base::sim::SimRandom& random = world.random();
  const size_t server = random.below(servers.size());
  switch (random.below(6)) {
    case 0:
      kill_server(server);
      world.run_for(random.below(500 * kMillisecond));
      start_server(server);
      break;
    case 1:
      black_hole(server, true);
      world.run_for(random.below(2 * kSecond));
      black_hole(server, false);
      break;
    case 2:  // what is sent now lands when its path has been given up
      world.fabric().set_held_until(GroupClient::kIp, ip_of(server),
                                    world.now_ns() + random.between(120, 600) * kMillisecond);
      world.run_for(random.below(50 * kMillisecond));
      world.fabric().set_held_until(GroupClient::kIp, ip_of(server), 0);
      break;
    case 3:
      hosts[server]->pause();
      world.run_for(random.below(1500 * kMillisecond));
      hosts[server]->resume();
      break;
    case 4:
      hosts[server]->hang_reactor(random.below(reactor_count), random.below(kSecond));
      break;
    default:  // a slow disk
      disks[server]->hold = true;
      world.run_for(random.below(800 * kMillisecond));
      servers[server]->release();
  }
}

TEST_P(GroupFaults, ALegHasWhatItSaidAndNothingLandsLater) {
  connect(kServers);
  Group& waits = make_group({0, 1, 2});
  Group& fails_fast = make_group({2, 0}, LegPolicy::kFailFast);
  for (size_t i = 0; i < 6 * reactor_count; ++i) {
    if (i % 2 == 0) {
      add_lane(i, waits, {0, 1, 2});
    } else {
      add_lane(i, fails_fast, {2, 0});
    }
  }
  for (int i = 0; i < 12; ++i) {
    world.run_for(world.random().below(30 * kMillisecond));
    one_fault();
  }
  stopping = true;
  ASSERT_TRUE(until([&] { return running == 0; }));
  world.run_for(5 * kSecond);
  for (const auto& lane : lanes) check(*lane);
  EXPECT_TRUE(violations.empty()) << violations.size() << ", the first: " << violations[0];
  EXPECT_GT(completed, 300u);
  EXPECT_GT(unknown, 0u) << "no fault was met";
  expect_all_permits_back();
  close(waits);
  close(fails_fast);
}

INSTANTIATE_TEST_SUITE_P(Seeds, GroupFaults,
                         ::testing::Combine(::testing::Values(1u, 2u, 4u),
                                            ::testing::Range(uint64_t{1}, uint64_t{5})),
                         [](const auto& param) {
                           return "R" + std::to_string(std::get<0>(param.param)) + "Seed" +
                                  std::to_string(std::get<1>(param.param));
                         });

}  // namespace
}  // namespace braid::trs::testing
