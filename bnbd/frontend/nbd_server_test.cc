// The NBD server over a socket pair, with a small client in the test.
#include "bnbd/frontend/nbd_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "bnbd/frontend/test_nbd_server.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::kServedMiB;

class Nbd : public test::NbdServerRig {};

TEST_F(Nbd, ReadsBackWhatWasWritten) {
  start();
  const std::string data(4096, 'x');
  send(request(NbdCommand::kWrite, 8192, 4096));
  send_bytes(data.data(), data.size());
  EXPECT_EQ(receive_reply(), 0U);
  send(request(NbdCommand::kFlush, 0, 0));
  EXPECT_EQ(receive_reply(), 0U);
  send(request(NbdCommand::kRead, 8192, 4096));
  EXPECT_EQ(receive_reply(), 0U);
  EXPECT_EQ(receive_data(4096), data);
  EXPECT_EQ(device_->count(BlockOp::kFlush), 1U);
}

TEST_F(Nbd, AFlushThatWaitedForASlotIsOfTheMomentAtWhichItCame) {
  start(/*slots=*/2);
  threads_.on_reactor([&] { device_->hold(); });
  const std::string data(4096, 'w');
  for (uint64_t i = 0; i < 2; ++i) {
    send(request(NbdCommand::kWrite, i * 4096, 4096));
    send_bytes(data.data(), data.size());
  }
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 2; }));
  send(request(NbdCommand::kFlush, 0, 0));
  ASSERT_TRUE(threads_.wait_until([&] { return server_->statistics().starved == 1; }));
  threads_.on_reactor([&] { device_->release(); });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(receive_reply(), 0U);
  EXPECT_EQ(device_->known(), 0U) << "its user had heard of none";
  // Who asks at once may be taken for one who has not heard; who goes on asking is not.
  for (int i = 0; i < 10'000 && device_->known() < 2; ++i) {
    send(request(NbdCommand::kFlush, 0, 0));
    EXPECT_EQ(receive_reply(), 0U);
  }
  EXPECT_GE(device_->known(), 2U);
}

TEST_F(Nbd, WhoFindsNoSlotGetsOneOfThoseThatAreMadeThen) {
  start(/*slots=*/5, /*connections=*/1, /*first=*/1);
  threads_.on_reactor([&] { device_->hold(); });
  for (uint64_t i = 0; i < 6; ++i) send(request(NbdCommand::kRead, i * 4096, 4096, i));
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 5; }));
  threads_.on_reactor([&] { device_->release(); });
  std::set<uint64_t> cookies;
  for (int i = 0; i < 6; ++i) {
    uint64_t cookie = 0;
    EXPECT_EQ(receive_reply(cookie), 0U);
    cookies.insert(cookie);
    receive_data(4096);
  }
  EXPECT_EQ(cookies.size(), 6U);
}

TEST_F(Nbd, WhereMemoryIsShortOneThatTakesNoAnswersLeavesTheOthersOneSlot) {
  options_.connections_max = 2;
  start(/*slots=*/8, /*connections=*/2, /*first=*/2);
  threads_.on_reactor([&] { device_->no_memory = true; });
  for (uint64_t i = 0; i < 4; ++i) send(request(NbdCommand::kRead, 0, kServedMiB, i));
  ASSERT_TRUE(threads_.wait_until([&] { return server_->statistics().starved == 1; }));
  for (uint64_t flushes = 1; flushes <= 3; ++flushes) {
    send(request(NbdCommand::kFlush, 0, 0), 1);
    ASSERT_TRUE(threads_.wait_until([&] { return device_->count(BlockOp::kFlush) == flushes; }));
    uint64_t cookie = 0;
    EXPECT_EQ(receive_reply(cookie, 1), 0U);
  }
  empty_socket();
}

/// Else the next flush would be of a moment before that, and fail, too, for nothing.
TEST_F(Nbd, WhoAsksAfterAFlushHasFailedKnowsOfIt) {
  start();
  threads_.on_reactor([&] {
    device_->hold();
    device_->fail_with(Errc::kIo);
  });
  for (int i = 0; i < 4; ++i) send(request(NbdCommand::kFlush, 0, 0));
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 4; }));
  threads_.on_reactor([&] {
    device_->release();  // the fourth answer has all sent at once
    device_->fail_with(Errc::kOk);
    send(request(NbdCommand::kFlush, 0, 0));  // before the server's next turn
  });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(receive_reply(), 5U);
  EXPECT_EQ(receive_reply(), 0U);
  EXPECT_EQ(device_->failures_known(), 4U);
}

