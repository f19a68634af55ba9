// A stream that shares a budget of what may be moved (vhca/wire_budget.h): what is too much stays
// in the socket, and nothing else waits for it.
#include <gtest/gtest.h>

#include <utility>

#include "vhca/soft/tcp/fake_test.h"

namespace braid::vhca::soft::tcp {
namespace {

using base::Errc;
using fake::Party;

class TcpStreamBudget : public ::testing::Test {
 protected:
  /// Our next request finds that the peer, which has sent so many short requests, has closed.
  static void find_closed(Party& party, size_t requests) {
    for (size_t i = 0; i < requests; ++i) party.feed(party.request(IBV_WR_RDMA_WRITE, i, 0));
    party.socket.send_error = Errc::kDisconnected;
    ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 8), Outcome::kSent);
  }
  /// Established, and in a budget that has so many bytes left.
  static std::shared_ptr<WireBudget> bounded(Party& party, uint64_t bytes) {
    party.run();
    auto budget = std::make_shared<WireBudget>();
    budget->give(bytes);
    party.stream.share_budget(budget);
    return budget;
  }
  const std::unique_ptr<base::Host> host = std::move(*base::create_linux_host({}));
};

TEST_F(TcpStreamBudget, a_budget_that_is_used_up_leaves_the_rest_in_the_socket) {
  Party party(*host);
  auto budget = std::make_shared<WireBudget>();
  party.stream.share_budget(budget);
  party.feed(party.request(IBV_WR_RDMA_WRITE, 0, 100'000));
  const size_t all = party.socket.incoming.size();
  budget->give(8192);
  party.run();
  EXPECT_EQ(party.socket.incoming.size(), all - 8192);
  EXPECT_TRUE(party.stream.waits_for_turn());
  party.events.wants_read = false;
  party.run();
  EXPECT_EQ(party.socket.incoming.size(), all - 8192);
  EXPECT_TRUE(party.stream.waits_for_turn());
  EXPECT_FALSE(party.events.wants_read) << "it would be looked at in vain";
  while (!party.socket.incoming.empty()) {
    const size_t before = party.socket.incoming.size();
    budget->give(8192);
    budget->resume();
    party.run();
    // What calls cost is owed, so that there are turns in which nothing is received.
    ASSERT_GE(party.socket.incoming.size() + 8192, before);
  }
  ASSERT_EQ(party.end.executed.size(), 1u);
  for (uint32_t i = 0; i < 100'000; ++i) ASSERT_EQ(party.end.memory[i], Party::pattern(i, 1)) << i;
}

TEST_F(TcpStreamBudget, small_frames_use_a_budget_up_by_their_number) {
  Party party(*host);
  auto budget = std::make_shared<WireBudget>();
  budget->give(8192);
  party.stream.share_budget(budget);
  for (int i = 0; i < 1000; ++i) party.feed(party.request(IBV_WR_RDMA_WRITE, i, 0));
  party.run();
  const size_t at_once = party.end.executed.size();
  EXPECT_GT(at_once, 0u);
  int turns = 1;
  for (; party.end.executed.size() < 1000; ++turns) {
    budget->give(8192);
    budget->resume();
    party.run();
  }
  // All but those that the last call brought have been paid for.
  EXPECT_GE(turns, 800 * WireBudget::kFrameBytes / 8192);
}

TEST_F(TcpStreamBudget, a_frame_that_is_on_its_way_is_paid_for_once) {
  Party party(*host);
  auto budget = std::make_shared<WireBudget>();
  party.feed(party.request(IBV_WR_RDMA_WRITE, 0, 4096));
  const std::deque<std::byte> rest(party.socket.incoming.end() - 1000, party.socket.incoming.end());
  party.socket.incoming.erase(party.socket.incoming.end() - 1000, party.socket.incoming.end());
  const uint64_t frame = party.socket.incoming.size() + 1000;
  budget->give(1 << 20);
  party.stream.share_budget(budget);
  for (int i = 0; i < 10; ++i) party.run();
  party.socket.incoming = rest;
  party.run();
  ASSERT_EQ(party.end.executed.size(), 1u);
  const uint64_t acknowledgement = sizeof(FrameHeader) + WireBudget::kCallBytes;
  const uint64_t calls = 2 * WireBudget::kCallBytes + 9 * WireBudget::kEmptyCallBytes;
  const uint64_t paid = (1 << 20) - budget->most(1 << 20);
  EXPECT_GE(paid, frame + calls + WireBudget::kFrameBytes);
  EXPECT_LE(paid, frame + calls + WireBudget::kFrameBytes + 2 * acknowledgement);
}

TEST_F(TcpStreamBudget, what_has_been_received_needs_no_budget) {
  Party party(*host);
  auto budget = std::make_shared<WireBudget>();
  party.stream.share_budget(budget);
  party.socket.send_room = 10;
  party.end.receives = 0;
  for (uint64_t i = 0; i < 200; ++i) party.feed(party.request(IBV_WR_SEND, 0, 64));
  for (int i = 0; i < 10; ++i) party.run();
  ASSERT_TRUE(party.stream.stuck());
  budget->give(0);
  party.socket.send_room = SIZE_MAX;
  for (int i = 0; i < 10; ++i) party.run();
  EXPECT_FALSE(party.stream.stuck());
  EXPECT_GT(party.sent().size(), 100u) << "all that the buffer held is answered";
  EXPECT_FALSE(party.socket.incoming.empty());
}

TEST_F(TcpStreamBudget, who_leaves_a_budget_that_it_waits_for_is_looked_at_again) {
  Party party(*host);
  auto budget = std::make_shared<WireBudget>();
  budget->give(0);
  party.stream.share_budget(budget);
  party.feed(party.request(IBV_WR_RDMA_WRITE, 0, 100));
  party.run();
  ASSERT_TRUE(party.stream.waits_for_turn());
  party.events.wants_read = false;
  party.stream.share_budget(std::make_shared<WireBudget>());
  EXPECT_FALSE(budget->waits());
  EXPECT_FALSE(party.stream.waits_for_turn());
  EXPECT_TRUE(party.events.wants_read);
  party.run();
  EXPECT_EQ(party.end.executed.size(), 1u);
}

// Of a client that was killed with its sockets full.
TEST_F(TcpStreamBudget, the_last_words_of_a_peer_are_paid_for) {
  Party party(*host);
  party.run();
  auto budget = std::make_shared<WireBudget>();
  budget->give(8192);
  party.stream.share_budget(budget);
  constexpr size_t kFrames = 20'000;
  for (size_t i = 0; i < kFrames; ++i) party.feed(party.request(IBV_WR_RDMA_WRITE, i, 0));
  party.feed(party.header(FrameKind::kDisconnect, 0));
  party.socket.send_error = Errc::kDisconnected;
  ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 8), Outcome::kSent);
  size_t turns = 0;
  for (; party.events.why == Errc::kOk && turns < kFrames; ++turns) {
    const size_t before = party.socket.incoming.size();
    party.stream.run(&party.end, /*woken=*/true);
    // What a call brings may be more than there is: that is owed.
    ASSERT_LE(before - party.socket.incoming.size(), 2 * 8192u);
    budget->give(8192);
    budget->resume();
  }
  EXPECT_GE(turns, kFrames / 2 * WireBudget::kFrameBytes / 8192);
  EXPECT_TRUE(party.end.disconnected) << "the peer said why";
  EXPECT_FALSE(party.end.broken);
}

// Whoever shares with nobody goes by parts, too: the turn has other things to do.
TEST_F(TcpStreamBudget, last_words_come_in_parts) {
  Party party(*host);
  party.run();
  for (uint64_t i = 0; i < 20; ++i) party.feed(party.request(IBV_WR_RDMA_WRITE, i, 100'000));
  party.feed(party.header(FrameKind::kDisconnect, 0));
  const size_t all = party.socket.incoming.size();
  party.socket.send_error = Errc::kDisconnected;
  ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 8), Outcome::kSent);
  party.events.wants_read = false;
  party.stream.run(&party.end, /*woken=*/true);
  EXPECT_GT(party.socket.incoming.size(), all / 2);
  for (int i = 0; i < 20 && party.events.why == Errc::kOk; ++i) {
    EXPECT_TRUE(std::exchange(party.events.wants_read, false));
    party.stream.run(&party.end, /*woken=*/true);
  }
  EXPECT_TRUE(party.end.disconnected) << "the peer said why";
}

// What it has executed can be told to nobody any more.
TEST_F(TcpStreamBudget, whose_last_words_wait_asks_for_no_acknowledgement) {
  Party party(*host);
  const auto budget = bounded(party, 8192);
  find_closed(party, 2000);
  for (int i = 0; i < 2; ++i) {
    party.stream.run(&party.end, /*woken=*/true);
    ASSERT_TRUE(party.stream.waits_for_turn());
    ASSERT_FALSE(party.end.executed.empty());
    EXPECT_FALSE(party.events.later);
  }
}

TEST_F(TcpStreamBudget, who_is_closed_while_its_last_words_wait_ends_at_once) {
  Party party(*host);
  const auto budget = bounded(party, 0);
  find_closed(party, 100);
  party.stream.run(&party.end, /*woken=*/true);
  ASSERT_TRUE(party.stream.waits_for_turn());
  party.events.wants_read = false;
  party.end.fail();
  EXPECT_TRUE(party.events.wants_read) << "nobody else would come back to it";
  party.stream.run(&party.end, /*woken=*/true);
  EXPECT_EQ(party.events.why, Errc::kDisconnected);
  EXPECT_FALSE(party.socket.incoming.empty());
}

// The peer has refused a request of ours, which closes the queue pair: what follows is nobody's.
TEST_F(TcpStreamBudget, last_words_end_where_they_close_the_queue_pair) {
  Party party(*host);
  party.run();
  FrameHeader refused = party.header(FrameKind::kError, 0);
  refused.status = IBV_WC_REM_ACCESS_ERR;
  party.feed(refused);
  for (uint64_t i = 0; i < 20; ++i) party.feed(party.request(IBV_WR_RDMA_WRITE, i, 100'000));
  const size_t all = party.socket.incoming.size();
  ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 8), Outcome::kSent);
  party.socket.send_error = Errc::kDisconnected;
  ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 8), Outcome::kSent);
  for (int i = 0; i < 2; ++i) party.stream.run(&party.end, /*woken=*/true);
  EXPECT_TRUE(party.end.closed);
  EXPECT_EQ(party.events.why, Errc::kDisconnected);
  EXPECT_GT(party.socket.incoming.size(), all / 2);
}

TEST_F(TcpStreamBudget, a_farewell_needs_no_budget) {
  Party party(*host);
  party.run();
  auto budget = std::make_shared<WireBudget>();
  budget->give(0);
  party.stream.share_budget(budget);
  party.stream.hang_up();
  EXPECT_EQ(party.last_kind(), FrameKind::kDisconnect);
  EXPECT_EQ(budget.use_count(), 1);
}

}  // namespace
}  // namespace braid::vhca::soft::tcp
