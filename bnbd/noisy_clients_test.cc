// What one client may cost the others: beside one that floods, breaks the protocol and comes back,
// reads no answers, stands still, holds all its permits, or has a slow disk, an honest client keeps
// 90 % of the throughput that it has alone. Counted in the simulator's time, so it is the same in
// each run; a turn of the server's reactor takes as long as the requests and paths in it.
#include <gtest/gtest.h>

#include <utility>

#include "bnbd/test_load.h"
#include "bnbd/test_noisy.h"
#include "bnbd/test_raw_client.h"

namespace braid::bnbd {
namespace {

using test::ClientNode;
using test::Load;
using test::RawClient;
using trs::testing::RawPeer;

constexpr uint32_t kRigQueueDepth = 16;  // that of test::Rig's server
constexpr uint32_t kChunkBytes = 128 << 10;
constexpr const char* kRawIp = "10.0.2.1";

class NoisyClients : public test::Rig {
 protected:
  NoisyClients() {
    other = &server_machine.add_disk("/exports/other.img", {.size_bytes = 4 << 20});
    start_server();
    ClientNode& honest = add_client("honest");
    load.emplace(honest, open(honest), test::LoadShape());
    base::sim::charge_turns(server_node->home(), [this] { return work_since_last_turn(); });
    run(kWindowNs / 4);  // until it flows
    alone = measure();
    EXPECT_GT(alone, 300u);
  }
  ~NoisyClients() override {
    load->stop();
    EXPECT_TRUE(until([&] { return load->idle(); }));
  }
  uint64_t work_since_last_turn() {
    uint64_t work_ns = raw ? raw->sessions * test::kPathNs : 0;
    for (const uint64_t requests : server->statistics().requests)
      work_ns += requests * test::kRequestNs;
    return work_ns - std::exchange(worked_ns, work_ns);
  }
  RawClient& add_raw() {
    auto& machine = world.add_machine("raw");
    world.fabric().add_port(machine, kRawIp);
    auto& host = machine.start_process("raw");
    auto program = std::make_unique<RawPeer>(host, kRawIp);
    raw_peer = program.get();
    host.run(std::move(program));
    return raw.emplace(*raw_peer, kRigQueueDepth, kChunkBytes);
  }
  void run(uint64_t for_ns, const std::function<void()>& act = {}) {
    test::run_acting(world, for_ns, act);
  }
  /// What the honest client gets done in a window.
  uint64_t measure(const std::function<void()>& act = {}) {
    const uint64_t before = load->done();
    run(kWindowNs, act);
    return load->done() - before;
  }
  /// The same beside who connects all the time, on average: as often as an address may go on when
  /// it has begun as many paths at once as it may (docs/trs.md, "Half-open sessions").
  uint64_t measure_connecting(const RawClient& who, const std::function<void()>& act) {
    constexpr uint64_t kWindows = 10;
    run(15 * kWindowNs, act);
    const uint64_t sessions = who.sessions;
    uint64_t done = 0;
    for (uint64_t i = 0; i < kWindows; ++i) done += measure(act);
    EXPECT_GT(who.sessions - sessions, 2 * kWindows) << "it did not go on";
    return done / kWindows;
  }
  void expect_its_share(uint64_t beside) {
    EXPECT_GE(beside * 10, alone * 9) << "it did " << alone << " alone";
    EXPECT_EQ(load->failed(), 0u);
    RecordProperty("share_percent", static_cast<int>(beside * 100 / alone));
  }
  bool until_session() {
    return until([&] { return raw->has_session(); });
  }

