// Registered memory of the in-host wire: segments that come and go while connections stand, and
// the promise that deregistered memory is left alone.
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "vhca/soft/inhost/party_test.h"

namespace braid::vhca::soft::inhost {
namespace {

constexpr int kRemoteAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct Late {
  std::unique_ptr<base::Segment> segment;
  std::unique_ptr<Mr> mr;
};
Late register_late(Party& party, size_t bytes) {
  Late late;
  late.segment = std::move(*party.host->create_segment(bytes, "late"));
  late.mr = std::move(*party.pd->reg_mr(late.segment->data(), bytes, kRemoteAccess));
  return late;
}
void aim(Party& at, const Late& target) {
  at.peer = {reinterpret_cast<uint64_t>(target.segment->data()), target.mr->rkey,
             static_cast<uint32_t>(target.segment->size())};
}

TEST(InHostMemoryTest, ASegmentRegisteredAfterConnectingIsReachedAtOnce) {
  Party client, server;
  ASSERT_TRUE(connect_pair(client, server));
  const Late late = register_late(server, 8192);
  // Neither reactor turns between registration and use.
  aim(client, late);
  client.buffer[0] = std::byte{42};
  ASSERT_EQ(client.post_send(IBV_WR_RDMA_WRITE, 1, 0, 1, 8191), 0);
  Wc wc{};
  ASSERT_EQ(client.cq->poll({&wc, 1}), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(late.segment->data()[8191], std::byte{42});
}

/// What this process has mapped of inbound segments.
size_t inbound_bytes_mapped() {
  std::ifstream maps("/proc/self/maps");
  size_t all = 0;
  for (std::string line; std::getline(maps, line);) {
    size_t begin = 0, end = 0;
    if (line.find("memfd:braid-inbound") == std::string::npos) continue;
    EXPECT_EQ(std::sscanf(line.c_str(), "%zx-%zx", &begin, &end), 2) << line;
    all += end - begin;
  }
  return all;
}

TEST(InHostMemoryTest, RoomForSendsIsForThoseThatAreExpected) {
  const size_t before = inbound_bytes_mapped();
  size_t usual = 0;
  {
    Party client, server;
    ASSERT_TRUE(connect_pair(client, server));
    usual = inbound_bytes_mapped() - before;
  }
  ASSERT_EQ(inbound_bytes_mapped(), before);
  Party client({.longest_receive_bytes = 64}), server({.longest_receive_bytes = 2000});
  ASSERT_TRUE(connect_pair(client, server));
  // Each of the two segments is mapped at both ends, by one process here.
  EXPECT_EQ(usual - (inbound_bytes_mapped() - before), 2 * (65536 - 4096) + 2 * (65536 - 8192));
}

/// Of each mapping of an inbound segment in this process, by address: how much is there, of it all.
std::map<size_t, std::pair<size_t, size_t>> inbound_kib_there() {
  std::ifstream smaps("/proc/self/smaps");
  std::map<size_t, std::pair<size_t, size_t>> all;
  std::pair<size_t, size_t>* now = nullptr;
  for (std::string line; std::getline(smaps, line);) {
    size_t begin = 0, end = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx", &begin, &end) == 2) {
      const bool inbound = line.find("memfd:braid-inbound") != std::string::npos;
      now = inbound ? &all[begin] : nullptr;
      if (inbound) now->second = (end - begin) / 1024;
    } else if (now != nullptr && std::sscanf(line.c_str(), "Rss: %zu kB", &kib) == 1) {
      now->first = kib;
    }
  }
  return all;
}

TEST(InHostMemoryTest, RingsHaveTheirMemoryBeforeTheFirstMessage) {
  const auto before = inbound_kib_there();
  Party client, server;
  ASSERT_TRUE(connect_pair(client, server));
  size_t ours = 0;
  for (const auto& [address, kib] : inbound_kib_there()) {
    if (before.contains(address)) continue;
    ++ours;
    EXPECT_GT(kib.second, 0u);
    EXPECT_EQ(kib.first, kib.second);
  }
  EXPECT_EQ(ours, 4u);  // two segments, each at both ends
}

TEST(InHostMemoryTest, SegmentsThatGoAreUnmappedByPeers) {
  Party client, server;
  ASSERT_TRUE(connect_pair(client, server));
  for (int i = 0; i < 3000; ++i) {
    Late late = register_late(server, 4096);
    aim(client, late);
    client.buffer[0] = static_cast<std::byte>(i);
    ASSERT_EQ(client.post_send(IBV_WR_RDMA_WRITE, 1, 0, 1), 0);
    Wc wc{};
    ASSERT_EQ(client.cq->poll({&wc, 1}), 1);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << i;
    ASSERT_EQ(late.segment->data()[0], static_cast<std::byte>(i));
    late.mr.reset();
    if (i % 10 == 0) client.reactor->turn();
  }
  EXPECT_TRUE(client.run_until([&] { return mappings_of("braid-late").empty(); }));
}

TEST(InHostMemoryTest, ManySegmentsAtATimeAreKnownToANewPeer) {
  Party client, server;
  std::vector<Late> segments;
  for (int i = 0; i < 100; ++i) segments.push_back(register_late(server, 4096));
  ASSERT_TRUE(connect_pair(client, server));
  for (const Late& late : segments) {
    aim(client, late);
    ASSERT_EQ(client.post_send(IBV_WR_RDMA_READ, 1, 0, 4096), 0);
    Wc wc{};
    ASSERT_EQ(client.cq->poll({&wc, 1}), 1);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  }
}

/// As who is not root: its sockets hold some hundreds of datagrams.
class WithoutNetAdmin {
 public:
  WithoutNetAdmin() {
    EXPECT_EQ(::syscall(SYS_capget, &header_, before_), 0);
    __user_cap_data_struct less[2] = {before_[0], before_[1]};
    less[0].effective &= ~(1U << CAP_NET_ADMIN);
    EXPECT_EQ(::syscall(SYS_capset, &header_, less), 0);
  }
  ~WithoutNetAdmin() { EXPECT_EQ(::syscall(SYS_capset, &header_, before_), 0); }
  WithoutNetAdmin(const WithoutNetAdmin&) = delete;
  WithoutNetAdmin& operator=(const WithoutNetAdmin&) = delete;

