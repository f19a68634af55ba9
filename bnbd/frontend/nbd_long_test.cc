// Reads and writes that are longer than a slot of the NBD server, in both styles of replies.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>

#include "bnbd/frontend/test_nbd_server.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::kServedMiB;

/// Bytes that tell where they are.
std::string pattern(size_t length) {
  std::string data(length, '\0');
  for (size_t i = 0; i < length; ++i) data[i] = static_cast<char>(i * 7 + i / 4096 + i / 65536);
  return data;
}

/// The answer to a read, whole.
struct Read {
  std::string data;
  unsigned chunks = 0;
  uint32_t error = 0;  // ~0: the connection ended in the midst of it
};

class NbdLong : public test::NbdServerRig, public testing::WithParamInterface<bool> {
 protected:
  bool structured() const { return GetParam(); }
  void begin(unsigned slots = 8, unsigned connections = 1) {
    options_.connections_max = connections;
    start(slots, 0);
    for (unsigned i = 0; i < connections; ++i) {
      int ends[2];
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      clients_.emplace_back(ends[0]);
      threads_.on_reactor(
          [&] { EXPECT_TRUE(server_->add(UniqueFd(ends[1]), structured(), {}).ok()); });
    }
  }
  uint32_t write(uint64_t offset, const std::string& data, uint16_t flags = 0) {
    send(request(NbdCommand::kWrite, offset, static_cast<uint32_t>(data.size()), 7, flags));
    send_bytes(data.data(), data.size());
    return outcome();
  }
  /// Of anything but a read that succeeds.
  uint32_t outcome() {
    if (!structured()) return receive_reply();
    std::string head = receive_data(4);
    if (head == bytes_of(base::be32(kNbdReplyMagic))) {
      head += receive_data(sizeof(NbdReply) - 4);
      return from<NbdReply>(head).error;
    }
    const auto chunk = from<NbdChunk>(head + receive_data(sizeof(NbdChunk) - 4));
    EXPECT_EQ(chunk.magic, kNbdChunkMagic);
    EXPECT_EQ(chunk.type, kNbdChunkError);
    return from<base::be32>(receive_data(chunk.length_bytes));
  }
  Read read(uint64_t offset, uint32_t length, uint16_t flags = 0) {
    send(request(NbdCommand::kRead, offset, length, 9, flags));
    return structured() ? read_chunks(offset) : read_simple(length);
  }
  Read read_simple(uint32_t length) {
    Read got;
    uint64_t cookie = 0;
    got.error = receive_reply(cookie);
    if (got.error == 0) got.data = receive_data(length);
    if (got.data == std::string(length, '!')) got.error = ~0U;
    return got;
  }
  Read read_chunks(uint64_t offset, Read got = {}) {
    for (;;) {
      const auto chunk = from<NbdChunk>(receive_data(sizeof(NbdChunk)));
      if (chunk.magic != kNbdChunkMagic) return {.error = ~0U};
      ++got.chunks;
      if (chunk.type == kNbdChunkOffsetData) {
        EXPECT_EQ(from<base::be64>(receive_data(8)), offset + got.data.size());
        got.data += receive_data(chunk.length_bytes - 8);
      } else {
        EXPECT_EQ(chunk.type, kNbdChunkError);
        got.error = from<base::be32>(receive_data(chunk.length_bytes));
      }
      if ((chunk.flags & kNbdChunkDone) != 0) return got;
    }
  }
  /// Requests and answers are understood as before.
  void expect_in_step() {
    const Read got = read(0, 512);
    EXPECT_EQ(got.error, 0U);
    EXPECT_EQ(got.data.size(), 512U);
  }
  void fail_after(uint64_t requests) {
    threads_.on_reactor([&] { device_->fail_after(requests, Errc::kIo); });
  }
  void fail_no_more() {
    threads_.on_reactor([&] { device_->fail_with(Errc::kOk); });
  }

  template <typename T>
  static std::string bytes_of(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
  }
  template <typename T>
  static T from(const std::string& bytes) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
};