TEST_F(Nbd, NobodyHasHeardOfAFailedFlushWhoseAnswerWaitsToBeSent) {
  start();
  fill_socket();
  threads_.on_reactor([&] { device_->fail_with(Errc::kIo); });
  send(request(NbdCommand::kFlush, 0, 0, 4));
  ASSERT_TRUE(threads_.wait_until([&] { return device_->count(BlockOp::kFlush) == 1; }));
  threads_.on_reactor([&] { device_->fail_with(Errc::kOk); });
  send(request(NbdCommand::kFlush, 0, 0, 5));
  ASSERT_TRUE(threads_.wait_until([&] { return device_->count(BlockOp::kFlush) == 2; }));
  EXPECT_EQ(device_->failures_known(), 0U);
  empty_socket();
  EXPECT_EQ(receive_reply(), 5U);
  EXPECT_EQ(receive_reply(), 0U);
}

TEST_F(Nbd, NobodyHasHeardOfAWriteWhoseAnswerWaitsToBeSent) {
  start(8, 2);
  fill_socket();
  send(request(NbdCommand::kWrite, 0, 512, 4));
  send_bytes(std::string(512, 'w').data(), 512);
  ASSERT_TRUE(threads_.wait_until([&] { return device_->count(BlockOp::kWrite) == 1; }));
  uint64_t cookie = 0;
  for (int i = 0; i < 100; ++i) {
    send(request(NbdCommand::kFlush, 0, 0), 1);
    EXPECT_EQ(receive_reply(cookie, 1), 0U);
    EXPECT_EQ(device_->known(), 0U);
  }
  empty_socket();
  EXPECT_EQ(receive_reply(cookie), 0U);
  for (int i = 0; device_->known() == 0 && i < 10'000; ++i) {
    send(request(NbdCommand::kFlush, 0, 0), 1);
    EXPECT_EQ(receive_reply(cookie, 1), 0U);
  }
  EXPECT_EQ(device_->known(), 1U);
}

TEST_F(Nbd, NobodyHasHeardOfAFailedFlushWhoseConnectionHasEnded) {
  start(8, 2);
  fill_socket();
  threads_.on_reactor([&] { device_->fail_with(Errc::kIo); });
  send(request(NbdCommand::kFlush, 0, 0, 4));
  ASSERT_TRUE(threads_.wait_until([&] { return device_->count(BlockOp::kFlush) == 1; }));
  threads_.on_reactor([&] { device_->fail_with(Errc::kOk); });
  clients_[0] = UniqueFd();
  ASSERT_TRUE(threads_.wait_until([&] { return server_->connections() == 1; }));
  for (int i = 0; i < 100; ++i) {
    send(request(NbdCommand::kFlush, 0, 0), 1);
    uint64_t cookie = 0;
    EXPECT_EQ(receive_reply(cookie, 1), 0U);
    EXPECT_EQ(device_->failures_known(), 0U);
  }
}

/// A range that goes on in parts; its connection is closed meanwhile, by either side.
TEST_F(Nbd, NothingStaysUntoldOfRangesThatAreGivenUp) {
  for (const bool by_server : {false, true}) {
    start();
    threads_.on_reactor([&] {
      device_->change_info().max_write_zeroes_bytes = 64 * 1024;
      device_->hold();
    });
    send(request(NbdCommand::kWriteZeroes, 0, kServedMiB));
    ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 1; }));
    threads_.on_reactor([&] {
      device_->release();
      if (by_server) server_->stop();
      clients_.clear();
    });
    ASSERT_TRUE(threads_.wait_until([&] { return server_->statistics().in_flight == 0; }));
    threads_.on_reactor([&] {
      EXPECT_EQ(device_->told(), device_->count());
      EXPECT_LT(device_->count(), 16U);
      server_.reset();
    });
  }
}