 private:
  __user_cap_header_struct header_{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct before_[2] = {};
};

TEST(InHostMemoryTest, MoreSegmentsThanASocketHoldsAreKnownToANewPeer) {
  const WithoutNetAdmin small_sockets;
  Party client, server;
  std::vector<Late> of_server, of_client;
  for (int i = 0; i < 900; ++i) {
    of_server.push_back(register_late(server, 4096));
    of_client.push_back(register_late(client, 4096));
  }
  ASSERT_TRUE(connect_pair(client, server));
  for (size_t i : {0, 450, 899}) {
    aim(client, of_server[i]);
    ASSERT_EQ(client.post_send(IBV_WR_RDMA_READ, 1, 0, 4096), 0);
    Wc wc{};
    ASSERT_EQ(client.cq->poll({&wc, 1}), 1);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  }
}

// What a peer has been told of may go while it is being told of the rest.
TEST(InHostMemoryTest, SegmentsThatGoWhileAPeerIsToldOfThemAreUnmapped) {
  const WithoutNetAdmin small_sockets;
  constexpr size_t kSegments = 900;
  for (unsigned moment = 1; moment <= 20; ++moment) {
    Party client, server;
    const auto other_pd = std::move(*server.device->alloc_pd());
    std::vector<Late> segments;
    std::vector<std::unique_ptr<Mr>> kept;  // so that the segments stay exported
    for (size_t i = 0; i < kSegments; ++i) {
      segments.push_back(register_late(server, 4096));
      kept.push_back(
          std::move(*other_pd->reg_mr(segments.back().segment->data(), 4096, kRemoteAccess)));
    }
    unsigned turns = 0;
    const auto withdraw = [&] {
      if (++turns != moment) return;
      for (Late& late : segments) late.mr.reset();
    };
    ASSERT_TRUE(connect_pair(client, server, withdraw));
    EXPECT_GE(turns, moment) << "too late to test anything";
    kept.clear();
    segments.clear();
    const bool unmapped = client.run_until([&] {
      server.reactor->turn();
      return mappings_of("braid-late").empty();
    });
    ASSERT_TRUE(unmapped) << mappings_of("braid-late").size() << " are left, moment " << moment;
  }
}

TEST(InHostMemoryTest, MemoryThatNoPeerMayReachIsToldToNone) {
  Party client, server;
  const auto before = std::move(*server.host->create_segment(4096, "hidden"));
  const auto before_mr =
      std::move(*server.pd->reg_mr(before->data(), 4096, IBV_ACCESS_LOCAL_WRITE));
  ASSERT_TRUE(connect_pair(client, server));
  const auto after = std::move(*server.host->create_segment(4096, "hidden"));
  const auto after_mr = std::move(*server.pd->reg_mr(after->data(), 4096, IBV_ACCESS_LOCAL_WRITE));
  for (int i = 0; i < 20; ++i) client.reactor->turn();
  EXPECT_EQ(mappings_of("braid-hidden").size(), 2u) << "the owner's own";
}

TEST(InHostMemoryTest, MemoryOfAnotherDomainIsNotToldUntilItIsOfThis) {
  Party client, server;
  const auto other_pd = std::move(*server.device->alloc_pd());
  const auto segment = std::move(*server.host->create_segment(8192, "theirs"));
  auto others = std::move(*other_pd->reg_mr(segment->data(), 8192, kRemoteAccess));
  ASSERT_TRUE(connect_pair(client, server));
  const auto mapped = [&] {
    for (int i = 0; i < 20; ++i) client.reactor->turn();
    return mappings_of("braid-theirs").size() - 1;  // the owner's own
  };
  EXPECT_EQ(mapped(), 0u);
  const auto read = [&](const Mr& mr) {
    client.peer = {reinterpret_cast<uint64_t>(segment->data()), mr.rkey, 8192};
    EXPECT_EQ(client.post_send(IBV_WR_RDMA_READ, 1, 0, 4096), 0);
    Wc wc{};
    EXPECT_EQ(client.cq->poll({&wc, 1}), 1);
    return wc.status;
  };
  for (int round = 0; round < 3; ++round) {
    auto ours = std::move(*server.pd->reg_mr(segment->data(), 4096, kRemoteAccess));
    EXPECT_EQ(read(*ours), IBV_WC_SUCCESS);
    EXPECT_EQ(mapped(), 1u);
    ours.reset();
    EXPECT_EQ(mapped(), 1u) << "kept while the segment has registrations";
  }
  others.reset();
  EXPECT_EQ(mapped(), 0u) << "the last one has gone";
  auto ours = std::move(*server.pd->reg_mr(segment->data(), 4096, kRemoteAccess));
  EXPECT_EQ(read(*ours), IBV_WC_SUCCESS);
  others = std::move(*other_pd->reg_mr(segment->data(), 8192, kRemoteAccess));
  EXPECT_EQ(read(*others), IBV_WC_REM_ACCESS_ERR) << "its key is for the other domain";
}

TEST(InHostMemoryTest, ManySegmentsOfOtherDomainsHoldUpNoNewPeer) {
  Party client, server;
  const auto other_pd = std::move(*server.device->alloc_pd());
  std::vector<Late> theirs;
  for (int i = 0; i < 600; ++i) {  // more than a socket takes unread
    Late late;
    late.segment = std::move(*server.host->create_segment(4096, "late"));
    late.mr = std::move(*other_pd->reg_mr(late.segment->data(), 4096, kRemoteAccess));
    theirs.push_back(std::move(late));
  }
  ASSERT_TRUE(connect_pair(client, server));
  const Late late = register_late(server, 4096);
  aim(client, late);
  client.buffer[0] = std::byte{42};
  ASSERT_EQ(client.post_send(IBV_WR_RDMA_WRITE, 1, 0, 1), 0);
  Wc wc{};
  ASSERT_EQ(client.cq->poll({&wc, 1}), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(late.segment->data()[0], std::byte{42});
}

TEST(InHostMemoryTest, AnOldKeyIsRefusedAndEndsTheQps) {
  Party client, server;
  ASSERT_TRUE(connect_pair(client, server));
  server.mr.reset();
  server.register_buffer();
  ASSERT_EQ(client.post_send(IBV_WR_RDMA_WRITE, 1, 0, 8), 0);
  Wc wc{};
  ASSERT_EQ(client.cq->poll({&wc, 1}), 1);
  EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(server.run_until([&] {
    Wc any{};
    (void)server.cq->poll({&any, 1});
    return server.qp->query().qp_state == IBV_QPS_ERR;
  }));
}

enum class End { kDeregister, kDrainQp };

/// The QP to ERR, until the last receive was flushed.
void drain(Party& party) {
  EXPECT_EQ(party.post_recv(77, 0, 8), 0);
  QpAttr attr{};
  attr.qp_state = IBV_QPS_ERR;
  EXPECT_TRUE(party.qp->modify(attr, IBV_QP_STATE).ok());
  const std::optional<Wc> wc = party.next();
  ASSERT_TRUE(wc.has_value());
  EXPECT_EQ(wc->status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc->wr_id, 77U);
}

class Withdrawal : public testing::TestWithParam<std::pair<Memory, End>> {};

TEST_P(Withdrawal, LeavesNoWriterBehind) {
  constexpr uint32_t kBytes = 1024 * 1024;  // long enough a copy to be met in the middle
  std::mt19937 random(5);
  PartyOptions theirs;
  theirs.memory = GetParam().first;
  theirs.buffer_bytes = kBytes;
  Party client, server(theirs);
  std::fill(client.buffer.begin(), client.buffer.end(), std::byte{0xee});
  uint64_t writes = 0;
  for (int round = 0; round < 60; ++round) {
    ASSERT_TRUE(connect_pair(client, server));
    std::atomic<bool> writing{false};
    bool clean = true;
    std::thread writer([&] {
      for (;;) {
        if (client.post_send(IBV_WR_RDMA_WRITE, 1, 0, kBytes) != 0) return;
        Wc wc{};
        while (client.cq->poll({&wc, 1}) == 0) continue;
        if (wc.status != IBV_WC_SUCCESS) return;
        ++writes;
        writing = true;
      }
    });
    while (!writing) std::this_thread::yield();
    const uint32_t spins = random() % 20'000;
    for (volatile uint32_t i = 0; i < spins;) i = i + 1;
    if (GetParam().second == End::kDeregister) {
      server.mr.reset();
    } else {
      drain(server);
    }
    // The memory is ours alone now. A copy under way would reach its end last.
    const std::span<std::byte> end = server.buffer.last(4096);
    std::fill(end.begin(), end.end(), std::byte{0});
    for (int look = 0; look < 50 && clean; ++look) {
      clean = std::all_of(end.begin(), end.end(), [](auto byte) { return byte == std::byte{0}; });
    }
    writer.join();
    client.drop();
    server.drop();
    server.register_buffer();
    ASSERT_TRUE(clean) << "round " << round;
  }
  EXPECT_GE(writes, 60U);
}

INSTANTIATE_TEST_SUITE_P(Memory, Withdrawal,
                         testing::Values(std::pair{Memory::kSegment, End::kDeregister},
                                         std::pair{Memory::kForeign, End::kDeregister},
                                         std::pair{Memory::kSegment, End::kDrainQp},
                                         std::pair{Memory::kForeign, End::kDrainQp}),
                         [](const auto& each) {
                           const bool segment = each.param.first == Memory::kSegment;
                           const bool mr = each.param.second == End::kDeregister;
                           return std::string(segment ? "Segment" : "Foreign") +
                                  (mr ? "Deregister" : "DrainQp");
                         });

}  // namespace
}  // namespace braid::vhca::soft::inhost