TEST_P(NbdLong, ReadsBackWhatWasWrittenInParts) {
  begin();
  const std::string data = pattern(4 * kServedMiB);
  EXPECT_EQ(write(kServedMiB, data), 0U);
  EXPECT_EQ(device_->count(BlockOp::kWrite), 4U);
  const Read got = read(kServedMiB, 4 * kServedMiB);
  EXPECT_EQ(got.error, 0U);
  EXPECT_TRUE(got.data == data);
  EXPECT_EQ(got.chunks, structured() ? 4U : 0U);
  // What is no multiple of a slot.
  const Read odd = read(kServedMiB + 512, 2 * kServedMiB + 1024);
  EXPECT_TRUE(odd.data == data.substr(512, 2 * kServedMiB + 1024));
  EXPECT_EQ(write(512, data.substr(0, kServedMiB + 512), kNbdFlagFua), 0U);
  EXPECT_EQ(device_->forced, 2U) << "each part is durable when all are answered";
  EXPECT_TRUE(read(512, kServedMiB + 512).data == data.substr(0, kServedMiB + 512));
  EXPECT_EQ(statistics().in_flight, 0U);
}

TEST_P(NbdLong, TakesAsMuchAs32MiBAndRefusesMoreWithoutLosingStep) {
  device_bytes_ = 40 * kServedMiB;
  begin();
  const std::string data = pattern(kNbdTransferMax);
  EXPECT_EQ(write(0, data), 0U);
  EXPECT_TRUE(read(0, kNbdTransferMax).data == data);
  for (const uint32_t more : {1U, 512U}) {
    EXPECT_EQ(write(0, data + std::string(more, 'x')), 22U);
    EXPECT_EQ(read(0, kNbdTransferMax + more).error, 22U);
    expect_in_step();
  }
  EXPECT_EQ(device_->count(BlockOp::kWrite), 32U);
}

TEST_P(NbdLong, AWriteOfWhichAPartFailsIsAnsweredOnceWithThatError) {
  begin();
  fail_after(1);
  EXPECT_EQ(write(0, pattern(4 * kServedMiB)), 5U);
  fail_no_more();
  EXPECT_EQ(device_->count(BlockOp::kWrite), 2U) << "what follows is skipped";
  expect_in_step();
  EXPECT_EQ(statistics().errors, 1U);
  threads_.on_reactor([&] { EXPECT_EQ(device_->told(), 2U); });
}

TEST_P(NbdLong, AReadThatFailsInTheMiddleIsToldOrEndsTheConnection) {
  begin();
  fail_after(2);
  const Read got = read(0, 4 * kServedMiB);
  fail_no_more();
  if (structured()) {
    EXPECT_EQ(got.error, 5U);
    EXPECT_EQ(got.data.size(), 2 * kServedMiB);
    expect_in_step();
  } else {
    EXPECT_EQ(got.error, ~0U) << "its reply had begun without an error";
    EXPECT_TRUE(closed_by_server());
    EXPECT_TRUE(is_logged("a read failed when a part of it was sent"));
  }
  EXPECT_TRUE(threads_.wait_until([&] { return server_->statistics().in_flight == 0; }));
}

TEST_P(NbdLong, AReadThatFailsAtOnceIsAnsweredWithTheError) {
  begin();
  fail_after(0);
  EXPECT_EQ(read(0, 4 * kServedMiB).error, 5U);
  fail_no_more();
  expect_in_step();
}

TEST_P(NbdLong, OneChunkIsNoLongerThanASlot) {
  begin();
  if (!structured()) {
    EXPECT_EQ(read(0, 512, kNbdFlagDontFragment).error, 22U) << "it was not offered";
    return;
  }
  const Read whole = read(0, kServedMiB, kNbdFlagDontFragment);
  EXPECT_EQ(whole.chunks, 1U);
  EXPECT_EQ(whole.data.size(), kServedMiB);
  EXPECT_EQ(read(0, 2 * kServedMiB, kNbdFlagDontFragment).error, 75U);
  expect_in_step();
}

