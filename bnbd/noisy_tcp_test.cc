// What clients cost each other over TCP, where the server's own processor moves the data: one that
// sends or asks for as much as it can, by one connection or by many, with requests or without any,
// leaves an honest client 90 % of what it has alone.
//
// As in noisy_load_test.cc; in addition each byte that a socket of the server takes or gives costs
// what a copy does, and so does each frame that asks for nothing.
#include <gtest/gtest.h>

#include "bnbd/test_noisy.h"

namespace braid::bnbd {
namespace {

using test::ClientNode;
using test::kMaxIoBytes;
using test::kQueueDepth;
using test::LoadShape;
using test::NoisyLoad;
using test::RawClient;

constexpr uint32_t kConnections = 8;

class NoisyTcp : public NoisyLoad {
 protected:
  NoisyTcp() : NoisyLoad({.small_memories = kConnections, .tcp = true}) {}
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
  ClientNode& client = add_client("several");
  for (uint32_t i = 0; i < kConnections; ++i) {
    const std::string number = std::to_string(i);
    RemoteSession& session = i == 0 ? *client.session : add_session(client, "several" + number);
    RemoteDeviceOptions device;
    device.name = "small" + number;
    auto opened = try_open(client, std::move(device), &session);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    const LoadShape shape = {.depth = kQueueDepth, .bytes = bytes, .op = op};
    loads.push_back(std::make_unique<test::Load>(client, **opened, shape));
  }
  expect_its_share_of_a_busy_server();
}

std::string size_name(const testing::TestParamInfo<std::tuple<BlockOp, uint32_t>>& info) {
  const char* const op = std::get<0>(info.param) == BlockOp::kRead ? "Read" : "Write";
  return op + std::to_string(std::get<1>(info.param) >> 10) + "KiB";
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

}  // namespace
}  // namespace braid::bnbd
