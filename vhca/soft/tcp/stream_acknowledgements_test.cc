// When a stream tells the peer what it has executed: with what goes anyway, or alone, and that by a
// timer which its owner sets only where it can help.
#include <gtest/gtest.h>

#include <utility>

#include "vhca/soft/tcp/fake_test.h"

namespace braid::vhca::soft::tcp {
namespace {

using fake::Party;

class TcpStreamAcknowledgements : public ::testing::Test {
 protected:
  /// One request of ours is to be answered, and the next is queued before a full socket when the
  /// peer's comes, which it is to acknowledge.
  static void queue_before_full_socket(Party& party) {
    party.run();
    ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 8), Outcome::kSent);
    party.socket.send_room = 0;
    ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 8), Outcome::kSent);
    party.feed(party.request(IBV_WR_RDMA_WRITE, 0, 100));
  }
  const std::unique_ptr<base::Host> host = std::move(*base::create_linux_host({}));
};

TEST_F(TcpStreamAcknowledgements, an_acknowledgement_rides_on_what_the_owner_sends) {
  Party party(*host);
  party.run();  // says that it is ready
  party.feed(party.request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 100));
  party.run();
  EXPECT_TRUE(party.events.later);
  const size_t before = party.sent().size();
  ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 10), Outcome::kSent);
  ASSERT_EQ(party.sent().size(), before + 1);
  EXPECT_EQ(party.sent().back().acknowledged, 1u);
  party.stream.acknowledgement_due();
  party.run();
  EXPECT_EQ(party.sent().size(), before + 1) << "it was told already";
}

TEST_F(TcpStreamAcknowledgements, an_acknowledgement_that_nothing_carries_goes_alone) {
  Party party(*host);
  party.run();  // says that it is ready
  party.feed(party.request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 100));
  party.run();
  party.stream.acknowledgement_due();
  party.run();
  EXPECT_EQ(party.last_kind(), FrameKind::kAnswer);
  EXPECT_EQ(party.sent().back().acknowledged, 1u);
}

// Of a peer that reads nothing: what is queued carries it when the socket opens, and a timer that
// is set again by its own run would go round 10,000 times a second.
TEST_F(TcpStreamAcknowledgements, an_acknowledgement_that_is_queued_is_asked_for_once) {
  Party party(*host);
  party.run();
  party.socket.send_room = 0;
  party.feed(party.request(IBV_WR_RDMA_WRITE, 0, 100));
  party.run();
  ASSERT_EQ(party.end.executed.size(), 1u);
  EXPECT_TRUE(std::exchange(party.events.later, false));
  party.stream.acknowledgement_due();
  for (int i = 0; i < 3; ++i) {
    party.run();
    EXPECT_FALSE(party.events.later);
  }
  party.socket.send_room = SIZE_MAX;
  party.run();
  EXPECT_EQ(party.last_kind(), FrameKind::kAnswer);
  EXPECT_EQ(party.sent().back().acknowledged, 1u);
}

// Nothing else would: the timer was not set, for the request's sake.
TEST_F(TcpStreamAcknowledgements,
       an_acknowledgement_goes_though_the_request_that_carried_it_is_dropped) {
  Party party(*host);
  queue_before_full_socket(party);
  party.run();
  ASSERT_EQ(party.end.executed.size(), 1u);
  EXPECT_FALSE(party.events.later);
  const size_t before = party.sent().size();
  party.end.own_registered = false;
  party.socket.send_room = SIZE_MAX;
  party.stream.flush(party.end);
  ASSERT_FALSE(party.end.closed) << "its first request is still to be answered";
  ASSERT_EQ(party.sent().size(), before + 1);
  EXPECT_EQ(party.last_kind(), FrameKind::kAnswer);
  EXPECT_EQ(party.sent().back().acknowledged, 1u);
}

// The same of a request that was to go again, of which nothing is told.
TEST_F(TcpStreamAcknowledgements, one_goes_though_what_carried_it_was_of_before_rnr) {
  Party party(*host);
  queue_before_full_socket(party);
  party.feed(party.header(FrameKind::kNoReceive, 0));
  party.stream.run(&party.end, /*woken=*/true);
  ASSERT_EQ(party.end.executed.size(), 1u);
  ASSERT_EQ(party.end.not_received, 1);
  EXPECT_FALSE(party.events.later);
  const size_t before = party.sent().size();
  party.end.own_registered = false;
  party.socket.send_room = SIZE_MAX;
  party.stream.run(&party.end, /*woken=*/true);
  ASSERT_EQ(party.sent().size(), before + 1);
  EXPECT_EQ(party.last_kind(), FrameKind::kAnswer);
  EXPECT_EQ(party.sent().back().acknowledged, 1u);
}

}  // namespace
}  // namespace braid::vhca::soft::tcp
