// What clients cost each other whose requests are all in order: beside others that ask for as much
// as they can, an honest client keeps 90 % of what it has alone, as long as that is no more than
// its part of the server's processor, and who wants more gets its part.
//
// A turn of the server's reactor takes here as long as what was done in it; how fast the flood is
// made costs nothing. Simulated time, so it is the same in each run.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "bnbd/test_noisy.h"

namespace braid::bnbd {
namespace {

using test::ClientNode;
using test::kConnectNs;
using test::kMaxIoBytes;
using test::kQueueDepth;
using test::kSentBytes;
using test::Load;
using test::LoadShape;
using test::NoisyLoad;
using test::RawClient;
using test::RawCrowd;
using test::size_name;
using trs::testing::RawPeer;

TEST_F(NoisyLoad, small_requests_at_full_depth_leave_others_theirs) {
  begin_honest();
  const Load& flood = add_load("noisy", "memory", {.depth = kQueueDepth});
  expect_its_share();
  EXPECT_GT(flood.done(), 10 * alone) << "nor is it kept from what is left";
}

TEST_F(NoisyLoad, several_clients_at_full_depth_leave_others_theirs) {
  begin_honest();
  for (const char* name : {"memory", "other-memory", "third-memory"})
    add_load(name, name, {.depth = kQueueDepth});
  expect_its_share_of_a_busy_server();
}

/// Connections that are silent cost a turn nothing, whoever has them.
TEST_F(NoisyLoad, who_is_idle_by_many_connections_costs_others_nothing) {
  begin_honest();
  const auto polls = [this] { return server->transport_statistics().polls; };
  const uint64_t before = polls();
  measure(*honest);
  const uint64_t polls_alone = polls() - before;
  ClientNode& client = add_client("idle");
  for (int i = 0; i < 40; ++i) add_session(client, "idle" + std::to_string(i));
  run(kWindowNs, {});
  const uint64_t before_beside = polls();
  expect_its_share();
  EXPECT_LT(polls() - before_beside, 2 * polls_alone);
}

/// (operation, bytes of a request): all that a client may send of one kind.
class NoisyLoadOfEachSize : public NoisyLoad,
                            public testing::WithParamInterface<std::tuple<BlockOp, uint32_t>> {};

TEST_P(NoisyLoadOfEachSize, leaves_others_theirs) {
  const auto [op, bytes] = GetParam();
  begin_honest();
  add_load("noisy", "memory", {.depth = kQueueDepth, .bytes = bytes, .op = op});
  expect_its_share_of_a_busy_server();
}

INSTANTIATE_TEST_SUITE_P(Operations, NoisyLoadOfEachSize,
                         testing::Combine(testing::Values(BlockOp::kRead, BlockOp::kWrite),
                                          testing::Values(4 << 10, 8 << 10, 16 << 10, 32 << 10,
                                                          64 << 10, 1 << 20)),
                         size_name);

/// With chunks that are guarded by copies. A memory device would move its data itself.
class NoisyGuarded : public NoisyLoad,
                     public testing::WithParamInterface<std::tuple<BlockOp, uint32_t>> {
 protected:
  NoisyGuarded() : NoisyLoad({.null_devices = 1, .guard = trs::ChunkGuard::kCopy}) {}
};

TEST_P(NoisyGuarded, leaves_others_theirs) {
  const auto [op, bytes] = GetParam();
  begin_honest();
  const Load& flood = add_load("noisy", "null0", {.depth = kQueueDepth, .bytes = bytes, .op = op});
  expect_its_share_of_a_busy_server();
  EXPECT_GE(copied_bytes(), op == BlockOp::kWrite ? flood.done() * bytes : 0);
}

INSTANTIATE_TEST_SUITE_P(Operations, NoisyGuarded,
                         testing::Combine(testing::Values(BlockOp::kRead, BlockOp::kWrite),
                                          testing::Values(4 << 10, 16 << 10, 32 << 10, 64 << 10,
                                                          1 << 20)),
                         size_name);

TEST_F(NoisyLoad, clears_of_a_mebibyte_leave_others_theirs) {
  begin_honest();
  add_load("noisy", "memory",
           {.depth = kQueueDepth, .bytes = kMaxIoBytes, .op = BlockOp::kWriteZeroes});
  add_load("discarding", "other-memory",
           {.depth = kQueueDepth, .bytes = kMaxIoBytes, .op = BlockOp::kDiscard});
  expect_its_share_of_a_busy_server();
}

TEST_F(NoisyLoad, two_who_clear_get_half_each_whatever_their_depth) {
  const LoadShape shape = {.depth = kQueueDepth, .bytes = kMaxIoBytes, .op = BlockOp::kWriteZeroes};
  const Load& noisy = add_load("noisy", "memory", shape);
  LoadShape modest = shape;
  modest.depth = 2;
  const Load& its = add_load("modest", "other-memory", modest);
  expect_half_each(its, noisy);
}

TEST_F(NoisyLoad, who_waits_for_a_slow_disk_has_its_share_beside_clears) {
  disk->faults.slow_factor = 150;  // about 10 ms a request: seldom there to be seen
  window_ns = 40 * kWindowNs;
  begin_honest(40);
  add_load("noisy", "memory",
           {.depth = kQueueDepth, .bytes = kMaxIoBytes, .op = BlockOp::kWriteZeroes});
  expect_its_share_of_a_busy_server();
}

// What came before the last part is seen by the memory only.
TEST_F(NoisyLoad, long_reads_are_sent_in_parts_if_there_are_others) {
  constexpr uint32_t kBytes = 256 << 10;
  RawClient& linux_client = add_raw(RawClient::Kind::kLinux);
  const auto ask = [&](const auto& message, std::span<std::byte> place) {
    linux_client.ask(1, message, place);
    ASSERT_TRUE(until([&] { return !linux_client.take_answers().empty(); }));
  };
  ask(wire::make_open("memory", wire::AccessMode::kReadOnly).value(), linux_client.answer(1));
  wire::Io io;
  io.header.type = static_cast<uint16_t>(wire::MessageType::kIo);
  std::memcpy(&io.device_id, linux_client.answer(1).data() + 4, sizeof(io.device_id));
  io.length_bytes = kBytes;
  const std::span<std::byte> place = linux_client.block(kBytes);
  for (const bool others : {false, true}) {
    if (others) add_client("other");
    std::memset(place.data(), 0xee, place.size());
    ask(io, place);
    EXPECT_EQ(linux_client.last_answer_bytes(), others ? kSentBytes : kBytes);
    const auto clear = [](std::byte byte) { return byte == std::byte{0}; };
    EXPECT_TRUE(std::all_of(place.begin(), place.end(), clear));
  }
}

class NoisyReactor : public NoisyLoad {
 protected:
  NoisyReactor() : NoisyLoad({.reactors = 2}) {}
};

TEST_F(NoisyReactor, who_floods_from_another_reactor_leaves_others_theirs) {
  client_reactors = 2;  // the connection of the second is served by the server's second
  begin_honest();
  for (const char* name : {"memory", "other-memory", "third-memory"})
    add_load(name, name, {.depth = kQueueDepth - 2, .reactor = 1});
  expect_its_share_of_a_busy_server();
  EXPECT_GT(server->statistics().handed_over, 10 * alone);
}

TEST_F(NoisyLoad, who_wants_more_than_its_part_gets_its_part_whatever_the_others_depth) {
  const Load& noisy = add_load("noisy", "memory", {.depth = kQueueDepth});
  const Load& its = add_load("modest", "other-memory", {.depth = 10});
  expect_half_each(its, noisy);
}

/// Eight sessions of one client beside one of another; each wants more than its part.
class NoisySessions : public NoisyLoad, public testing::WithParamInterface<LoadShape> {
 protected:
  static constexpr uint32_t kSessions = 8;
  NoisySessions() : NoisyLoad({.small_memories = kSessions}) {}
  uint64_t done_by_all() const {
    uint64_t done = 0;
    for (const auto& load : loads) done += load->done();
    return done;
  }
};

TEST_P(NoisySessions, have_one_part_together) {
  const Load& its = add_load("one", "memory", GetParam());
  add_sessions(kSessions, GetParam());
  run(kWindowNs / 4, {});
  const uint64_t its_before = its.done(), all_before = done_by_all();
  run(kWindowNs, {});
  const uint64_t done = its.done() - its_before, by_all = done_by_all() - all_before;
  EXPECT_GT(by_all, 50u);
  EXPECT_GE(done * 100, by_all * 45);
}

INSTANTIATE_TEST_SUITE_P(
    Of, NoisySessions,
    testing::Values(LoadShape{.depth = kQueueDepth, .op = BlockOp::kRead},
                    LoadShape{.depth = 8, .bytes = 64 << 10, .op = BlockOp::kRead},
                    LoadShape{.depth = 8, .bytes = kMaxIoBytes, .op = BlockOp::kWriteZeroes}),
    [](const auto& param) {
      return std::string(to_string(*param.param.op) == "read" ? "Read" : "Clear") +
             std::to_string(param.param.bytes >> 10) + "KiB";
    });

/// However many sessions one has, each of them goes on, and who came first has no more.
TEST_P(NoisySessions, each_goes_on_as_the_others_of_its_client) {
  add_sessions(2, GetParam());
  const Load& its = add_load("one", "memory", GetParam());
  run(kWindowNs / 4, {});
  const uint64_t before[] = {loads[0]->done(), loads[1]->done(), its.done()};
  run(2 * kWindowNs, {});
  const uint64_t done[] = {loads[0]->done() - before[0], loads[1]->done() - before[1],
                           its.done() - before[2]};
  EXPECT_GE(done[0] * 100, (done[0] + done[1]) * 40);
  EXPECT_GE(done[1] * 100, (done[0] + done[1]) * 40);
  EXPECT_GE(done[2] * 100, (done[0] + done[1] + done[2]) * 45);
  EXPECT_LE(done[2] * 100, (done[0] + done[1] + done[2]) * 55);
}

class NoisyPair : public NoisyLoad, public testing::WithParamInterface<uint32_t> {};

TEST_P(NoisyPair, who_want_the_same_have_the_same) {
  const LoadShape shape = {.depth = kQueueDepth, .bytes = GetParam(), .op = BlockOp::kRead};
  const Load& first = add_load("first", "memory", shape);
  const Load& second = add_load("second", "other-memory", shape);
  expect_half_each(first, second);
  expect_half_each(second, first);
}

INSTANTIATE_TEST_SUITE_P(Of, NoisyPair,
                         testing::Values(4 << 10, 8 << 10, 16 << 10, 32 << 10, 1 << 20));

class NoisyOpener : public NoisyLoad {
 protected:
  NoisyOpener() : NoisyLoad({.null_devices = kQueueDepth}) {}
  void open_and_close_without_end(const std::string& name, const char* suffix,
                                  wire::AccessMode mode) {
    RawClient& flood = add_raw();
    std::vector<bool> opening(kQueueDepth, true);
    const auto open_its = [&](uint32_t chunk) {
      flood.ask(chunk, wire::make_open(name + std::to_string(chunk) + suffix, mode).value());
    };
    for (uint32_t chunk = 1; chunk < kQueueDepth; ++chunk) open_its(chunk);
    expect_its_share([&] {
      for (const uint32_t chunk : flood.take_answers()) {
        if (opening[chunk]) {
          wire::Close close;
          close.header.type = static_cast<uint16_t>(wire::MessageType::kClose);
          std::memcpy(&close.device_id, flood.answer(chunk).data() + 4, sizeof(close.device_id));
          flood.ask(chunk, close);
        } else {
          open_its(chunk);
        }
        opening[chunk] = !opening[chunk];
      }
    });
    EXPECT_GT(server->statistics().closed, 100u) << "it was no flood";
    EXPECT_EQ(server->statistics().opens_refused, 0u);
    EXPECT_FALSE(flood.lost());
  }
};

TEST_F(NoisyOpener, who_opens_and_closes_without_end_leaves_others_theirs) {
  begin_honest();
  const uint64_t busy =
      busy_percent([&] { open_and_close_without_end("null", "", wire::AccessMode::kReadOnly); });
  EXPECT_GE(busy, 50u) << "it was no flood";
}

class NoisyFileOpener : public NoisyOpener {
 protected:
  NoisyFileOpener() {
    for (uint32_t i = 1; i < kQueueDepth; ++i)
      server_machine.add_disk("/exports/file" + std::to_string(i), {.size_bytes = 1 << 20});
  }
};

// Each has its file opened by a worker thread, and its tenure recorded; what they bring back goes
// on when all others' does.
TEST_F(NoisyFileOpener, who_opens_files_for_writing_without_end_leaves_others_theirs) {
  begin_honest();
  open_and_close_without_end("file", "", wire::AccessMode::kReadWrite);
}

TEST_F(NoisyLoad, who_asks_for_files_that_are_not_there_leaves_others_theirs) {
  begin_honest();
  RawClient& flood = add_raw();
  const auto ask = [&](uint32_t chunk) {
    const std::string name = "none" + std::to_string(++names_asked);
    flood.ask(chunk, wire::make_open(name, wire::AccessMode::kReadWrite).value());
  };
  for (uint32_t chunk = 1; chunk < kQueueDepth; ++chunk) ask(chunk);
  expect_its_share([&] {
    for (const uint32_t chunk : flood.take_answers()) ask(chunk);
  });
  EXPECT_GT(server->statistics().opens_refused, 100u) << "it was no flood";
  EXPECT_FALSE(flood.lost());
}

TEST_F(NoisyLoad, who_asks_for_news_without_end_leaves_others_theirs) {
  begin_honest();
  RawClient& flood = add_raw();
  for (uint32_t chunk = 1; chunk < kQueueDepth; ++chunk) flood.ask(chunk, wire::make_news(0));
  const uint64_t before = server->statistics().requests[0];
  expect_its_share([&] {
    for (const uint32_t chunk : flood.take_answers()) flood.ask(chunk, wire::make_news(0));
  });
  EXPECT_GT(server->statistics().requests[0] - before, 10 * alone) << "it was no flood";
  EXPECT_FALSE(flood.lost());
}

TEST_F(NoisyLoad, who_connects_without_end_leaves_others_theirs) {
  begin_honest();
  RawPeer& peer = add_peer();
  crowd = std::make_unique<RawCrowd>(peer);
  base::sim::charge_turns(peer.home(), [this] {
    return (crowd->begun - std::exchange(connects_charged, crowd->begun)) * kConnectNs;
  });
  const auto act = [&] { crowd->go_on(); };
  run(10 * kWindowNs, act);  // so many may come at once
  const uint64_t before = crowd->begun;
  expect_its_share(act);
  EXPECT_GT(crowd->begun - before, 500u) << "it was no flood";
  EXPECT_EQ(crowd->refusal, EAGAIN);
}

}  // namespace
}  // namespace braid::bnbd