TEST_F(Nbd, TakesAStreamByteByByte) {
  start();
  std::string stream(sizeof(NbdRequest) + 512, 'y');
  const NbdRequest wire = request(NbdCommand::kWrite, 0, 512);
  std::memcpy(stream.data(), &wire, sizeof(wire));
  for (const char byte : stream) {
    send_bytes(&byte, 1);
    threads_.on_reactor([] {});  // the server sees the bytes apart
  }
  EXPECT_EQ(receive_reply(), 0U);
}

/// The last request that is taken in a round is a write whose payload is received already.
TEST_F(Nbd, WhatFollowsAWriteDoesNotPassItsPayload) {
  start();
  std::string stream;
  const auto add = [&](const NbdRequest& wire) {
    stream.append(reinterpret_cast<const char*>(&wire), sizeof(wire));
  };
  for (int i = 0; i < 63; ++i) add(request(NbdCommand::kFlush, 0, 0));
  constexpr uint64_t kWrites = 36;  // more than is received at once, less than a socket holds
  for (uint64_t i = 0; i < kWrites; ++i) {
    add(request(NbdCommand::kWrite, i * 4096, 4096));
    stream.append(4096, static_cast<char>('0' + i));
  }
  // Before the server's next turn.
  threads_.on_reactor([&] { send_bytes(stream.data(), stream.size()); });
  for (uint64_t i = 0; i < 63 + kWrites; ++i) EXPECT_EQ(receive_reply(), 0U);
  for (uint64_t i = 0; i < kWrites; ++i) {
    send(request(NbdCommand::kRead, i * 4096, 4096));
    EXPECT_EQ(receive_reply(), 0U);
    EXPECT_TRUE(receive_data(4096) == std::string(4096, static_cast<char>('0' + i))) << i;
  }
}

TEST_F(Nbd, AnswersLargeReadsToASlowClient) {
  start();
  std::string data(kServedMiB, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7 + i / 4096);
  send(request(NbdCommand::kWrite, 0, kServedMiB));
  for (size_t sent = 0; sent < data.size(); sent += 64 * 1024) {
    send_bytes(data.data() + sent, 64 * 1024);
  }
  EXPECT_EQ(receive_reply(), 0U);
  // More than a socket holds: the server has to stop in the middle and go on.
  for (uint64_t i = 0; i < 4; ++i) send(request(NbdCommand::kRead, 0, kServedMiB, i));
  ASSERT_TRUE(threads_.wait_until([&] { return device_->count(BlockOp::kRead) == 4; }));
  for (uint64_t i = 0; i < 4; ++i) {
    uint64_t cookie = 99;
    EXPECT_EQ(receive_reply(cookie), 0U);
    EXPECT_EQ(cookie, i);
    EXPECT_TRUE(receive_data(kServedMiB) == data);
  }
}

TEST_F(Nbd, ReceivesLongWritesWhereAMemoryDeviceHasThem) {
  start();
  threads_.on_reactor([&] { device_->hold(); });
  const std::string data(kServedMiB, 'p');
  send(request(NbdCommand::kWrite, kServedMiB, kServedMiB));
  for (size_t sent = 0; sent < data.size(); sent += 64 * 1024) {
    send_bytes(data.data() + sent, 64 * 1024);
  }
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 1; }));
  const std::span<std::byte> content = device_->content_memory();
  EXPECT_EQ(std::memcmp(content.data() + kServedMiB, data.data(), kServedMiB), 0)
      << "it waits elsewhere";
  EXPECT_EQ(content[kServedMiB - 1], std::byte{0});
  EXPECT_EQ(content[2 * kServedMiB], std::byte{0});
  threads_.on_reactor([&] { device_->release(); });
  EXPECT_EQ(receive_reply(), 0U);
  // The slot's own memory is used again.
  send(request(NbdCommand::kRead, kServedMiB, 512));
  EXPECT_EQ(receive_reply(), 0U);
  EXPECT_EQ(receive_data(512), std::string(512, 'p'));
}

TEST_F(Nbd, SkipsThePayloadOfARefusedWriteAndGoesOn) {
  start();
  const std::string data(3 * kServedMiB, 'z');
  send(request(NbdCommand::kWrite, 1, 3 * kServedMiB, 5));
  for (size_t sent = 0; sent < data.size(); sent += 64 * 1024) {
    send_bytes(data.data() + sent, 64 * 1024);
  }
  uint64_t cookie = 0;
  EXPECT_EQ(receive_reply(cookie), 22U);
  EXPECT_EQ(cookie, 5U);
  send(request(NbdCommand::kRead, 0, 512, 6));
  EXPECT_EQ(receive_reply(cookie), 0U);
  EXPECT_EQ(cookie, 6U);
  EXPECT_EQ(receive_data(512), std::string(512, '\0'));
  EXPECT_EQ(device_->count(BlockOp::kWrite), 0U);
}

