// Messages of the in-host connection manager: what is encoded is parsed again, and whatever else
// comes is refused with the field's name.
#include "vhca/soft/inhost/cm_messages.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace braid::vhca::soft::inhost {
namespace {

CmMessage request(size_t private_bytes = 56) {
  CmMessage message;
  message.kind = CmKind::kRequest;
  for (uint8_t i = 0; i < 16; ++i) message.end.device[i] = i;
  message.end.qp_number = 0xabcdef;
  message.end.geometry = Geometry::for_receives(128, 65536, 4);
  message.end.mr_capacity = 8192;
  message.end.has_event = true;
  message.end.has_heavy_fence = true;
  message.end.retry_count = 6;
  message.end.rnr_retry_count = 7;
  message.end.ack_timeout = 12;
  message.end.responder_resources = 16;
  message.end.initiator_depth = 15;
  message.private_data.assign(private_bytes, std::byte{0x5a});
  return message;
}

std::string refusal(const CmMessage& message, size_t handles) {
  const auto parsed = parse_cm_message(encode_cm_message(message), handles);
  if (parsed.ok()) return "accepted";
  EXPECT_EQ(parsed.code(), base::Errc::kProtocol);
  return parsed.error().message();
}

TEST(CmMessagesTest, ARequestComesBackAsItWas) {
  const CmMessage sent = request();
  const auto parsed = parse_cm_message(encode_cm_message(sent), 3);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed.value().kind, CmKind::kRequest);
  const CmEnd& end = parsed.value().end;
  EXPECT_EQ(end.device, sent.end.device);
  EXPECT_EQ(end.qp_number, 0xabcdefU);
  EXPECT_EQ(end.geometry.slots, 256U);
  EXPECT_EQ(end.geometry.receives, 128U);
  EXPECT_EQ(end.geometry.payload_bytes, 65536U);
  EXPECT_EQ(end.geometry.receive_keys, 4U);
  EXPECT_EQ(end.mr_capacity, 8192U);
  EXPECT_TRUE(end.has_event);
  EXPECT_TRUE(end.has_heavy_fence);
  EXPECT_EQ(end.retry_count, 6);
  EXPECT_EQ(end.rnr_retry_count, 7);
  EXPECT_EQ(end.ack_timeout, 12);
  EXPECT_EQ(end.responder_resources, 16);
  EXPECT_EQ(end.initiator_depth, 15);
  EXPECT_EQ(parsed.value().private_data, sent.private_data);
}

TEST(CmMessagesTest, AnEndWithAnSrqComesBackAsItWas) {
  CmMessage sent = request();
  sent.end.has_send_event = true;
  sent.end.shares_receives = true;
  EXPECT_EQ(sent.end.handles(), 4u);
  const auto parsed = parse_cm_message(encode_cm_message(sent), 4);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_TRUE(parsed.value().end.has_send_event);
  EXPECT_TRUE(parsed.value().end.shares_receives);
  EXPECT_NE(refusal(sent, 3).find("handles"), std::string::npos);
}

TEST(CmMessagesTest, TheHeaderHasItsGoldenBytes) {
  const std::vector<std::byte> bytes = encode_cm_message({.kind = CmKind::kReady});
  const uint8_t golden[] = {0x42, 0x52, 0x49, 0x48, 5, 0, 3, 0, 12, 0, 0, 0};
  ASSERT_EQ(bytes.size(), sizeof(golden));
  for (size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(static_cast<uint8_t>(bytes[i]), golden[i]);
}

TEST(CmMessagesTest, EveryOtherKindComesBack) {
  CmMessage message;
  for (const CmKind kind : {CmKind::kReady, CmKind::kDisconnect, CmKind::kRetire}) {
    message.kind = kind;
    message.segment = {.id = 7, .size_bytes = 0};
    const auto parsed = parse_cm_message(encode_cm_message(message), 0);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message();
    EXPECT_EQ(parsed.value().kind, kind);
  }
  message.kind = CmKind::kSegment;
  message.segment = {.id = 9, .size_bytes = 1U << 30};
  const auto segment = parse_cm_message(encode_cm_message(message), 1);
  ASSERT_TRUE(segment.ok());
  EXPECT_EQ(segment.value().segment.id, 9U);
  EXPECT_EQ(segment.value().segment.size_bytes, 1U << 30);
  message.kind = CmKind::kReject;
  message.reason = CmRejectReason::kOverload;
  message.private_data.assign(148, std::byte{1});
  const auto reject = parse_cm_message(encode_cm_message(message), 0);
  ASSERT_TRUE(reject.ok());
  EXPECT_EQ(reject.value().reason, CmRejectReason::kOverload);
  EXPECT_EQ(reject.value().private_data.size(), 148U);
}

TEST(CmMessagesTest, EachFieldOutOfBoundsIsRefusedByName) {
  EXPECT_EQ(refusal(request(0), 3), "accepted");
  EXPECT_NE(refusal(request(57), 3).find("private data"), std::string::npos);
  EXPECT_NE(refusal(request(), 2).find("handles"), std::string::npos);
  CmMessage message = request();
  message.end.qp_number = 0;
  EXPECT_NE(refusal(message, 3).find("QP number"), std::string::npos);
  message.end.qp_number = 1U << 24;
  EXPECT_NE(refusal(message, 3).find("QP number"), std::string::npos);
  for (const Geometry& geometry :
       {Geometry{0, 16, 4096}, Geometry{17, 16, 4096}, Geometry{32, 8, 4096},
        Geometry{1U << 31, 16, 4096}, Geometry{32, 16, 4095}, Geometry{32, 16, 1U << 31}}) {
    message = request();
    message.end.geometry = geometry;
    EXPECT_NE(refusal(message, 3).find("inbound segment"), std::string::npos);
  }
  message = request();
  message.end.mr_capacity = 3;
  EXPECT_NE(refusal(message, 3).find("MR table"), std::string::npos);
  message = request();
  message.end.retry_count = 8;
  EXPECT_NE(refusal(message, 3).find("retry_count"), std::string::npos);
  message = request();
  message.end.geometry.receive_keys = 17;
  EXPECT_NE(refusal(message, 3).find("receive_keys"), std::string::npos);
}

TEST(CmMessagesTest, EveryPrefixAndEveryExtensionIsRefused) {
  const std::vector<std::byte> whole = encode_cm_message(request());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(parse_cm_message(std::span(whole).first(length), 3).ok()) << length;
  }
  std::vector<std::byte> longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(parse_cm_message(longer, 3).ok());
}

TEST(CmMessagesTest, FlippedBytesNeverGiveAnEndOutOfBounds) {
  std::mt19937 random(3);
  const std::vector<std::byte> whole = encode_cm_message(request());
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = whole;
    for (int flips = 0; flips < 3; ++flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    const auto parsed = parse_cm_message(bytes, 2 + random() % 2);
    if (!parsed.ok() || parsed.value().kind != CmKind::kRequest) continue;
    EXPECT_TRUE(parsed.value().end.geometry.valid());
    EXPECT_LT(parsed.value().end.qp_number, 1U << 24);
    EXPECT_LE(parsed.value().private_data.size(), kRequestPrivateMax);
  }
}

}  // namespace
}  // namespace braid::vhca::soft::inhost
