#include "trs/imm.h"

#include <gtest/gtest.h>

namespace braid::trs {
namespace {

TEST(Imm, RequestOfTheDefaultKernelServerHasNineIndexBits) {
  const ImmCodec codec(512);
  EXPECT_EQ(codec.encode({511, 0x7ffff}), 0x0fffffffu);
  EXPECT_EQ(codec.encode({1, 4100}), (1u << 19) + 4100);
  const RequestImm back = codec.decode(decode_imm((7u << 19) + 12).payload);
  EXPECT_EQ(back.chunk, 7u);
  EXPECT_EQ(back.offset_bytes, 12u);
}

TEST(Imm, EveryDepthAndOffsetComesBack) {
  for (const uint32_t depth : {1u, 2u, 3u, 100u, 128u, 129u, 4096u, 65535u}) {
    const ImmCodec codec(depth);
    for (const uint32_t chunk : {0u, depth / 2, depth - 1}) {
      for (const uint32_t offset : {0u, 1u, 4095u}) {
        const RequestImm back = codec.decode(decode_imm(codec.encode({chunk, offset})).payload);
        EXPECT_EQ(back.chunk, chunk) << depth;
        EXPECT_EQ(back.offset_bytes, offset) << depth;
      }
    }
  }
}

TEST(Imm, FitsCountsIndexAndOffsetBits) {
  EXPECT_TRUE(ImmCodec::fits(512, 1 << 19));
  EXPECT_FALSE(ImmCodec::fits(513, 1 << 19));
  EXPECT_FALSE(ImmCodec::fits(512, (1 << 19) + 1));
  EXPECT_TRUE(ImmCodec::fits(128, 1 << 21));
  EXPECT_FALSE(ImmCodec::fits(0, 4096));
  EXPECT_FALSE(ImmCodec::fits(1, uint64_t{1} << 40));
}

TEST(Imm, AnswerHasNineBitsOfErrnoAboveTheId) {
  EXPECT_EQ(encode_answer({5, 0}), 0x10000005u);
  EXPECT_EQ(encode_answer({5, 28}), 0x10000005u | 28u << 19);
  const AnswerImm back = decode_answer(decode_imm(encode_answer({0x7ffff, 511})).payload);
  EXPECT_EQ(back.request_id, 0x7ffffu);
  EXPECT_EQ(back.sys_errno, 511u);
}

TEST(Imm, ErrnoThatDoesNotFitBecomesEio) {
  EXPECT_EQ(decode_answer(decode_imm(encode_answer({1, 512})).payload).sys_errno, 5u);
}

TEST(Imm, HeartbeatsAreOnlyAType) {
  EXPECT_EQ(encode_imm({ImmType::kHeartbeat, 0}), 0x80000000u);
  EXPECT_EQ(encode_imm({ImmType::kHeartbeatAck, 0}), 0x90000000u);
  EXPECT_EQ(encode_imm({ImmType::kNotice, 0}), 0xa0000000u);
  EXPECT_EQ(decode_imm(0xf0000001u).type, static_cast<ImmType>(15));
}

TEST(Imm, GoesOnTheWireBigEndian) {
  EXPECT_EQ(to_network(0x01020304u), 0x04030201u);
  EXPECT_EQ(from_network(to_network(0xdeadbeefu)), 0xdeadbeefu);
}

}  // namespace
}  // namespace braid::trs
