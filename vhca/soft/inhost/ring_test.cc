// The rings of the in-host wire: sender and receiver over two mappings of one memfd, in one process
// and in two, and a sender that scribbles.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "vhca/soft/inhost/fence.h"
#include "vhca/soft/inhost/inbound_ring.h"
#include "vhca/soft/inhost/outbound_ring.h"

namespace braid::vhca::soft::inhost {
namespace {

constexpr Geometry kSmall = Geometry::for_receives(16, 4096);

TEST(GeometryTest, ThePayloadAreaIsForFourOfTheLongestSends) {
  constexpr uint32_t kMost = 65536;
  EXPECT_EQ(Geometry::payload_for(0, kMost), kMost);  // not known
  EXPECT_EQ(Geometry::payload_for(1, kMost), Geometry::kPayloadMin);
  EXPECT_EQ(Geometry::payload_for(1025, kMost), 8192u);
  EXPECT_EQ(Geometry::payload_for(16384, kMost), kMost);
  EXPECT_EQ(Geometry::payload_for(UINT32_MAX, kMost), kMost);
  EXPECT_EQ(Geometry::payload_for(64, Geometry::kPayloadMin), Geometry::kPayloadMin);
}

TEST(GeometryTest, EachReceiveHasASlotAndHalfAsManyAreToSpare) {
  for (uint32_t receives = 1; receives <= Geometry::kReceivesMax; receives += 7) {
    const Geometry geometry = Geometry::for_receives(receives, 4096);
    ASSERT_TRUE(geometry.valid()) << receives;
    ASSERT_GE(geometry.receives, receives);
    ASSERT_GE(geometry.slots, receives + receives / 2);
  }
  EXPECT_EQ(Geometry::for_receives(148, 4096).slots, 256u);
}

/// One memfd, mapped twice.
class TwoMappings {
 public:
  explicit TwoMappings(const Geometry& geometry) : size_(geometry.total_bytes()) {
    fd_ = memfd_create("ring_test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size_)), 0);
    owner_ = map();
    peer_ = map();
  }
  ~TwoMappings() {
    munmap(owner_, size_);
    munmap(peer_, size_);
    close(fd_);
  }
  std::byte* owner() const { return owner_; }
  std::byte* peer() const { return peer_; }

 private:
  std::byte* map() const {
    void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    EXPECT_NE(at, MAP_FAILED);
    return static_cast<std::byte*>(at);
  }
  size_t size_;
  int fd_;
  std::byte* owner_;
  std::byte* peer_;
};

class RingTest : public testing::Test {
 protected:
  explicit RingTest(const Geometry& geometry = kSmall)
      : memory(geometry),
        owner_view(memory.owner(), geometry),
        peer_view(memory.peer(), geometry),
        inbound(owner_view, false),
        outbound(peer_view, mark, true, false) {}

  static std::vector<std::byte> pattern(uint32_t bytes, uint32_t seed) {
    std::vector<std::byte> data(bytes);
    std::mt19937 random(seed);
    for (std::byte& byte : data) byte = static_cast<std::byte>(random());
    return data;
  }
  OutboundRing::Room send(std::vector<std::byte>& data, uint8_t flags = 0, uint32_t imm = 0) {
    pieces[0] = {.address = data.data(), .length = static_cast<uint32_t>(data.size())};
    Request request;
    request.imm = imm;
    request.length = pieces[0].length;
    request.pieces = {pieces.data(), 1};
    return outbound.push_send(request, flags);
  }
  Next next() { return inbound.next(arrival); }
  std::vector<std::byte> payload() const {
    return {arrival.payload.begin(), arrival.payload.end()};
  }