/// The bytes of a simple reply are in one piece, whatever else is ready meanwhile; the chunks of
/// others go between those of a long read.
TEST_P(NbdLong, WhatElseIsAnsweredComesBehindASimpleReplyAndBetweenChunks) {
  begin();
  const std::string data = pattern(4 * kServedMiB);
  EXPECT_EQ(write(0, data), 0U);
  send(request(NbdCommand::kRead, 0, 4 * kServedMiB, 1));
  for (int i = 0; i < 3; ++i) send(request(NbdCommand::kFlush, 0, 0, 2));
  ASSERT_TRUE(threads_.wait_until([&] { return device_->count(BlockOp::kFlush) == 3; }));
  if (!structured()) {
    EXPECT_TRUE(read_simple(4 * kServedMiB).data == data);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(outcome(), 0U);
    return;
  }
  const auto first = from<NbdChunk>(receive_data(sizeof(NbdChunk)));
  EXPECT_EQ(first.flags, 0U);
  const Read begun{.data = receive_data(first.length_bytes).substr(8), .chunks = 1};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(outcome(), 0U);
  EXPECT_TRUE(read_chunks(0, begun).data == data);
}

TEST_P(NbdLong, LongRequestsShareFewSlotsWithoutWaitingForEachOther) {
  begin(/*slots=*/2, /*connections=*/2);
  const std::string data = pattern(3 * kServedMiB);
  for (unsigned client = 0; client < 2; ++client) {
    send(request(NbdCommand::kWrite, client * 4 * kServedMiB, 3 * kServedMiB), client);
  }
  constexpr size_t kPiece = 96 * 1024;  // no slot's multiple
  for (size_t at = 0; at < data.size(); at += kPiece) {
    for (unsigned client = 0; client < 2; ++client) {
      send_bytes(data.data() + at, std::min(kPiece, data.size() - at), client);
    }
  }
  for (unsigned client = 0; client < 2; ++client) {
    uint64_t cookie = 0;
    EXPECT_EQ(receive_reply(cookie, client), 0U);
  }
  for (unsigned client = 0; client < 2; ++client) {
    EXPECT_TRUE(read(client * 4 * kServedMiB, 3 * kServedMiB).data == data);
  }
}

/// Its connection ends, by either side, while the device has the first part and more is to come.
TEST_P(NbdLong, OfAWriteThatIsCutOffNothingIsLeft) {
  for (const bool by_server : {false, true}) {
    clients_.clear();
    begin();
    threads_.on_reactor([&] { device_->hold(); });
    const std::string data = pattern(kServedMiB + 4096);
    send(request(NbdCommand::kWrite, 0, 4 * kServedMiB));
    send_bytes(data.data(), data.size());
    ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 1; }));
    if (by_server) {
      threads_.on_reactor([&] { server_->take_no_more(); });
    } else {
      clients_.clear();
      ASSERT_TRUE(threads_.wait_until([&] { return !server_->alive(); }));
    }
    threads_.on_reactor([&] { device_->release(); });
    EXPECT_TRUE(threads_.wait_until([&] { return server_->statistics().in_flight == 0; }));
    threads_.on_reactor([&] {
      EXPECT_EQ(device_->told(), 1U);
      server_.reset();
    });
  }
}

TEST_P(NbdLong, ADisconnectComesBehindAllOfALongRead) {
  begin();
  const std::string data = pattern(4 * kServedMiB);
  EXPECT_EQ(write(0, data), 0U);
  send(request(NbdCommand::kRead, 0, 4 * kServedMiB));
  send(request(NbdCommand::kDisconnect, 0, 0));
  const Read got = structured() ? read_chunks(0) : read_simple(4 * kServedMiB);
  EXPECT_TRUE(got.data == data);
  EXPECT_TRUE(closed_by_server());
}

INSTANTIATE_TEST_SUITE_P(Replies, NbdLong, testing::Bool(), [](const auto& which) {
  return std::string(which.param ? "Structured" : "Simple");
});

}  // namespace
}  // namespace braid::bnbd