TEST_F(Nbd, LetsClientsWaitWhileAllSlotsAreTaken) {
  start(2);
  threads_.on_reactor([&] { device_->hold(); });
  for (uint64_t i = 0; i < 5; ++i) send(request(NbdCommand::kRead, 0, 512, i));
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 2; }));
  EXPECT_EQ(statistics().in_flight, 2U);
  threads_.on_reactor([&] { device_->release(); });
  for (uint64_t i = 0; i < 5; ++i) {
    uint64_t cookie = 99;
    EXPECT_EQ(receive_reply(cookie), 0U);
    EXPECT_EQ(cookie, i);
    receive_data(512);
  }
  EXPECT_GT(statistics().starved, 0U);
}

TEST_F(Nbd, CutsARangeLongerThanTheDeviceTakes) {
  start();
  threads_.on_reactor([&] { device_->change_info().max_write_zeroes_bytes = 64 * 1024; });
  send(request(NbdCommand::kWriteZeroes, 0, kServedMiB));
  EXPECT_EQ(receive_reply(), 0U);
  EXPECT_EQ(device_->count(BlockOp::kWriteZeroes), 16U);
}

TEST_F(Nbd, ReportsTheErrorsOfTheDeviceWithoutData) {
  start();
  threads_.on_reactor([&] { device_->fail_with(Errc::kNoSpace); });
  send(request(NbdCommand::kRead, 0, 512));
  EXPECT_EQ(receive_reply(), 28U);
  threads_.on_reactor([&] { device_->fail_with(Errc::kOk); });
  send(request(NbdCommand::kFlush, 0, 0));
  EXPECT_EQ(receive_reply(), 0U);
}

TEST_F(Nbd, ClosesAConnectionThatDoesNotSpeakNbd) {
  start(8, 2);
  const std::string garbage(sizeof(NbdRequest), 'g');
  send_bytes(garbage.data(), garbage.size(), 0);
  EXPECT_TRUE(closed_by_server(0));
  threads_.on_reactor([&] { EXPECT_TRUE(server_->alive()); });
  uint64_t cookie = 0;
  send(request(NbdCommand::kFlush, 0, 0), 1);
  EXPECT_EQ(receive_reply(cookie, 1), 0U);
}

TEST_F(Nbd, EndsWhenTheClientTakesItsLeave) {
  start();
  send(request(NbdCommand::kDisconnect, 0, 0));
  EXPECT_TRUE(closed_by_server());
  EXPECT_TRUE(threads_.wait_until([&] { return !server_->alive(); }));
}

TEST_F(Nbd, OutlivesAClientThatVanishesWithRequestsInFlight) {
  start();
  threads_.on_reactor([&] { device_->hold(); });
  for (uint64_t i = 0; i < 3; ++i) send(request(NbdCommand::kRead, 0, 512, i));
  // Half a request stays in the pipe too.
  const NbdRequest half = request(NbdCommand::kWrite, 0, 4096);
  send_bytes(&half, sizeof(half));
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 3; }));
  clients_.clear();
  ASSERT_TRUE(threads_.wait_until([&] { return !server_->alive(); }));
  EXPECT_EQ(statistics().in_flight, 3U);
  threads_.on_reactor([&] { device_->release(); });
  EXPECT_TRUE(threads_.wait_until([&] { return server_->statistics().in_flight == 0; }));
}

TEST_F(Nbd, KeepsTheMemoryOfRequestsThatItsOwnerDidNotWaitFor) {
  start();
  threads_.on_reactor([&] { device_->hold(); });
  send(request(NbdCommand::kRead, 0, 512));
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 1; }));
  threads_.on_reactor([&] { server_.reset(); });
  EXPECT_TRUE(closed_by_server());
  threads_.on_reactor([&] { device_->release(); });
}

}  // namespace
}  // namespace braid::bnbd
