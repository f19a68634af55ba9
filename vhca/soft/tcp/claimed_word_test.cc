// An atomic on a word that a peer of another wire is at: it comes again until the word is free, and
// nothing behind it is executed, or received, before.
#include <gtest/gtest.h>

#include "vhca/soft/tcp/fake_test.h"

namespace braid::vhca::soft::tcp {
namespace {

using base::Errc;
using fake::Party;

class TcpClaimedWord : public ::testing::Test {
 protected:
  static std::unique_ptr<base::Host> quiet_host() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    return std::move(*base::create_linux_host(options));
  }
  const std::unique_ptr<base::Host> host = quiet_host();
  Party party{*host};
};

TEST_F(TcpClaimedWord, TheAtomicComesAgainAndWhatFollowsWaits) {
  party.end.claimed_looks = 3;
  party.feed(party.request(IBV_WR_RDMA_WRITE, 0, 8));
  party.feed(party.request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8));
  party.feed(party.request(IBV_WR_RDMA_WRITE, 2, 8));
  const std::vector<ibv_wr_opcode> first{IBV_WR_RDMA_WRITE};
  for (uint64_t look = 0; look < 3; ++look) {
    party.run();
    EXPECT_EQ(party.end.executed, first) << look;
    EXPECT_TRUE(party.stream.waits_for_word());
    EXPECT_TRUE(party.stream.stuck()) << "the socket would be watched, and readable for ever";
    EXPECT_EQ(party.events.claimed_words, look + 1) << "who looks after it is told each time";
  }
  party.run();
  const std::vector<ibv_wr_opcode> all{IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD,
                                       IBV_WR_RDMA_WRITE};
  EXPECT_EQ(party.end.executed, all);
  EXPECT_FALSE(party.stream.stuck());
  uint32_t responses = 0;
  for (const FrameHeader& frame : party.sent()) {
    if (static_cast<FrameKind>(frame.kind) != FrameKind::kResponse) continue;
    ++responses;
    EXPECT_EQ(uint64_t{frame.sequence}, 1u);
  }
  EXPECT_EQ(responses, 1u);
  EXPECT_EQ(party.events.why, Errc::kOk);
}

TEST_F(TcpClaimedWord, EachWaitIsToldOf) {
  for (uint64_t sequence = 0; sequence < 3; ++sequence) {
    party.end.claimed_looks = 1;
    party.feed(party.request(IBV_WR_ATOMIC_CMP_AND_SWP, sequence, 8));
    party.run();
    EXPECT_EQ(party.events.claimed_words, sequence + 1);
    party.run();
    EXPECT_EQ(party.end.executed.size(), sequence + 1);
  }
}

TEST_F(TcpClaimedWord, NothingMoreIsReceivedMeanwhile) {
  party.end.claimed_looks = 2;
  party.feed(party.request(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8));
  party.run();
  party.feed(party.request(IBV_WR_RDMA_WRITE, 1, 100'000));
  const size_t waits = party.socket.incoming.size();
  party.run();
  EXPECT_EQ(party.socket.incoming.size(), waits);
  while (!party.socket.incoming.empty()) party.run();
  EXPECT_EQ(party.end.executed.size(), 2u);
}

TEST_F(TcpClaimedWord, TheEndOfTheQueuePairEndsTheWait) {
  party.end.claimed_looks = 1000;
  party.feed(party.request(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8));
  party.run();
  ASSERT_TRUE(party.stream.waits_for_word());
  party.end.fail();
  party.run();
  EXPECT_FALSE(party.stream.stuck());
  EXPECT_TRUE(party.end.executed.empty());
  EXPECT_EQ(party.last_kind(), FrameKind::kGone);
}

}  // namespace
}  // namespace braid::vhca::soft::tcp
