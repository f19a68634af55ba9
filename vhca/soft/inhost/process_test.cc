// The in-host wire between processes: every operation, sleep without lost wake-ups, death at any
// moment, strangers and rubbish.
#include <sys/resource.h>

#include <iostream>
#include <random>

#include "vhca/soft/inhost/party_test.h"

namespace braid::vhca::soft::inhost {
namespace {

/// Answers each message on one connection until the peer goes: a SEND with the same bytes, a write
/// with immediate by one with imm + 1 that carries what the write brought. kStop ends it.
constexpr uint32_t kStop = 0xffffffff;
int echo_server(const PartyOptions& options, const std::function<void(uint32_t)>& tell,
                bool asleep = false) {
  Party party(options);
  tell(party.listen());
  party.make_qp();
  for (uint32_t i = 0; i < options.depth; ++i) {
    if (party.post_recv(i, 65536 + i * 4096, 4096) != 0) return 2;
  }
  if (!party.accept().ok()) return 3;
  for (uint32_t messages = 0;;) {
    const std::optional<Wc> wc = asleep ? party.next_asleep() : party.next();
    if (!wc) return 4;
    if (wc->status != IBV_WC_SUCCESS) return 0;  // the peer went
    if ((wc->opcode & IBV_WC_RECV) == 0) continue;
    const size_t offset = 65536 + wc->wr_id * 4096;
    const bool write = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    if (asleep) {  // answers at ever other moments, before, while and after the client falls asleep
      const uint32_t spins = ++messages * 7919 % 20'000;
      for (volatile uint32_t i = 0; i < spins;) i = i + 1;
    }
    if (write && be32toh(wc->imm_data) == kStop) return 0;
    const int error = write ? party.post_send(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, wc->byte_len, 8192,
                                              htobe32(be32toh(wc->imm_data) + 1))
                            : party.post_send(IBV_WR_SEND, 0, offset, wc->byte_len);
    if (error != 0 || party.post_recv(wc->wr_id, offset, 4096) != 0) return 5;
  }
}

void expect_next(Party& party, ibv_wc_opcode opcode) {
  for (;;) {
    const std::optional<Wc> wc = party.next();
    ASSERT_TRUE(wc.has_value());
    ASSERT_EQ(wc->status, IBV_WC_SUCCESS) << wc->status;
    if (wc->opcode == opcode) return;
  }
}

class BetweenProcesses : public testing::TestWithParam<std::pair<Memory, Memory>> {};

TEST_P(BetweenProcesses, EveryOperationWorksInBothDirections) {
  const PartyOptions mine{.memory = GetParam().first};
  const PartyOptions theirs{.memory = GetParam().second};
  Child server([&](const auto& tell) { return echo_server(theirs, tell); });
  Party client(mine);
  client.make_qp();
  for (uint32_t i = 0; i < 8; ++i) ASSERT_EQ(client.post_recv(i, 65536 + i * 4096, 4096), 0);
  const base::Status connected = client.connect(static_cast<uint16_t>(server.number()));
  ASSERT_TRUE(connected.ok()) << connected.error().message();

  for (size_t i = 0; i < 4096; ++i) client.buffer[i] = static_cast<std::byte>(i * 13);
  // 0..4095 to the server, back to 8192 and by READ to 16384.
  ASSERT_EQ(client.post_send(IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 4096, 0, htobe32(41)), 0);
  expect_next(client, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(std::memcmp(client.buffer.data() + 8192, client.buffer.data(), 4096), 0);
  ASSERT_EQ(client.post_send(IBV_WR_RDMA_READ, 2, 16384, 4000, 96), 0);
  expect_next(client, IBV_WC_RDMA_READ);
  EXPECT_EQ(std::memcmp(client.buffer.data() + 16384, client.buffer.data() + 96, 4000), 0);
  ASSERT_EQ(client.post_send(IBV_WR_SEND, 3, 100, 3000), 0);
  expect_next(client, IBV_WC_RECV);
  EXPECT_EQ(std::memcmp(client.buffer.data() + 65536 + 4096, client.buffer.data() + 100, 3000), 0);
  client.drop();
  EXPECT_EQ(server.wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Memory, BetweenProcesses,
                         testing::Values(std::pair{Memory::kSegment, Memory::kSegment},
                                         std::pair{Memory::kSegment, Memory::kForeign},
                                         std::pair{Memory::kForeign, Memory::kForeign}),
                         [](const auto& each) {
                           const auto word = [](Memory memory) {
                             return memory == Memory::kSegment ? "Segment" : "Foreign";
                           };
                           return std::string(word(each.param.first)) + word(each.param.second);
                         });

TEST(InHostProcessTest, ASleepingReceiverNeverLosesAWakeUp) {
  // Rare orders of events want many rounds; a busy machine gets fewer.
  constexpr uint32_t kRoundsMin = 10'000, kRoundsMax = 100'000;
  constexpr uint64_t kTimeNs = 5 * base::kSecond;
  Child server([](const auto& tell) { return echo_server({}, tell, true); });
  Party client;
  client.make_qp();
  for (uint32_t i = 0; i < 8; ++i) ASSERT_EQ(client.post_recv(i, 65536, 4096), 0);
  ASSERT_TRUE(client.connect(static_cast<uint16_t>(server.number())).ok());
  const uint64_t until_ns = client.host->now_ns() + kTimeNs;
  uint32_t round = 0;
  for (; round < kRoundsMin || (round < kRoundsMax && client.host->now_ns() < until_ns); ++round) {
    const int error =
        client.post_send(IBV_WR_RDMA_WRITE_WITH_IMM, round, 0, 8, 0, htobe32(2 * round));
    ASSERT_EQ(error, 0) << round;
    for (bool answered = false; !answered;) {
      const std::optional<Wc> wc = client.next_asleep();
      ASSERT_TRUE(wc.has_value()) << "asleep for ever in round " << round;
      ASSERT_EQ(wc->status, IBV_WC_SUCCESS);
      if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM) continue;
      ASSERT_EQ(be32toh(wc->imm_data), 2 * round + 1);
      ASSERT_EQ(client.post_recv(wc->wr_id, 65536, 4096), 0);
      answered = true;
    }
  }
  std::cout << round << " rounds, asleep " << client.sleeps << " times\n";
  EXPECT_GT(client.sleeps, 10U) << "the test was not about sleep";
  ASSERT_EQ(client.post_send(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 0, 0, htobe32(kStop)), 0);
  EXPECT_EQ(server.wait(), 0);
}

/// Keeps writes, sends and reads under way until the QP fails; the number of completions before, or
/// UINT32_MAX if none comes any more. No more messages are unanswered than the other side receives.
uint32_t load_until_failure(Party& party) {
  uint32_t sends = 0, unanswered = 0;
  for (uint32_t i = 0;; ++i) {
    constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_RDMA_READ,
                                          IBV_WR_RDMA_WRITE};
    const ibv_wr_opcode opcode = kOpcodes[unanswered < 32 ? i % 4 : 2 + i % 2];
    const uint32_t length = i % 7 == 0 ? 3500 : 8;
    if (sends < 32 && party.post_send(opcode, 0, 0, length) == 0) {
      ++sends;
      if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM || opcode == IBV_WR_SEND) ++unanswered;
    }
    const std::optional<Wc> wc = party.next();
    if (!wc) return UINT32_MAX;
    if (wc->status != IBV_WC_SUCCESS) return i;
    if ((wc->opcode & IBV_WC_RECV) == 0) {
      --sends;
      continue;
    }
    --unanswered;
    if (party.post_recv(wc->wr_id, 65536 + wc->wr_id * 4096, 4096) != 0) return i;
  }
}

TEST(InHostProcessTest, AKilledPeerEndsItsConnectionAndLeavesNothing) {
  std::mt19937 random(11);
  Party client({.depth = 128});
  std::optional<size_t> descriptors;
  for (int round = 0; round < 25; ++round) {
    Child server([](const auto& tell) { return echo_server({.depth = 128}, tell); });
    client.make_qp();
    for (uint32_t i = 0; i < 64; ++i) ASSERT_EQ(client.post_recv(i, 65536 + i * 4096, 4096), 0);
    ASSERT_TRUE(client.connect(static_cast<uint16_t>(server.number())).ok());
    bool told = false;
    client.connection->on_disconnect([&told] { told = true; });
    // A second child pulls the trigger after a while that differs from round to round.
    const uint32_t spins = random() % 2'000'000;
    Child killer([&server, spins](const auto&) {
      for (volatile uint32_t i = 0; i < spins;) i = i + 1;
      server.signal(SIGKILL);
      return 0;
    });
    EXPECT_NE(load_until_failure(client), UINT32_MAX) << "a completion never came";
    EXPECT_TRUE(client.run_until([&] { return told; }));
    EXPECT_TRUE(client.connection->disconnected());
    EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_ERR);
    client.mr.reset();  // does not wait for a dead peer
    client.register_buffer();
    client.drop();
    Wc wc{};
    while (client.cq->poll({&wc, 1}) == 1) continue;
    EXPECT_EQ(killer.wait(), 0);
    EXPECT_EQ(server.wait(), 128 + SIGKILL);
    if (round == 0) descriptors = open_descriptors();
  }
  EXPECT_LE(open_descriptors(), *descriptors);
}

