// Frames of the TCP wire: golden bytes, and whatever else comes is refused by name.
#include "vhca/soft/tcp/frames.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace braid::vhca::soft::tcp {
namespace {

using base::Errc;

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte each : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(each));
  return text;
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

TEST(TcpFrames, the_bytes_of_a_connect_are_these) {
  EXPECT_EQ(hex(encode_cm(FrameKind::kConnect, 0x11223344, 0xabcdef, bytes_of("hi"))),
            "42544350"          // magic "BTCP"
            "01"                // version
            "01"                // kind
            "0000"              // flags, opcode
            "0a00000000000000"  // bytes behind
            "44332211"          // epoch
            "00000000"          // status, timer, reserved
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "00000000"
            "00000000"
            "00000000"
            "00000000"
            "efcdab00"  // QP number
            "0200"
            "0000"  // bytes of private data
            "6869");
}

TEST(TcpFrames, what_is_encoded_is_parsed_again) {
  for (const auto& [kind, most] : {std::pair{FrameKind::kConnect, kConnectPrivateMax},
                                   std::pair{FrameKind::kAccept, kAcceptPrivateMax},
                                   std::pair{FrameKind::kReject, kRejectPrivateMax}}) {
    for (const size_t size : {size_t{0}, size_t{1}, most}) {
      const std::vector<std::byte> data(size, std::byte{0x5a});
      const auto frame = encode_cm(kind, 7, 0xffffff, data);
      EXPECT_EQ(*cm_frame_bytes(frame), frame.size());
      auto cm = parse_cm(frame);
      ASSERT_TRUE(cm.ok()) << cm.error().message();
      EXPECT_EQ(parse_cm(frame)->private_data, data);
      EXPECT_EQ(parse_cm(frame)->kind, kind);
    }
    const std::vector<std::byte> over(most + 1);
    EXPECT_EQ(parse_cm(encode_cm(kind, 7, 1, over)).code(), Errc::kProtocol);
  }
}

TEST(TcpFrames, every_bit_of_a_connect_counts) {
  const auto right = encode_cm(FrameKind::kConnect, 7, 0x1234, bytes_of("data"));
  for (size_t bit = 0; bit < sizeof(FrameHeader) * 8; ++bit) {
    const size_t byte = bit / 8;
    const bool free = byte >= offsetof(FrameHeader, epoch) && byte < offsetof(FrameHeader, status);
    // Of the kind one makes a sound rejection of it.
    if (byte == offsetof(FrameHeader, kind)) continue;
    auto wrong = right;
    wrong[byte] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_EQ(parse_cm(wrong).ok(), free) << "bit " << bit;
  }
  for (size_t size = 0; size < right.size(); ++size) {
    EXPECT_FALSE(parse_cm(std::span(right).first(size)).ok()) << size;
  }
}

TEST(TcpFrames, refusals_name_what_is_wrong) {
  FrameHeader header;
  header.magic = kFrameMagic;
  header.version = 2;
  header.kind = 4;
  EXPECT_NE(validate(header)->find("version 2"), std::string::npos);
  header.version = kFrameVersion;
  EXPECT_FALSE(validate(header).has_value());
  header.length = 1;
  EXPECT_NE(validate(header)->find("at most 0"), std::string::npos);
}

}  // namespace
}  // namespace braid::vhca::soft::tcp
