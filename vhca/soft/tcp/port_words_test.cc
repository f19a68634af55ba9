// What a peer says of its port (kPort) against a stream: believed only where faults were allowed,
// and however often it is said it costs no more than a frame.
#include <gtest/gtest.h>

#include "vhca/soft/tcp/fake_test.h"

namespace braid::vhca::soft::tcp {
namespace {

using base::Errc;
using fake::Party;

constexpr uint64_t kFlood = 100'000;

class TcpPortWords : public ::testing::Test {
 protected:
  static std::unique_ptr<base::Host> quiet_host() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    return std::move(*base::create_linux_host(options));
  }
  static void say(Party& party, bool loses) {
    FrameHeader word = party.header(FrameKind::kPort);
    word.status = loses ? 1 : 0;
    party.feed(word);
  }
  /// Says it, and takes it back, and so on, in runs of as much as a run takes.
  static void flood(Party& party) {
    for (uint64_t i = 0; i < kFlood; ++i) {
      say(party, i % 2 == 0);
      if (i % 4096 == 0) party.run();
    }
    while (!party.socket.incoming.empty()) party.run();
  }
  const std::unique_ptr<base::Host> host = quiet_host();
  const std::shared_ptr<Port> port = std::make_shared<Port>();
};

TEST_F(TcpPortWords, ADeviceWithoutFaultsBelievesNone) {
  Party party(*host);
  ASSERT_EQ(party.post(IBV_WR_SEND, 8), Outcome::kSent);
  flood(party);
  say(party, true);
  party.run();
  EXPECT_FALSE(party.stream.hindered());
  EXPECT_EQ(party.events.port_words, 0u);
  EXPECT_EQ(party.events.why, Errc::kOk) << "it is no offence: a drill at the peer";
}

TEST_F(TcpPortWords, AFloodOfThemAsksForNothing) {
  Party party(*host, false, port);
  flood(party);
  EXPECT_EQ(party.events.port_words, 0u) << "nothing waits for the peer";
  EXPECT_FALSE(party.stream.looks_at_ports());
}

TEST_F(TcpPortWords, AFloodWhileARequestWaitsAsksOnceARun) {
  Party party(*host, false, port);
  ASSERT_EQ(party.post(IBV_WR_SEND, 8), Outcome::kSent);
  flood(party);
  EXPECT_GT(party.events.port_words, 0u);
  EXPECT_LE(party.events.port_words, 2 * (kFlood / 4096 + 2));
}

// Whoever waits is looked after, whether the word or the request came first, until he has his
// answer.
TEST_F(TcpPortWords, WhoWaitsForAPortThatLosesIsLookedAfter) {
  Party party(*host, false, port);
  ASSERT_EQ(party.post(IBV_WR_SEND, 8), Outcome::kSent);
  say(party, true);
  party.run();
  EXPECT_EQ(party.events.port_words, 1u);
  EXPECT_TRUE(party.stream.looks_at_ports());

  FrameHeader answer = party.header(FrameKind::kAnswer);
  answer.acknowledged = 1;
  party.feed(answer);
  party.run();
  party.run();
  EXPECT_EQ(party.end.answered, 1u);
  EXPECT_FALSE(party.stream.looks_at_ports());

  ASSERT_EQ(party.post(IBV_WR_SEND, 8), Outcome::kSent);
  EXPECT_EQ(party.events.port_words, 2u);
  EXPECT_TRUE(party.stream.looks_at_ports());
}

// The acceptor's peer may say it at once, and his own port's faults do not mind a flood.
TEST_F(TcpPortWords, BeforeThePeerIsReadyAndBesideALongResponse) {
  Party party(*host, /*awaits_ready=*/true, port);
  say(party, true);
  party.run();
  party.feed(party.header(FrameKind::kReady));
  party.run();
  ASSERT_TRUE(party.events.ready);

  // Half of a response has gone when the own port's word is due: it goes behind the frame.
  constexpr uint32_t kLong = 100'000;
  party.socket.send_room = 50'000;
  party.feed(party.request(IBV_WR_RDMA_READ, 0, kLong));
  party.run();
  PortFaults faults;
  faults.lose_answers = true;
  ASSERT_TRUE(port->set_faults(faults).ok());
  party.stream.port_changed();
  party.run();
  flood(party);
  party.socket.send_room = SIZE_MAX;
  party.run();
  const std::vector<FrameHeader> sent = party.sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(static_cast<FrameKind>(sent[0].kind), FrameKind::kResponse);
  EXPECT_EQ(sent[0].length, kLong);
  EXPECT_EQ(static_cast<FrameKind>(sent[1].kind), FrameKind::kPort);
  EXPECT_EQ(sent[1].status, 1);
  EXPECT_EQ(party.events.why, Errc::kOk);
}

}  // namespace
}  // namespace braid::vhca::soft::tcp