  static constexpr uint64_t kWindowNs = 20 * base::kMillisecond;
  base::sim::SimDisk* other = nullptr;
  std::optional<Load> load;
  uint64_t alone = 0;
  uint64_t worked_ns = 0;
  RawPeer* raw_peer = nullptr;
  std::optional<RawClient> raw;
};

TEST_F(NoisyClients, are_measured_so_that_a_loss_would_be_seen) {
  disk->faults.slow_factor = 2;
  EXPECT_LT(measure() * 10, alone * 9);
}

TEST_F(NoisyClients, who_floods_with_bad_requests_leaves_the_others_their_throughput) {
  RawClient& flood = add_raw();
  ASSERT_TRUE(until_session());
  for (uint32_t chunk = 1; chunk < kRigQueueDepth; ++chunk) flood.send_nonsense(chunk);
  uint64_t answers = 0;
  const auto act = [&] {
    for (const uint32_t chunk : flood.take_answers()) {
      flood.send_nonsense(chunk);
      ++answers;
    }
  };
  expect_its_share(measure(act));
  EXPECT_FALSE(flood.lost());
  EXPECT_GT(answers, 2 * alone) << "it was no flood";
  EXPECT_GT(server->statistics().requests_refused, 2 * alone);
}

TEST_F(NoisyClients, who_breaks_the_protocol_and_comes_back_at_once_leaves_them_theirs) {
  RawClient& breaker = add_raw();
  bool broken = false;
  const auto act = [&] {
    if (!broken && breaker.has_session()) {
      breaker.break_protocol();
      broken = true;
    } else if (broken && breaker.lost()) {
      breaker.again();
      broken = false;
    }
  };
  expect_its_share(measure_connecting(breaker, act));
}

TEST_F(NoisyClients, who_leaves_sessions_half_open_leaves_them_theirs) {
  RawClient& opener = add_raw();
  expect_its_share(measure_connecting(opener, [&] { opener.leave_half_open(8); }));
  EXPECT_GT(server->transport_statistics().sessions, 8u);
}

TEST_F(NoisyClients, who_reads_no_answers_leaves_them_theirs) {
  RawClient& stalled = add_raw();
  ASSERT_TRUE(until_session());
  for (uint32_t chunk = 1; chunk < kRigQueueDepth; ++chunk) stalled.send_nonsense(chunk);
  // It never looks again; in time the server, which hears nothing, cuts it off.
  expect_its_share(measure());
  uint64_t slowest = alone;
  for (int window = 0; window < 60; ++window) slowest = std::min(slowest, measure());
  expect_its_share(slowest);
  EXPECT_EQ(server->sessions().size(), 1u);
}

TEST_F(NoisyClients, who_stands_still_under_load_leaves_them_theirs) {
  ClientNode& stopped = add_client("stopped");
  Load its(stopped, open(stopped, "other.img"), {.depth = 32});
  run(kWindowNs / 4);
  stopped.host.pause();
  uint64_t slowest = alone;
  for (int window = 0; window < 60; ++window) slowest = std::min(slowest, measure());
  expect_its_share(slowest);
  EXPECT_EQ(server->sessions().size(), 1u) << "it has been cut off";
  its.stop();
  stopped.host.resume();
  EXPECT_TRUE(until([&] { return its.idle(); }));
}

TEST_F(NoisyClients, who_holds_all_its_permits_leaves_them_theirs) {
  ClientNode& holder = add_client("holder");
  RemoteDevice& its_device = open(holder, "other.img");
  other->faults.stalled_until_ns = world.now_ns() + 11 * kWindowNs;
  Load its(holder, its_device, {.depth = 64});
  uint64_t slowest = alone;
  for (int window = 0; window < 10; ++window) slowest = std::min(slowest, measure());
  EXPECT_EQ(its.done(), 0u);
  EXPECT_GE(its_device.status().in_progress, kRigQueueDepth - 2) << "it does not hold them";
  expect_its_share(slowest);
  its.stop();
  EXPECT_TRUE(until([&] { return its.idle(); }));
}

TEST_F(NoisyClients, whose_disk_is_slow_leaves_them_theirs) {
  ClientNode& slow = add_client("slow");
  RemoteDevice& its_device = open(slow, "other.img");
  other->faults.slow_factor = 50;
  Load its(slow, its_device, {.depth = 64});
  expect_its_share(measure());
  EXPECT_GT(its.done(), 10u);
  EXPECT_GT(other->counters().slow, 10u);
  its.stop();
  EXPECT_TRUE(until([&] { return its.idle(); }));
}

}  // namespace
}  // namespace braid::bnbd
