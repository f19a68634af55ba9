// What clients cost each other over TCP, where the server's own processor moves the data: one that
// sends or asks for as much as it can, by one connection or by many, with requests or without any,
// leaves an honest client 90 % of what it has alone.
//
// As in noisy_load_test.cc; in addition each byte that a socket of the server takes or gives costs
// what a copy does, each call of it what a system call does, and so does each frame that asks for
// nothing.
#include <gtest/gtest.h>

#include "bnbd/test_noisy.h"
#include "trs/test_keys.h"

namespace braid::bnbd {
namespace {

using test::ClientNode;
using test::kMaxIoBytes;
using test::kQueueDepth;
using test::NoisyLoad;
using test::RawClient;
using test::size_name;

constexpr uint32_t kConnections = 8;

class NoisyTcp : public NoisyLoad {
 protected:
  NoisyTcp() : NoisyLoad({.small_memories = kConnections, .tcp = true}) {
    window_ns = 2 * kWindowNs;  // its turns are longer, and what is done in them comes in bursts
  }
  /// Writes without end by many connections, into chunks of their own, which the server is never
  /// told of.
  void write_without_end(uint32_t bytes, uint64_t writes_at_least) {
    trs::testing::RawPeer& peer = add_peer();
    std::vector<std::unique_ptr<RawClient>> floods;
    for (uint32_t i = 0; i < kConnections; ++i) {
      floods.push_back(std::make_unique<RawClient>(peer, kQueueDepth, 2 * kMaxIoBytes,
                                                   RawClient::Kind::kBraid, i << 20));
      ASSERT_TRUE(until([&] { return floods.back()->has_session(); }));
    }
    const auto written = [&floods] {
      uint64_t sum = 0;
      for (const auto& flood : floods) sum += flood->written;
      return sum;
    };
    frames_sent = written;
    expect_its_share([&] {
      for (const auto& flood : floods) flood->keep_writing(1, bytes, 64);
    });
    EXPECT_GT(written(), writes_at_least) << "it was no flood";
    for (const auto& flood : floods) EXPECT_FALSE(flood->lost());
    frames_sent = nullptr;
  }
};

/// (operation, bytes of a request): all that a client may send of one kind.
class NoisyTcpOfEachSize : public NoisyTcp,
                           public testing::WithParamInterface<std::tuple<BlockOp, uint32_t>> {};

TEST_P(NoisyTcpOfEachSize, by_one_connection_leaves_others_theirs) {
  const auto [op, bytes] = GetParam();
  begin_honest();
  add_load("noisy", "memory", {.depth = kQueueDepth, .bytes = bytes, .op = op});
  expect_its_share_of_a_busy_server();
}

TEST_P(NoisyTcpOfEachSize, by_eight_connections_leaves_others_theirs) {
  const auto [op, bytes] = GetParam();
  begin_honest();
  add_sessions(kConnections, {.depth = kQueueDepth, .bytes = bytes, .op = op});
  expect_its_share_of_a_busy_server();
}

INSTANTIATE_TEST_SUITE_P(Operations, NoisyTcpOfEachSize,
                         testing::Combine(testing::Values(BlockOp::kRead, BlockOp::kWrite),
                                          testing::Values(4 << 10, 16 << 10, 64 << 10,
                                                          kMaxIoBytes)),
                         size_name);

TEST_F(NoisyTcp, who_writes_what_nobody_is_told_of_leaves_others_theirs) {
  begin_honest();
  write_without_end(kMaxIoBytes / 2, 100);
}

TEST_F(NoisyTcp, who_writes_nothing_at_all_without_end_leaves_others_theirs) {
  begin_honest();
  write_without_end(0, 50 * alone);
}

/// Nobody has his own answers kept back for ever by what he sends himself.
TEST_F(NoisyTcp, who_writes_without_end_has_its_long_reads_too) {
  begin_honest();
  ClientNode& client = add_client("mixed");
  const auto add = [&](const char* name, const test::LoadShape& shape) -> const test::Load& {
    return *loads.emplace_back(std::make_unique<test::Load>(client, open(client, name), shape));
  };
  add("memory", {.depth = 2, .bytes = kMaxIoBytes, .op = BlockOp::kWrite});
  const test::Load& reads =
      add("other-memory", {.depth = 1, .bytes = 64 << 10, .op = BlockOp::kRead});
  run(kWindowNs, {});
  const uint64_t before = reads.done();
  run(4 * kWindowNs, {});
  EXPECT_GT(reads.done(), before + 10);
}

/// With one session open, and connections of somebody who never opens any.
TEST_F(NoisyTcp, who_has_no_session_leaves_the_only_one_its_throughput) {
  begin_honest();
  trs::testing::RawPeer& peer = add_peer();
  crowd = std::make_unique<test::RawCrowd>(peer);
  ASSERT_TRUE(until([&] {
    if (crowd->accepted < 40) crowd->go_on();
    return crowd->accepted >= 40 && crowd->decided();
  }));
  peer.may_overrun = true;  // some may be evicted
  frames_sent = [this] { return crowd->written; };
  expect_its_share([&] { crowd->keep_writing_nothing(32); });
  EXPECT_GT(crowd->written, 50 * alone) << "it was no flood";
  frames_sent = nullptr;
}

class NoisyTcpWithKeys : public NoisyLoad {
 protected:
  NoisyTcpWithKeys()
      : NoisyLoad(
            {.keys = trs::testing::test_ring({trs::testing::test_key("clients")}), .tcp = true}) {
    session_options.transport.key = trs::testing::test_key("clients");
  }
};

/// What proofs cost is on the account of their address, what follows on that of their key.
TEST_F(NoisyTcpWithKeys, many_sessions_of_one_host_come_up_at_once) {
  begin_honest();
  ClientNode& client = add_client("many");
  std::vector<std::shared_ptr<std::optional<SessionResult>>> begun;
  for (int i = 0; i < 24; ++i) begun.push_back(begin_session(client, "many" + std::to_string(i)));
  const uint64_t began_ns = world.now_ns();
  EXPECT_TRUE(until([&] {
    return std::all_of(begun.begin(), begun.end(),
                       [](const auto& each) { return each->has_value(); });
  }));
  EXPECT_LT(world.now_ns() - began_ns, base::kSecond);
  for (const auto& each : begun) {
    ASSERT_TRUE((*each)->ok()) << (**each).error().message();
    client.more_sessions.push_back(std::move(**each).value());
  }
}

}  // namespace
}  // namespace braid::bnbd
