// What the NBD server owes a client that takes its leave, or has closed its sending side.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <set>
#include <string>

#include "bnbd/frontend/test_nbd_server.h"

namespace braid::bnbd {
namespace {

using test::GateDevice;
using test::kServedMiB;

class NbdLeave : public test::NbdServerRig {
 protected:
  static constexpr uint64_t kParts = 16;  // of a trim of one MiB

  void start_in_parts() {
    options_.connections_max = 2;  // clients that may not be trusted
    start();
    threads_.on_reactor([&] {
      device_->change_info().max_discard_bytes = kServedMiB / kParts;
      device_->hold();
    });
  }
  void finish_sending() { ASSERT_EQ(::shutdown(clients_[0].get(), SHUT_WR), 0); }
  void release_device() {
    threads_.on_reactor([&] { device_->release(); });
  }
  bool wait_for_held(int requests) {
    return threads_.wait_until([&] { return device_->held_count() == requests; });
  }
  base::Errc add_client() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    clients_.emplace_back(ends[0]);
    base::Status added;
    threads_.on_reactor([&] { added = server_->add(UniqueFd(ends[1]), false, {}); });
    return added.code();
  }
  static constexpr uint64_t kReads = 64;  // as many requests as one round takes
  static constexpr uint32_t kLongWriteBytes = 96 * 1024;
  /// A write in three parts, and its client's end: all is there when the server looks.
  void send_long_write_behind_reads(size_t payload_bytes) {
    max_io_bytes_ = 32 * 1024;
    start(128);
    threads_.on_reactor([&] {
      device_->hold();
      for (uint64_t i = 0; i < kReads; ++i) send(request(NbdCommand::kRead, 0, 512, i));
      send(request(NbdCommand::kWrite, kServedMiB, kLongWriteBytes, kReads));
      const std::string data(payload_bytes, 'w');
      send_bytes(data.data(), data.size());
      finish_sending();
    });
  }
  /// The connection has ended, and nothing is left.
  bool wait_for_end() {
    return threads_.wait_until(
        [&] { return !server_->alive() && server_->statistics().in_flight == 0; });
  }
};

TEST_F(NbdLeave, ADisconnectComesAfterTheAnswersToAllThatCameBefore) {
  start_in_parts();
  send(request(NbdCommand::kRead, 0, 4096, 1));
  send(request(NbdCommand::kTrim, 0, kServedMiB, 2));
  send(request(NbdCommand::kFlush, 0, 0, 3));
  send(request(NbdCommand::kDisconnect, 0, 0));
  ASSERT_TRUE(wait_for_held(3));
  release_device();
  std::set<uint64_t> cookies;
  for (int i = 0; i < 3; ++i) {
    uint64_t cookie = 0;
    EXPECT_EQ(receive_reply(cookie), 0U);
    if (cookie == 1) {
      EXPECT_EQ(receive_data(4096), std::string(4096, '\0'));
    }
    cookies.insert(cookie);
  }
  EXPECT_EQ(cookies, (std::set<uint64_t>{1, 2, 3}));
  EXPECT_TRUE(closed_by_server());
  EXPECT_TRUE(wait_for_end());
  EXPECT_EQ(device_->count(BlockOp::kDiscard), kParts);
  EXPECT_EQ(threads_.log().with("closed the connection"), "");
}

TEST_F(NbdLeave, NoRequestIsTakenBehindADisconnect) {
  start_in_parts();
  send(request(NbdCommand::kRead, 0, 512, 1));
  send(request(NbdCommand::kDisconnect, 0, 0));
  ASSERT_TRUE(wait_for_held(1));
  send(request(NbdCommand::kFlush, 0, 0, 2));
  release_device();
  EXPECT_EQ(receive_reply(), 0U);
  EXPECT_TRUE(wait_for_end());
  EXPECT_EQ(device_->count(BlockOp::kFlush), 0U);
}

TEST_F(NbdLeave, WhatHadBegunIsCarriedOutThoughTheClientIsGoneAfterItsDisconnect) {
  start_in_parts();
  send(request(NbdCommand::kTrim, 0, kServedMiB));
  send(request(NbdCommand::kDisconnect, 0, 0));
  ASSERT_TRUE(wait_for_held(1));
  clients_.clear();
  ASSERT_TRUE(threads_.wait_until([&] { return !server_->alive(); }));
  release_device();
  EXPECT_TRUE(wait_for_end());
  EXPECT_EQ(device_->count(BlockOp::kDiscard), kParts);
  threads_.on_reactor([&] { EXPECT_EQ(device_->told(), kParts) << "nothing stays untold"; });
}

TEST_F(NbdLeave, WhoHasClosedItsSendingSideGetsAllAnswers) {
  start_in_parts();
  constexpr uint64_t kMany = 100;  // more than there are slots, and than one round takes
  for (uint64_t i = 0; i < kMany; ++i) send(request(NbdCommand::kRead, 0, 64 * 1024, i));
  send(request(NbdCommand::kTrim, 0, kServedMiB, kMany));
  finish_sending();
  ASSERT_TRUE(wait_for_held(6));  // two slots are the other connection's
  release_device();
  std::set<uint64_t> cookies;
  for (uint64_t i = 0; i <= kMany; ++i) {
    uint64_t cookie = kMany + 1;
    EXPECT_EQ(receive_reply(cookie), 0U);
    cookies.insert(cookie);
    if (cookie < kMany) {
      EXPECT_EQ(receive_data(64 * 1024), std::string(64 * 1024, '\0'));
    }
  }
  EXPECT_EQ(cookies.size(), kMany + 1);
  EXPECT_TRUE(closed_by_server());
  EXPECT_TRUE(wait_for_end());
  EXPECT_EQ(device_->count(BlockOp::kDiscard), kParts);
}

TEST_F(NbdLeave, AnEndInTheMiddleOfARequestEndsTheConnection) {
  const NbdRequest write = request(NbdCommand::kWrite, 0, 4096);
  const std::string whole(reinterpret_cast<const char*>(&write), sizeof(write));
  for (const std::string& part : {whole.substr(0, 7), whole, whole + "data"}) {
    clients_.clear();
    start_in_parts();
    send(request(NbdCommand::kRead, 0, 512));
    send_bytes(part.data(), part.size());
    ASSERT_TRUE(wait_for_held(1));
    finish_sending();
    EXPECT_TRUE(closed_by_server());
    release_device();
    EXPECT_TRUE(wait_for_end());
    threads_.on_reactor([&] { server_.reset(); });
  }
  EXPECT_TRUE(is_logged("in the middle of a request"));
}

/// Whether it has said so or just sends no more: its place is another's after a while.
TEST_F(NbdLeave, WhoLeavesAndTakesNoAnswersIsNotWaitedForForEver) {
  options_.linger_ns = 20 * base::kMillisecond;
  for (const bool says_so : {true, false}) {
    clients_.clear();
    options_.connections_max = 2;
    start();
    fill_socket();
    if (says_so) {
      send(request(NbdCommand::kDisconnect, 0, 0));
    } else {
      finish_sending();
    }
    EXPECT_TRUE(wait_for_end());
    threads_.on_reactor([&] { server_.reset(); });
  }
  EXPECT_TRUE(is_logged("does not take the answers"));
}

/// The time is of a client that takes nothing, not of a device that is slow.
TEST_F(NbdLeave, WhoLeavesWaitsForTheDeviceAsLongAsItTakes) {
  options_.linger_ns = base::kMillisecond;
  start_in_parts();
  send(request(NbdCommand::kRead, 0, 512));
  send(request(NbdCommand::kDisconnect, 0, 0));
  ASSERT_TRUE(wait_for_held(1));
  base::Timer later([](base::Timer& timer) { static_cast<GateDevice*>(timer.context)->release(); },
                    device_.get());
  threads_.on_reactor([&] { threads_.reactor().schedule_after(later, 20 * base::kMillisecond); });
  EXPECT_EQ(receive_reply(), 0U);
  EXPECT_EQ(receive_data(512), std::string(512, '\0'));
  EXPECT_TRUE(closed_by_server());
}

/// A client that died far away, while the device was away, keeps nobody out.
TEST_F(NbdLeave, WhoSendsNoMoreMakesRoomForAnotherWhereThereIsNone) {
  start_in_parts();
  EXPECT_EQ(add_client(), base::Errc::kOk);
  EXPECT_EQ(add_client(), base::Errc::kBusy) << "nobody leaves";
  send(request(NbdCommand::kTrim, 0, kServedMiB));
  finish_sending();
  ASSERT_TRUE(wait_for_held(1));
  ASSERT_TRUE(threads_.wait_until([&] { return server_->leaving() == 1; }));
  EXPECT_EQ(add_client(), base::Errc::kOk);
  EXPECT_TRUE(closed_by_server());
  EXPECT_EQ(server_->connections(), 2U);
  EXPECT_EQ(server_->leaving(), 0U);
  EXPECT_EQ(add_client(), base::Errc::kBusy);
  release_device();
  ASSERT_TRUE(threads_.wait_until([&] { return server_->statistics().in_flight == 0; }));
  EXPECT_EQ(device_->count(BlockOp::kDiscard), kParts) << "what it asked for is done all the same";
  EXPECT_TRUE(is_logged("made room"));
}

/// Of such a one nothing is received, also not its end.
TEST_F(NbdLeave, WhoAskedForMoreThanItsShareBeforeItDiedMakesRoom) {
  start_in_parts();
  EXPECT_EQ(add_client(), base::Errc::kOk);
  for (uint64_t i = 0; i < 20; ++i) send(request(NbdCommand::kRead, 0, 512, i));
  ASSERT_TRUE(wait_for_held(6));
  EXPECT_EQ(add_client(), base::Errc::kBusy);
  finish_sending();
  ASSERT_TRUE(threads_.wait_until([&] { return server_->leaving() == 1; }));
  EXPECT_EQ(add_client(), base::Errc::kOk);
  EXPECT_TRUE(closed_by_server());
  EXPECT_EQ(server_->leaving(), 0U);
  release_device();
  EXPECT_TRUE(threads_.wait_until([&] { return server_->statistics().in_flight == 0; }));
}

/// If nobody takes its place, it gets all that it asked for.
TEST_F(NbdLeave, WhoAskedForMoreThanItsShareAndSendsNoMoreGetsItsAnswers) {
  start_in_parts();
  for (uint64_t i = 0; i < 20; ++i) send(request(NbdCommand::kRead, 0, 512, i));
  ASSERT_TRUE(wait_for_held(6));
  finish_sending();
  ASSERT_TRUE(threads_.wait_until([&] { return server_->leaving() == 1; }));
  release_device();
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(receive_reply(), 0U);
    receive_data(512);
  }
  EXPECT_TRUE(closed_by_server());
  EXPECT_TRUE(wait_for_end());
  EXPECT_EQ(server_->leaving(), 0U);
}

/// The rest of a long write may lie in the input when its client's end has been seen.
TEST_F(NbdLeave, AnEndBehindALongWriteWhosePartsAreShortIsNoneInTheMiddle) {
  send_long_write_behind_reads(kLongWriteBytes);
  ASSERT_TRUE(wait_for_held(kReads + 1));
  release_device();
  for (uint64_t i = 0; i <= kReads; ++i) {
    uint64_t cookie = 0;
    EXPECT_EQ(receive_reply(cookie), 0U);
    if (cookie < kReads) receive_data(512);
  }
  EXPECT_TRUE(closed_by_server());
  EXPECT_EQ(device_->count(BlockOp::kWrite), 3U);
}

TEST_F(NbdLeave, AnEndInTheMiddleOfALongWriteIsSeenWhileAPartIsAtTheDevice) {
  send_long_write_behind_reads(kLongWriteBytes - 1);
  ASSERT_TRUE(wait_for_held(kReads + 1));
  EXPECT_TRUE(closed_by_server());
  release_device();
  EXPECT_TRUE(wait_for_end());
  EXPECT_EQ(device_->count(BlockOp::kWrite), 1U);
}

}  // namespace
}  // namespace braid::bnbd