TEST(InHostProcessTest, NobodyListensIsRefusedAndAnotherHostIsNotSupported) {
  Party party;
  party.make_qp();
  const uint16_t port = party.listen();
  party.listener.reset();
  EXPECT_EQ(party.connect(port).error().code(), base::Errc::kRefused);
  const Address elsewhere{.ip = "192.0.2.1", .port = port};
  auto result = party.reactor->run_until_done(
      party.device->connect(*party.reactor, *party.qp, elsewhere, {}, base::kSecond));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.code(), base::Errc::kNotSupported);
  EXPECT_NE(result.error().message().find("not an address of this host"), std::string::npos);
}

TEST(InHostProcessTest, APeerThatNeverAnswersTimesOut) {
  Child server([](const auto& tell) {
    Party party;
    tell(party.listen());
    return static_cast<int>(party.next().has_value());  // turns its reactor, decides nothing
  });
  Party client;
  client.make_qp();
  const base::Status status =
      client.connect(static_cast<uint16_t>(server.number()), 50 * base::kMillisecond);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), base::Errc::kTimedOut);
  EXPECT_EQ(client.qp->query().qp_state, IBV_QPS_INIT) << "the QP can be used for another try";
}

TEST(InHostProcessTest, AnotherUserIsRefusedByName) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  Party server;
  const uint16_t port = server.listen();
  Child client([port](const auto&) {
    if (::setuid(65534) != 0) return 2;
    Party party;
    party.make_qp();
    const base::Status status = party.connect(port);
    if (status.ok() || status.error().code() != base::Errc::kPermission) return 3;
    const bool named = status.error().message().find("user 0") != std::string::npos &&
                       status.error().message().find("user 65534") != std::string::npos;
    return named ? 0 : 4;
  });
  EXPECT_EQ(client.wait(), 0);
}

