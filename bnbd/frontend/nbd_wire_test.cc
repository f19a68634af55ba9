#include "bnbd/frontend/nbd_wire.h"

#include <gtest/gtest.h>

#include <cstring>

namespace braid::bnbd {
namespace {

using base::Errc;
using Kind = NbdVerdict::Kind;

constexpr uint32_t kChunkMax = 1 << 20;

BlockInfo disk() {
  BlockInfo info;
  info.size_bytes = 64 << 20;
  info.logical_block_bytes = 512;
  info.max_discard_bytes = 4 << 20;
  info.max_write_zeroes_bytes = 4 << 20;
  return info;
}

NbdRequest request(NbdCommand command, uint64_t offset, uint32_t length, uint16_t flags = 0) {
  NbdRequest wire;
  wire.magic = kNbdRequestMagic;
  wire.flags = flags;
  wire.command = static_cast<uint16_t>(command);
  wire.cookie = 0x1122334455667788;
  wire.offset_bytes = offset;
  wire.length_bytes = length;
  return wire;
}

NbdVerdict judge(const NbdRequest& wire, const BlockInfo& info = disk(), NbdTerms terms = {}) {
  return parse_nbd_request(std::as_bytes(std::span(&wire, 1)).first<sizeof(NbdRequest)>(), info,
                           kChunkMax, terms);
}

TEST(NbdWire, HasTheProtocolsBytes) {
  const NbdRequest wire = request(NbdCommand::kWrite, 0x1000, 0x200, kNbdFlagFua);
  const uint8_t golden[] = {0x25, 0x60, 0x95, 0x13, 0x00, 0x01, 0x00, 0x01, 0x11, 0x22,
                            0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x00, 0x00, 0x00, 0x00,
                            0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x02, 0x00};
  static_assert(sizeof(golden) == sizeof(wire));
  EXPECT_EQ(std::memcmp(&wire, golden, sizeof(golden)), 0);

  NbdReply reply;
  reply.magic = kNbdReplyMagic;
  reply.error = 28;
  reply.cookie = 0x1122334455667788;
  const uint8_t golden_reply[] = {0x67, 0x44, 0x66, 0x98, 0,    0,    0,    28,
                                  0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88};
  static_assert(sizeof(golden_reply) == sizeof(reply));
  EXPECT_EQ(std::memcmp(&reply, golden_reply, sizeof(golden_reply)), 0);
}

TEST(NbdWire, RunsEachOperation) {
  NbdVerdict verdict = judge(request(NbdCommand::kRead, 4096, 8192));
  EXPECT_EQ(verdict.kind, Kind::kRun);
  EXPECT_EQ(verdict.op, BlockOp::kRead);
  EXPECT_EQ(verdict.offset_bytes, 4096U);
  EXPECT_EQ(verdict.length_bytes, 8192U);
  EXPECT_EQ(verdict.payload_bytes, 0U);
  EXPECT_EQ(verdict.cookie, 0x1122334455667788U);

  verdict = judge(request(NbdCommand::kWrite, 0, 512, kNbdFlagFua));
  EXPECT_EQ(verdict.kind, Kind::kRun);
  EXPECT_TRUE(verdict.force_unit_access);
  EXPECT_EQ(verdict.payload_bytes, 512U);

  verdict = judge(request(NbdCommand::kFlush, 0, 0));
  EXPECT_EQ(verdict.kind, Kind::kRun);
  EXPECT_EQ(verdict.op, BlockOp::kFlush);

  // Longer than a transfer: nothing is transferred.
  verdict = judge(request(NbdCommand::kTrim, 0, 64 << 20));
  EXPECT_EQ(verdict.kind, Kind::kRun);
  EXPECT_EQ(verdict.op, BlockOp::kDiscard);

  EXPECT_FALSE(judge(request(NbdCommand::kTrim, 0, 4096)).force_unit_access);
  EXPECT_TRUE(judge(request(NbdCommand::kTrim, 0, 4096, kNbdFlagFua)).force_unit_access);
  EXPECT_FALSE(judge(request(NbdCommand::kRead, 0, 4096, kNbdFlagFua)).force_unit_access);

  verdict = judge(request(NbdCommand::kWriteZeroes, 0, 4096, kNbdFlagNoHole | kNbdFlagFua));
  EXPECT_EQ(verdict.kind, Kind::kRun);
  EXPECT_EQ(verdict.op, BlockOp::kWriteZeroes);
  EXPECT_TRUE(verdict.no_unmap);
  EXPECT_TRUE(verdict.force_unit_access);
  EXPECT_FALSE(judge(request(NbdCommand::kWriteZeroes, 0, 4096)).no_unmap);
}

TEST(NbdWire, RefusesWhatBreaksARuleAndStillKnowsThePayload) {
  struct Case {
    NbdRequest wire;
    uint32_t error;
    const char* reason;
  };
  const uint32_t end = 64 << 20;
  const Case cases[] = {
      {request(NbdCommand::kWrite, 1, 512), 22, "not a multiple of the logical block"},
      {request(NbdCommand::kRead, 0, 100), 22, "not a multiple of the logical block"},
      {request(NbdCommand::kRead, 0, 0), 22, "no length"},
      {request(NbdCommand::kRead, 0, kNbdTransferMax + 512), 22,
       "longer than the largest transfer"},
      {request(NbdCommand::kWrite, 0, 0xfffffe00), 22, "longer than the largest transfer"},
      {request(NbdCommand::kRead, end, 512), 22, "past the end of the device"},
      {request(NbdCommand::kWrite, end - 512, 1024), 28, "past the end of the device"},
      {request(NbdCommand::kWrite, 0xfffffffffffffe00, 1024), 28, "past the end of the device"},
      {request(NbdCommand::kFlush, 0, 512), 22, "a flush has neither offset nor length"},
      {request(NbdCommand::kRead, 0, 512, 1 << 4), 22, "unknown command flag"},
      {request(NbdCommand::kRead, 0, 512, kNbdFlagNoHole), 22, "unknown command flag"},
      {request(static_cast<NbdCommand>(77), 0, 512), 22, "unknown command"},
  };
  for (const Case& c : cases) {
    const NbdVerdict verdict = judge(c.wire);
    EXPECT_EQ(verdict.kind, Kind::kRefuse) << c.reason;
    EXPECT_EQ(verdict.error, c.error) << c.reason;
    EXPECT_STREQ(verdict.reason, c.reason);
    const bool write = c.wire.command == static_cast<uint16_t>(NbdCommand::kWrite);
    EXPECT_EQ(verdict.payload_bytes, write ? uint32_t{c.wire.length_bytes} : 0U);
  }
}

TEST(NbdWire, TakesTransfersOf32MiBButNotInOneChunk) {
  for (const NbdCommand command : {NbdCommand::kRead, NbdCommand::kWrite}) {
    EXPECT_EQ(judge(request(command, 0, 32 << 20)).kind, Kind::kRun);
  }
  const NbdTerms structured{.structured = true};
  const NbdRequest whole = request(NbdCommand::kRead, 0, kChunkMax, kNbdFlagDontFragment);
  EXPECT_EQ(judge(whole, disk(), structured).kind, Kind::kRun);
  const NbdRequest longer = request(NbdCommand::kRead, 0, kChunkMax + 512, kNbdFlagDontFragment);
  EXPECT_EQ(judge(longer, disk(), structured).error, 75U);
  EXPECT_STREQ(judge(longer, disk(), structured).reason, "too long for one chunk");
}

TEST(NbdWire, RefusesChangesOfAReadOnlyDevice) {
  BlockInfo info = disk();
  info.read_only = true;
  for (const NbdCommand command :
       {NbdCommand::kWrite, NbdCommand::kTrim, NbdCommand::kWriteZeroes}) {
    const NbdVerdict verdict = judge(request(command, 0, 512), info);
    EXPECT_EQ(verdict.kind, Kind::kRefuse);
    EXPECT_EQ(verdict.error, 1U);
  }
  EXPECT_EQ(judge(request(NbdCommand::kRead, 0, 512), info).kind, Kind::kRun);
  EXPECT_EQ(judge(request(NbdCommand::kFlush, 0, 0), info).kind, Kind::kRun);
}

TEST(NbdWire, RefusesWhatTheDeviceCannot) {
  BlockInfo info = disk();
  info.max_discard_bytes = 0;
  info.max_write_zeroes_bytes = 0;
  EXPECT_EQ(judge(request(NbdCommand::kTrim, 0, 512), info).error, 95U);
  EXPECT_EQ(judge(request(NbdCommand::kWriteZeroes, 0, 512), info).error, 95U);
}

TEST(NbdWire, GivesUpAStreamWithoutMagic) {
  NbdRequest wire = request(NbdCommand::kRead, 0, 512);
  wire.magic = 0x12345678;
  EXPECT_EQ(judge(wire).kind, Kind::kBroken);
}

TEST(NbdWire, SeesAClientTakeItsLeave) {
  EXPECT_EQ(judge(request(NbdCommand::kDisconnect, 0, 0)).kind, Kind::kDisconnect);
}

TEST(NbdWire, OffersWhatTheDeviceHas) {
  BlockInfo info = disk();
  EXPECT_EQ(nbd_transmission_flags(info, false), 0b0110'1101U);
  EXPECT_EQ(nbd_transmission_flags(info, true), 0b1'0110'1101U);
  info.read_only = true;
  info.rotational = true;
  info.write_cache = false;
  info.max_discard_bytes = info.max_write_zeroes_bytes = 0;
  EXPECT_EQ(nbd_transmission_flags(info, false), 0b0001'0011U);
}

TEST(NbdWire, AnswersOnlyWithTheProtocolsErrors) {
  EXPECT_EQ(nbd_error(Errc::kOk), 0U);
  EXPECT_EQ(nbd_error(Errc::kNoSpace), 28U);
  EXPECT_EQ(nbd_error(Errc::kReadOnly), 1U);
  EXPECT_EQ(nbd_error(Errc::kDisconnected), 5U);
  EXPECT_EQ(nbd_error(Errc::kTimedOut), 5U);
}

}  // namespace
}  // namespace braid::bnbd