  TwoMappings memory;
  SegmentView owner_view;
  SegmentView peer_view;
  InboundRing inbound;
  CopyMark mark;
  OutboundRing outbound;
  std::array<Piece, 1> pieces;
  Arrival arrival;
};

using Room = OutboundRing::Room;

TEST_F(RingTest, AWriteWithImmediateArrivesWithItsFields) {
  inbound.post(0, true);
  ASSERT_EQ(outbound.ready(), Room::kReady);
  outbound.push_write_imm(0x11223344, 0, 4096, true);
  ASSERT_EQ(next(), Next::kArrival);
  EXPECT_EQ(arrival.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(arrival.imm, 0x11223344U);
  EXPECT_EQ(arrival.length, 4096U);
  EXPECT_TRUE(arrival.solicited);
  EXPECT_TRUE(arrival.has_imm);
  EXPECT_TRUE(arrival.payload.empty());
  inbound.pop();
  EXPECT_EQ(next(), Next::kNone);
}

TEST_F(RingTest, WithoutAReceiveThereIsNoCreditAndOneReceiveGivesOneMessage) {
  EXPECT_EQ(outbound.ready(), Room::kNoReceive);
  inbound.post(0, true);
  ASSERT_EQ(outbound.ready(), Room::kReady);
  outbound.push_write_imm(1, 0, 0, false);
  EXPECT_EQ(outbound.ready(), Room::kNoReceive);
  ASSERT_EQ(next(), Next::kArrival);
  inbound.pop();
  EXPECT_EQ(outbound.ready(), Room::kNoReceive);
  inbound.post(0, true);
  EXPECT_EQ(outbound.ready(), Room::kReady);
}

TEST_F(RingTest, SendsOfEverySizeArriveIntactThroughManyLaps) {
  const uint32_t capacity = 3 * kSmall.payload_bytes;
  for (uint32_t i = 0; i < 2000; ++i) {
    const uint32_t bytes = i < 100 ? i : (i * 7919) % kSmall.fragment_bytes();
    std::vector<std::byte> data = pattern(bytes, i);
    inbound.post(capacity, true);
    ASSERT_EQ(send(data, kSlotHasImm, i), Room::kReady) << bytes;
    ASSERT_EQ(next(), Next::kArrival) << bytes;
    ASSERT_EQ(arrival.length, bytes);
    ASSERT_EQ(arrival.imm, i);
    ASSERT_EQ(payload(), data);
    inbound.pop();
  }
}

TEST_F(RingTest, ASendLargerThanTheAreaGoesInFragmentsAsTheReceiverDrains) {
  const uint32_t bytes = 5 * kSmall.payload_bytes + 17;
  for (uint32_t round = 0; round < 20; ++round) {
    std::vector<std::byte> data = pattern(bytes, round);
    inbound.post(bytes, true);
    uint32_t turns = 0;
    while (send(data) == Room::kFull) {
      EXPECT_TRUE(outbound.in_fragments());
      ASSERT_EQ(next(), Next::kNone);
      ASSERT_LT(++turns, 100U);
    }
    EXPECT_GT(turns, 3U);
    EXPECT_FALSE(outbound.in_fragments());
    ASSERT_EQ(next(), Next::kArrival);
    EXPECT_EQ(payload(), data);
    ASSERT_EQ(next(), Next::kArrival) << "asking again gives the same";
    EXPECT_EQ(payload(), data);
    inbound.pop();
    EXPECT_EQ(next(), Next::kNone);
  }
}

TEST_F(RingTest, PiecesAreGatheredInOrder) {
  std::vector<std::byte> data = pattern(200, 5);
  const std::array<Piece, 4> four{Piece{data.data(), 1}, Piece{data.data() + 1, 0},
                                  Piece{data.data() + 1, 120}, Piece{data.data() + 121, 79}};
  Request request;
  request.length = 200;
  request.pieces = four;
  inbound.post(200, true);
  ASSERT_EQ(outbound.push_send(request, 0), Room::kReady);
  ASSERT_EQ(next(), Next::kArrival);
  EXPECT_EQ(payload(), data);
}

TEST(RingKeysTest, KeysBelongToTheRightReceive) {
  const Geometry geometry = Geometry::for_receives(16, 4096, 2);
  const TwoMappings memory(geometry);
  CopyMark copies;
  InboundRing receiver(SegmentView(memory.owner(), geometry), false);
  OutboundRing sender(SegmentView(memory.peer(), geometry), copies, true, false);
  const auto keys = [&sender] {
    std::vector<uint32_t> seen;
    EXPECT_TRUE(sender.next_receive_stands([&seen](uint32_t key) {
      seen.push_back(key);
      return true;
    }));
    return seen;
  };
  const auto post = [&receiver](uint32_t i) {
    const uint32_t told[] = {i + 1, i + 1000};
    receiver.post(100 + i, true, std::span(told).first(i % 3));
  };
  for (uint32_t i = 0; i < 16; ++i) post(i);
  for (uint32_t i = 0; i < 100; ++i) {
    ASSERT_EQ(sender.ready(), OutboundRing::Room::kReady);
    EXPECT_EQ(sender.next_receive().capacity_bytes, 100 + i);
    std::vector<uint32_t> told{i + 1, i + 1000};
    told.resize(i % 3);
    EXPECT_EQ(keys(), told) << i;
    EXPECT_EQ(sender.next_receive_stands([](uint32_t) { return false; }), told.empty());
    sender.push_write_imm(i, 0, 8, false);
    Arrival arrival;
    ASSERT_EQ(receiver.next(arrival), Next::kArrival);
    receiver.pop();
    post(i + 16);
  }
}

TEST_F(RingTest, CapacityAndUsabilityBelongToTheRightReceive) {
  for (uint32_t i = 0; i < 16; ++i) inbound.post(100 + i, i % 3 != 0);
  for (uint32_t lap = 0; lap < 5; ++lap) {
    for (uint32_t i = 0; i < 16; ++i) {
      ASSERT_EQ(outbound.ready(), Room::kReady);
      EXPECT_EQ(outbound.next_receive().capacity_bytes, 100 + i);
      EXPECT_EQ(outbound.next_receive().usable, i % 3 != 0);
      outbound.push_write_imm(0, 0, 0, false);
      ASSERT_EQ(next(), Next::kArrival);
      inbound.pop();
      inbound.post(100 + i, i % 3 != 0);
    }
  }
}

TEST_F(RingTest, AFullRingStillTellsAFault) {
  // Slots beyond receives can only be filled by fragments: nothing is drained meanwhile.
  const uint32_t bytes = 100 * kSmall.payload_bytes;
  std::vector<std::byte> data(bytes);
  inbound.post(bytes, true);
  ASSERT_EQ(send(data), Room::kFull);
  outbound.push_fault(IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
  outbound.push_fault(IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS);  // only the first counts
  Next found = Next::kNone;
  for (int i = 0; i < 10 && found == Next::kNone; ++i) found = next();
  ASSERT_EQ(found, Next::kFault);
  EXPECT_EQ(arrival.fault, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(arrival.refused, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(RingTest, OneArmingGivesOneSignal) {
  EXPECT_FALSE(outbound.must_signal(true));
  inbound.arm(ArmMode::kAny);
  EXPECT_FALSE(outbound.must_signal(false)) << "all that was sent was taken before";
  inbound.arm(ArmMode::kPolls);
  inbound.post(8, true);
  ASSERT_EQ(outbound.ready(), OutboundRing::Room::kReady);
  outbound.push_write_imm(1, 0, 0, false);
  inbound.arm(ArmMode::kAny);
  EXPECT_TRUE(outbound.must_signal(false));
  EXPECT_FALSE(outbound.must_signal(false));
  inbound.arm(ArmMode::kAny);
  EXPECT_TRUE(outbound.must_signal(false));
  inbound.arm(ArmMode::kSolicited);
  EXPECT_FALSE(outbound.must_signal(false));
  EXPECT_TRUE(outbound.must_signal(true));
  inbound.arm(ArmMode::kPolls);
  EXPECT_FALSE(outbound.must_signal(true));
}

TEST_F(RingTest, TheGateTellsWhatItWasGiven) {
  EXPECT_EQ(outbound.gate().state, EndState::kPreparing);
  inbound.set_gate({EndState::kOpen, 6, 31, 0xfedcba98});
  EXPECT_EQ(outbound.gate().state, EndState::kOpen);
  EXPECT_EQ(outbound.gate().access, 6);
  EXPECT_EQ(outbound.gate().rnr_timer, 31);
  EXPECT_EQ(outbound.gate().pd, 0xfedcba98U);
  EXPECT_EQ(Gate::unpack(0x77).state, EndState::kClosed) << "an unknown state is closed";
  const Gate troubled{EndState::kTroubled, 7, 12, 5, kAnswersLost};
  EXPECT_EQ(Gate::unpack(troubled.pack()).state, EndState::kTroubled);
  EXPECT_EQ(Gate::unpack(troubled.pack()).faults, kAnswersLost);
  EXPECT_EQ(Gate::unpack(troubled.pack()).rnr_timer, 12);
}

TEST_F(RingTest, ACopyIsSeenUnderWayByTheOwnerOfItsKey) {
  const ActivityLine& activity = owner_view.head().activity;
  EXPECT_EQ(copy_under_way(activity, kAnyKey), 0U);
  outbound.begin_copy(17);
  const uint64_t first = copy_under_way(activity, 17);
  EXPECT_NE(first, 0U);
  EXPECT_EQ(copy_under_way(activity, kAnyKey), first);
  EXPECT_EQ(copy_under_way(activity, 18), 0U);
  outbound.end_copy();
  EXPECT_EQ(copy_under_way(activity, kAnyKey), 0U);
  outbound.begin_copy(17);
  EXPECT_NE(copy_under_way(activity, 17), first) << "another copy";
}

/// A peer that writes what it likes into the slot at `position`.
/// A receiver whose receives are an SRQ's.
class SharedReceivesTest : public RingTest {
 protected:
  InboundRing owner{owner_view, true};
  OutboundRing asker{peer_view, mark, true, true};
};

TEST_F(SharedReceivesTest, AReceiveIsGivenWhenAMessageAsksForIt) {
  EXPECT_EQ(asker.ready(), Room::kFull);
  EXPECT_TRUE(asker.take_asked());
  EXPECT_EQ(asker.ready(), Room::kFull);
  EXPECT_FALSE(asker.take_asked()) << "asked once";
  ASSERT_EQ(owner.next(arrival), Next::kWish);
  owner.post(64, true);
  EXPECT_EQ(owner.next(arrival), Next::kNone);
  ASSERT_EQ(asker.ready(), Room::kReady);
  EXPECT_EQ(asker.next_receive().capacity_bytes, 64u);
  asker.push_write_imm(5, 0, 8, false);
  ASSERT_EQ(owner.next(arrival), Next::kArrival);
  EXPECT_EQ(arrival.imm, 5u);
  owner.pop();
  EXPECT_EQ(asker.ready(), Room::kFull) << "each message asks";
}

TEST_F(SharedReceivesTest, ARefusalIsToldOnceAndRetried) {
  EXPECT_EQ(asker.ready(), Room::kFull);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(owner.next(arrival), Next::kWish);
    owner.refuse_wish();
    EXPECT_EQ(owner.next(arrival), Next::kNone) << "not before the peer retries";
    EXPECT_EQ(asker.ready(), Room::kNoReceive);
    EXPECT_EQ(asker.ready(), Room::kFull) << "the retry";
  }
  ASSERT_EQ(owner.next(arrival), Next::kWish);
  owner.post(64, true);
  EXPECT_EQ(asker.ready(), Room::kReady);
}

TEST_F(SharedReceivesTest, WishesThatMayNotBeAndLiesAboutThemBreakTheRing) {
  EXPECT_EQ(asker.ready(), Room::kFull);
  peer_view.head().activity.retries = 1;
  EXPECT_EQ(owner.next(arrival), Next::kBroken);
  EXPECT_EQ(owner.broken_rule(), "a retry of what was not refused");
  EXPECT_EQ(next(), Next::kBroken);
  EXPECT_EQ(inbound.broken_rule(), "a wish for a receive where none may be") << "without SRQ";
  owner_view.head().credit.refused = 2;
  EXPECT_EQ(asker.ready(), Room::kBroken);
}

class ScribbleTest : public RingTest {
 protected:
  void scribble(uint64_t position, SlotWord word, uint32_t imm, uint32_t length) {
    Slot& slot = peer_view.slot_at(position);
    slot.imm = imm;
    slot.length = length;
    word.sequence = static_cast<uint32_t>(position + 1);
    slot.word = word.pack();
  }
  void expect_broken(std::string_view rule) {
    ASSERT_EQ(next(), Next::kBroken);
    EXPECT_NE(inbound.broken_rule().find(rule), std::string_view::npos) << inbound.broken_rule();
    EXPECT_EQ(next(), Next::kBroken) << "for good";
  }
};

TEST_F(ScribbleTest, AnUnknownKindBreaksTheRing) {
  inbound.post(64, true);
  scribble(0, {.kind = static_cast<SlotKind>(9)}, 0, 0);
  expect_broken("unknown kind");
}
TEST_F(ScribbleTest, UnknownFlagsBreakTheRing) {
  inbound.post(64, true);
  scribble(0, {.kind = SlotKind::kSend, .flags = 8}, 0, 0);
  expect_broken("flags");
}
TEST_F(ScribbleTest, AMessageWithoutAReceiveBreaksTheRing) {
  scribble(0, {.kind = SlotKind::kWriteImm, .flags = kSlotHasImm}, 0, 0);
  expect_broken("without a receive");
}
TEST_F(ScribbleTest, ASendLongerThanItsReceiveBreaksTheRing) {
  inbound.post(64, true);
  scribble(0, {.kind = SlotKind::kSend, .bytes = 65}, 0, 65);
  expect_broken("impossible length");
}
TEST_F(ScribbleTest, AFragmentLongerThanTheAreaBreaksTheRing) {
  inbound.post(1U << 30, true);
  scribble(0, {.kind = SlotKind::kFragment, .bytes = 65535}, 0, 1U << 29);
  expect_broken("impossible length");
}
TEST_F(ScribbleTest, ASendWhoseBytesDoNotAddUpBreaksTheRing) {
  inbound.post(4096, true);
  scribble(0, {.kind = SlotKind::kFragment, .bytes = 1000}, 0, 1500);
  scribble(1, {.kind = SlotKind::kSend, .bytes = 499}, 0, 1500);
  expect_broken("impossible length");
}
TEST_F(ScribbleTest, AWriteInsideASendBreaksTheRing) {
  inbound.post(4096, true);
  inbound.post(4096, true);
  scribble(0, {.kind = SlotKind::kFragment, .bytes = 1000}, 0, 1500);
  scribble(1, {.kind = SlotKind::kWriteImm, .flags = kSlotHasImm}, 0, 8);
  expect_broken("inside of a SEND");
}
TEST_F(ScribbleTest, AFaultOfUnknownStatusBreaksTheRing) {
  scribble(0, {.kind = SlotKind::kFault}, IBV_WC_RETRY_EXC_ERR, 0);
  expect_broken("fault");
}
TEST_F(ScribbleTest, ImpossibleCreditBreaksTheSender) {
  owner_view.head().credit.posted = kSmall.receives + 1;
  EXPECT_EQ(outbound.ready(), Room::kBroken);
}
TEST_F(ScribbleTest, CreditThatGoesBackBreaksTheSender) {
  inbound.post(0, true);
  ASSERT_EQ(outbound.ready(), Room::kReady);
  outbound.push_write_imm(0, 0, 0, false);
  owner_view.head().credit.posted = 0;
  EXPECT_EQ(outbound.ready(), Room::kBroken);
}
TEST_F(ScribbleTest, MoreDrainedThanWasSentBreaksTheSender) {
  owner_view.head().credit.drained_slots = 1;
  EXPECT_EQ(outbound.ready(), Room::kBroken);
}

TEST_F(ScribbleTest, RandomBytesInTheWholeSegmentNeverLeadOutOfIt) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    TwoMappings fresh(kSmall);
    InboundRing receiver(SegmentView(fresh.owner(), kSmall), round % 2 != 0);
    for (uint32_t i = 0; i < 8; ++i) receiver.post(random() % 9000, true);
    const SegmentView scribbler(fresh.peer(), kSmall);
    for (uint32_t position = 0; position < 8; ++position) {
      Slot& slot = scribbler.slot_at(position);
      SlotWord word{position + 1, static_cast<SlotKind>(random() % 7),
                    static_cast<uint8_t>(random() % 5 == 0 ? random() : 0),
                    static_cast<uint16_t>(random() % 1100)};
      slot.length = random() % 3 == 0 ? random() : word.bytes + 0U;
      slot.imm = random() % 3;
      slot.word = word.pack();
    }
    uint64_t sum = 0;
    Arrival found;
    for (int i = 0; i < 10; ++i) {
      const Next next = receiver.next(found);
      if (next == Next::kWish) receiver.refuse_wish();
      if (next != Next::kArrival) break;
      for (const std::byte byte : found.payload) sum += static_cast<uint64_t>(byte);
      receiver.pop();
    }
    ASSERT_EQ(sum, 0U) << "payload lies in the payload area or the slot, which are zero";
  }
}

TEST(RingProcessTest, TwoProcessesExchangeMessagesOfAllSizesInOrder) {
  constexpr uint32_t kMessages = 20000;
  const Geometry geometry = Geometry::for_receives(32, 8192);
  TwoMappings memory(geometry);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    CopyMark mark;
    OutboundRing sender(SegmentView(memory.peer(), geometry), mark, true, false);
    std::vector<std::byte> data(30000);
    for (uint32_t i = 0; i < kMessages; ++i) {
      const uint32_t bytes = i % 50 == 0 ? i % 30000 : i % 300;
      std::memset(data.data(), static_cast<int>(i & 0xff), bytes);
      const Piece piece{data.data(), bytes};
      Request request;
      request.imm = i;
      request.length = bytes;
      request.pieces = {&piece, 1};
      while (!sender.in_fragments() && sender.ready() != Room::kReady) sched_yield();
      while (sender.push_send(request, kSlotHasImm) != Room::kReady) sched_yield();
    }
    _exit(0);
  }
  InboundRing receiver(SegmentView(memory.owner(), geometry), false);
  for (uint32_t i = 0; i < 32; ++i) receiver.post(30000, true);
  uint32_t bad = 0;
  for (uint32_t i = 0; i < kMessages; ++i) {
    Arrival arrival;
    Next found;
    while ((found = receiver.next(arrival)) == Next::kNone) sched_yield();
    ASSERT_EQ(found, Next::kArrival) << receiver.broken_rule();
    const uint32_t bytes = i % 50 == 0 ? i % 30000 : i % 300;
    ASSERT_EQ(arrival.imm, i);
    ASSERT_EQ(arrival.payload.size(), bytes);
    for (const std::byte byte : arrival.payload) bad += byte != static_cast<std::byte>(i);
    receiver.pop();
    receiver.post(30000, true);
  }
  EXPECT_EQ(bad, 0U);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace braid::vhca::soft::inhost