TEST(InHostProcessTest, RubbishAtTheListenerIsRefusedAndTheNextRequestServed) {
  Child server([](const auto& tell) { return echo_server({}, tell); });
  const auto port = static_cast<uint16_t>(server.number());
  Party client;
  const std::string name = "braid.cm.127.0.0.1." + std::to_string(port);
  for (uint8_t value : {0, 1, 0x42, 0xff}) {
    auto socket = std::move(*client.host->connect_local(name));
    const std::vector<std::byte> rubbish(value + 1, static_cast<std::byte>(value));
    ASSERT_TRUE(socket->send(rubbish).ok());
  }
  auto silent = std::move(*client.host->connect_local(name));
  client.make_qp();
  ASSERT_EQ(client.post_recv(0, 65536, 4096), 0);
  ASSERT_TRUE(client.connect(port).ok());
  ASSERT_EQ(client.post_send(IBV_WR_SEND, 3, 0, 20), 0);
  expect_next(client, IBV_WC_RECV);
}

TEST(InHostProcessTest, AListenerOutOfDescriptorsServesLater) {
  Child server([](const auto& tell) {
    Party party;
    const uint16_t port = party.listen();
    party.make_qp();
    rlimit whole{};
    ::getrlimit(RLIMIT_NOFILE, &whole);
    const rlimit none{0, whole.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    tell(port);
    const uint64_t until_ns = party.host->now_ns() + 60 * base::kMillisecond;
    uint64_t turns = 0;
    while (party.host->now_ns() < until_ns) turns += party.reactor->turn() ? 1 : 0;
    ::setrlimit(RLIMIT_NOFILE, &whole);
    if (turns > 100) return 2;  // it kept on trying
    return party.accept().ok() ? 0 : 3;
  });
  Party client;
  client.make_qp();
  const base::Status connected = client.connect(static_cast<uint16_t>(server.number()));
  EXPECT_TRUE(connected.ok()) << connected.error().message();
  EXPECT_EQ(server.wait(), 0);
}

TEST(InHostProcessTest, AScribblingPeerHarmsOnlyItsOwnConnection) {
  Child honest([](const auto& tell) { return echo_server({}, tell); });
  const auto honest_port = static_cast<uint16_t>(honest.number());
  for (unsigned seed = 0; seed < 8; ++seed) {
    Child scribbler([seed](const auto& tell) {
      Party party;
      tell(party.listen());
      party.make_qp();
      for (uint32_t i = 0; i < 32; ++i) (void)party.post_recv(i, 65536, 4096);
      if (!party.accept().ok()) return 2;
      std::mt19937 random(seed);
      const auto segments = mappings_of("braid-inbound");
      if (segments.size() != 2) return 3;
      // Mostly small values where the words are, so that some of it looks nearly right.
      for (int i = 0; i < 200'000; ++i) {
        const std::span<std::byte> segment = segments[random() % 2];
        const size_t reach = random() % 4 == 0 ? segment.size() : 8192;
        const size_t at = random() % (reach / 8) * 8;
        const uint64_t value = random() % 3 == 0 ? random() : random() % 40;
        std::memcpy(segment.data() + at, &value, 8);
      }
      return 0;
    });
    Party client;
    client.make_qp();
    for (uint32_t i = 0; i < 32; ++i) ASSERT_EQ(client.post_recv(i, 65536, 4096), 0);
    ASSERT_TRUE(client.connect(static_cast<uint16_t>(scribbler.number())).ok());
    EXPECT_NE(load_until_failure(client), UINT32_MAX);
    client.drop();
    scribbler.signal(SIGKILL);

    // The same device goes on with an honest peer.
    if (seed != 7) continue;
    client.make_qp();
    ASSERT_EQ(client.post_recv(0, 65536, 4096), 0);
    ASSERT_TRUE(client.connect(honest_port).ok());
    Wc stale{};
    while (client.cq->poll({&stale, 1}) == 1) continue;
    ASSERT_EQ(client.post_send(IBV_WR_SEND, 3, 0, 20), 0);
    expect_next(client, IBV_WC_RECV);
  }
}

}  // namespace
}  // namespace braid::vhca::soft::inhost
