// Atomics between processes: adders at one word lose nothing, CMP_SWP makes a lock that works, also
// when processes die at it. The owner of the word makes no call.
#include <sys/mman.h>
#include <unistd.h>

#include "vhca/soft/inhost/party_test.h"

namespace braid::vhca::soft::inhost {
namespace {

constexpr int kPeers = 3;
// Words of the owner's buffer.
constexpr size_t kCounter = 0, kLock = 64, kGuarded = 128, kFirst = 192, kSecond = 256, kGo = 320;
// Of a peer's.
constexpr size_t kAnswer = 0, kValue = 64, kAnswers = 128;
constexpr uint32_t kChain = 16;

uint64_t& word(const Party& party, size_t offset) {
  return *reinterpret_cast<uint64_t*>(party.buffer.data() + offset);
}

int post_atomic(Party& party, ibv_wr_opcode opcode, size_t remote_offset, uint64_t compare_add,
                uint64_t swap = 0) {
  Sge sge{reinterpret_cast<uint64_t>(party.buffer.data() + kAnswer), 8, party.mr->lkey};
  SendWr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.atomic = {.remote_addr = party.peer.address + remote_offset,
                  .compare_add = compare_add,
                  .swap = swap,
                  .rkey = party.peer.rkey};
  const SendWr* bad = nullptr;
  return party.qp->post_send(&wr, &bad);
}

/// Waits for what was posted. False if it failed.
bool ended(Party& party) {
  const std::optional<Wc> wc = party.next();
  return wc && wc->status == IBV_WC_SUCCESS;
}

/// What the word was; nothing if it failed.
std::optional<uint64_t> fetch_add(Party& party, size_t remote_offset, uint64_t add) {
  const bool done =
      post_atomic(party, IBV_WR_ATOMIC_FETCH_AND_ADD, remote_offset, add) == 0 && ended(party);
  return done ? std::optional(word(party, kAnswer)) : std::nullopt;
}
std::optional<uint64_t> compare_swap(Party& party, size_t remote_offset, uint64_t compare,
                                     uint64_t swap) {
  const bool done =
      post_atomic(party, IBV_WR_ATOMIC_CMP_AND_SWP, remote_offset, compare, swap) == 0 &&
      ended(party);
  return done ? std::optional(word(party, kAnswer)) : std::nullopt;
}
bool move(Party& party, ibv_wr_opcode opcode, size_t remote_offset) {
  return party.post_send(opcode, 0, kValue, 8, remote_offset) == 0 && ended(party);
}

/// Connects, and waits until all peers have and the owner says go.
bool begin(Party& party, uint16_t port) {
  party.make_qp();
  if (!party.connect(port).ok()) return false;
  for (word(party, kValue) = 0; word(party, kValue) == 0; party.host->yield()) {
    if (!move(party, IBV_WR_RDMA_READ, kGo)) return false;
  }
  return true;
}

/// The owner's memory, and a QP for each peer.
struct Owner : Party {
  using Party::Party;
  ~Owner() {
    connections.clear();
    qps.clear();
  }
  void accept_one() {
    make_qp();
    BRAID_ASSERT(accept().ok());
    connections.push_back(std::move(connection));
    qps.push_back(std::move(qp));
  }
  void accept_all() {
    for (int i = 0; i < kPeers; ++i) accept_one();
    __atomic_store_n(&word(*this, kGo), uint64_t{1}, __ATOMIC_RELEASE);
  }
  std::vector<std::unique_ptr<Qp>> qps;
  std::vector<std::unique_ptr<Connection>> connections;
};

/// Adds 1, kChain times at a post. False if one failed, or found less than the one before.
bool add_chain(Party& party, uint64_t& least) {
  std::array<Sge, kChain> sges{};
  std::array<SendWr, kChain> wrs{};
  for (size_t i = 0; i < kChain; ++i) {
    sges[i] = {reinterpret_cast<uint64_t>(&word(party, kAnswers + 8 * i)), 8, party.mr->lkey};
    wrs[i].next = i + 1 < kChain ? &wrs[i + 1] : nullptr;
    wrs[i].sg_list = &sges[i];
    wrs[i].num_sge = 1;
    wrs[i].opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wrs[i].send_flags = i + 1 < kChain ? 0 : IBV_SEND_SIGNALED;
    wrs[i].wr.atomic = {.remote_addr = party.peer.address + kCounter,
                        .compare_add = 1,
                        .swap = 0,
                        .rkey = party.peer.rkey};
  }
  const SendWr* bad = nullptr;
  if (party.qp->post_send(wrs.data(), &bad) != 0 || !ended(party)) return false;
  for (size_t i = 0; i < kChain; ++i) {
    const uint64_t before = word(party, kAnswers + 8 * i);
    if (before < least) return false;
    least = before + 1;
  }
  return true;
}

/// Adds 1 `count` times. Exit status.
int adder(Memory memory, uint16_t port, uint32_t count) {
  Party party({.memory = memory});
  if (!begin(party, port)) return 2;
  uint64_t least = 0;
  for (uint32_t i = 0; i < count; i += kChain) {
    if (!add_chain(party, least)) return 3;
  }
  return 0;
}

/// Takes the lock `count` times and adds 1 to what it guards, by READ and WRITE. Exit status.
int locker(Memory memory, uint16_t port, uint32_t count, uint64_t name) {
  Party party({.memory = memory});
  if (!begin(party, port)) return 2;
  for (uint32_t i = 0; i < count; ++i) {
    for (;;) {
      const std::optional<uint64_t> holder = compare_swap(party, kLock, 0, name);
      if (!holder) return 3;
      if (*holder == 0) break;
      party.host->yield();
    }
    if (!move(party, IBV_WR_RDMA_READ, kGuarded)) return 4;
    ++word(party, kValue);
    if (!move(party, IBV_WR_RDMA_WRITE, kGuarded)) return 5;
    const std::optional<uint64_t> holder = compare_swap(party, kLock, name, 0);
    if (!holder) return 6;
    if (*holder != name) return 7;  // somebody else had it too
  }
  return 0;
}

class AtomicsBetweenProcesses : public testing::TestWithParam<Memory> {
 protected:
  static constexpr uint64_t kStart = 0xffffff00;  // both halves of the word change
  uint32_t rounds(uint32_t in_segments) const {
    return GetParam() == Memory::kSegment ? in_segments : in_segments / 40;
  }
};

INSTANTIATE_TEST_SUITE_P(Memory, AtomicsBetweenProcesses,
                         testing::Values(Memory::kSegment, Memory::kForeign), [](const auto& each) {
                           return each.param == Memory::kSegment ? "Segment" : "Foreign";
                         });

TEST_P(AtomicsBetweenProcesses, ManyAddersLoseNothing) {
  const uint32_t count = rounds(kChain * 10'000);
  Owner owner({.memory = GetParam()});
  word(owner, kCounter) = kStart;
  const uint16_t port = owner.listen();
  std::vector<std::unique_ptr<Child>> adders;
  for (int i = 0; i < kPeers; ++i) {
    adders.push_back(
        std::make_unique<Child>([&](const auto&) { return adder(GetParam(), port, count); }));
  }
  owner.accept_all();
  uint64_t own = 0;
  if (GetParam() == Memory::kSegment) {
    // In segments the owner's own instructions are part of it.
    for (; own < count; ++own) {
      __atomic_fetch_add(&word(owner, kCounter), uint64_t{1}, __ATOMIC_RELAXED);
    }
  }
  for (const auto& each : adders) EXPECT_EQ(each->wait(), 0);
  EXPECT_EQ(word(owner, kCounter), kStart + own + uint64_t{kPeers} * count);
}

TEST_P(AtomicsBetweenProcesses, CompareSwapMakesALock) {
  const uint32_t count = rounds(6'000);
  Owner owner({.memory = GetParam()});
  const uint16_t port = owner.listen();
  std::vector<std::unique_ptr<Child>> lockers;
  for (int i = 0; i < kPeers; ++i) {
    lockers.push_back(std::make_unique<Child>([&](const auto&) {
      return locker(GetParam(), port, count, 0x100000001ull * static_cast<uint64_t>(i + 1));
    }));
  }
  owner.accept_all();
  for (const auto& each : lockers) EXPECT_EQ(each->wait(), 0);
  EXPECT_EQ(word(owner, kGuarded), uint64_t{kPeers} * count);
  EXPECT_EQ(word(owner, kLock), 0u);
}

/// Adds to two words in turn, for ever, and says after how many it goes on for good.
int endless_adder(Memory memory, uint16_t port, const std::function<void(uint32_t)>& tell) {
  constexpr uint32_t kWarm = 50;
  Party party({.memory = memory});
  party.make_qp();
  if (!party.connect(port).ok()) return 2;
  for (uint32_t i = 0;; ++i) {
    if (!fetch_add(party, kFirst, 1) || !fetch_add(party, kSecond, 1)) return 3;
    if (i == kWarm) tell(i);
  }
}

TEST_P(AtomicsBetweenProcesses, WhoDiesInTheMiddleLeavesTheWordToTheOthers) {
  constexpr int kDeaths = 12;
  Owner owner({.memory = GetParam()});
  const uint16_t port = owner.listen();
  for (int i = 0; i < kDeaths; ++i) {
    Child victim([&](const auto& tell) { return endless_adder(GetParam(), port, tell); });
    owner.accept_one();
    (void)victim.number();
    for (volatile int spin = 0; spin < i * 3000;) spin = spin + 1;  // at ever other moments
    victim.signal(SIGKILL);
    ASSERT_EQ(victim.wait(), 128 + SIGKILL);
    // It was in the middle of one pair.
    const uint64_t first = word(owner, kFirst), second = word(owner, kSecond);
    EXPECT_TRUE(first == second || first == second + 1) << first << " " << second;
    word(owner, kSecond) = first;
    Child next([&](const auto&) {
      Party party({.memory = GetParam()});
      party.make_qp();
      if (!party.connect(port).ok()) return 2;
      return fetch_add(party, kFirst, 1) && fetch_add(party, kSecond, 1) ? 0 : 3;
    });
    owner.accept_one();
    ASSERT_EQ(next.wait(), 0);
    ASSERT_EQ(word(owner, kFirst), first + 1);
    ASSERT_EQ(word(owner, kSecond), first + 1);
  }
}

TEST(InHostAtomicTest, AWordThatTheKernelCannotReachIsARemoteOperationError) {
  Owner owner({.memory = Memory::kForeign});
  const uint16_t port = owner.listen();
  Child child([&](const auto&) {
    Party party;
    party.make_qp();
    if (!party.connect(port).ok()) return 2;
    // A registration that has lost its pages: the kernel cannot reach the word.
    if (post_atomic(party, IBV_WR_ATOMIC_FETCH_AND_ADD, kCounter, 1) != 0) return 3;
    const std::optional<Wc> wc = party.next();
    return wc && wc->status == IBV_WC_REM_OP_ERR ? 0 : 4;
  });
  const int file = ::memfd_create("lost", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, 4096), 0);
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(page, MAP_FAILED);
  owner.mr.reset();
  owner.buffer = {static_cast<std::byte*>(page), 4096};
  owner.register_buffer();
  ASSERT_EQ(::ftruncate(file, 0), 0);
  owner.accept_one();
  EXPECT_EQ(child.wait(), 0);
  ::munmap(page, 4096);
  ::close(file);
}

}  // namespace
}  // namespace braid::vhca::soft::inhost
