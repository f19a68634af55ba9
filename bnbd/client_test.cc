// The client against a server that behaves as no Braid server would, or as another version of it
// might.
#include <gtest/gtest.h>

#include <cerrno>
#include <deque>

#include "bnbd/test_fake_server.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;
using wire::Operation;

class OddServer : public test::FakeRig {
 protected:
  OddServer() { client = &add_client(); }
  std::vector<Operation> operations() const {
    std::vector<Operation> all;
    for (const wire::Io& io : script.seen) all.push_back(wire::operation_of(io));
    return all;
  }
  bool arrived(size_t count) {
    return until([&] { return script.seen.size() == count; });
  }
  ClientNode* client = nullptr;
};

TEST_F(OddServer, a_refusal_whatever_its_errno_is_of_that_open_and_no_loss_of_the_path) {
  open(*client, "a");
  for (int sys_errno : {ENOTCONN, ECANCELED, EPROTO, EPIPE, ESTALE, EAGAIN, 511, 100'000}) {
    script.refuse_open_errno = sys_errno;
    auto refused = try_open(*client, {.name = "b"});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.code(), Errc::kDisconnected) << sys_errno;
    EXPECT_NE(refused.error().message().find("the fake will not"), std::string::npos);
  }
  EXPECT_EQ(client->session->statistics().reconnects, 0u);
}

TEST_F(OddServer, a_reopening_refused_with_any_errno_leaves_the_path_to_the_other_devices) {
  RemoteDevice& device = open(*client, "a");
  for (int sys_errno : {ENOTCONN, ECANCELED, EPROTO}) {
    script.refuse_open_errno = sys_errno;
    restart_fake();
    ASSERT_TRUE(until([&] { return device.state() == RemoteState::kUnavailable; })) << sys_errno;
    ASSERT_TRUE(until([&] { return client->session->state() == trs::SessionState::kConnected; }));
    script.refuse_open_errno = 0;
    ASSERT_TRUE(until([&] { return device.state() == RemoteState::kOpen; }));
  }
  EXPECT_EQ(client->session->statistics().reconnects, 3u) << "one for each restart";
}

TEST_F(OddServer, an_answer_that_describes_no_device_is_of_that_open_and_no_loss_of_the_path) {
  RemoteDevice& device = open(*client, "a");
  script.odd_open = "b";
  script.device.device_id = 8;
  const auto refused = try_open(*client, {.name = "b"});
  ASSERT_EQ(refused.code(), Errc::kProtocol);
  EXPECT_NE(refused.error().message().find("physical blocks of 0 bytes"), std::string::npos);
  EXPECT_EQ(script.closes, std::vector{8u}) << "the server must not keep it for nobody";
  script.device.device_id = 7;
  EXPECT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  EXPECT_EQ(client->session->statistics().reconnects, 0u);
}

TEST_F(OddServer, a_reopening_answered_with_no_device_leaves_the_path_to_the_other_devices) {
  RemoteDevice& odd = open(*client, "odd");
  RemoteDevice& device = open(*client, "a");
  script.odd_open = "odd";
  restart_fake();
  ASSERT_TRUE(until([&] { return odd.state() == RemoteState::kUnavailable; }));
  ASSERT_TRUE(until([&] { return device.state() == RemoteState::kOpen; }));
  EXPECT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  EXPECT_NE(odd.explain().find("physical blocks of 0 bytes"), std::string::npos) << odd.explain();
  script.odd_open.clear();
  ASSERT_TRUE(until([&] { return odd.state() == RemoteState::kOpen; }));
  EXPECT_EQ(client->session->statistics().reconnects, 1u);
}

// A FUA write may be sent to one server and, its answer lost, again to another. It is durable only
// if it went with the flag to a server that heeds it.
TEST_F(OddServer, a_fua_write_sent_again_to_a_server_without_fua_is_followed_by_a_flush) {
  RemoteDevice& device = open(*client);
  script.hold_io = true;
  Io write(BlockOp::kWrite, 0, 4096, 1);
  submit(*client, device, write.fua());
  ASSERT_TRUE(arrived(1));
  EXPECT_NE(script.seen[0].operation_flags & wire::kFlagForceUnitAccess, 0u);
  script.hold_io = false;
  script.device.force_unit_access = false;
  restart_fake();
  EXPECT_EQ(wait(write), Errc::kOk);
  EXPECT_EQ(operations(), (std::vector{Operation::kWrite, Operation::kWrite, Operation::kFlush}));
}

TEST_F(OddServer, a_fua_write_sent_again_as_it_was_to_a_server_with_fua_is_followed_by_a_flush) {
  script.device.force_unit_access = false;
  RemoteDevice& device = open(*client);
  script.hold_io = true;
  Io write(BlockOp::kWrite, 0, 4096, 1);
  submit(*client, device, write.fua());
  ASSERT_TRUE(arrived(1));
  EXPECT_EQ(script.seen[0].operation_flags & wire::kFlagForceUnitAccess, 0u);
  script.hold_io = false;
  script.device.force_unit_access = true;
  restart_fake();
  EXPECT_EQ(wait(write), Errc::kOk);
  EXPECT_EQ(operations(), (std::vector{Operation::kWrite, Operation::kWrite, Operation::kFlush}));
  EXPECT_EQ(script.seen[1].operation_flags & wire::kFlagForceUnitAccess, 0u);
}

TEST_F(OddServer, fua_goes_with_the_flag_again_once_the_server_heeds_it) {
  script.device.force_unit_access = false;
  RemoteDevice& device = open(*client);
  script.device.force_unit_access = true;
  restart_fake();
  ASSERT_TRUE(until([&] { return device.status().reopened == 1; }));
  Io write(BlockOp::kWrite, 0, 4096, 1);
  EXPECT_EQ(run(*client, device, write.fua()), Errc::kOk);
  EXPECT_EQ(operations(), std::vector{Operation::kWrite});
}

TEST_F(OddServer, an_open_that_is_never_answered_ends_in_time_and_delays_nobody) {
  RemoteDevice& device = open(*client, "a");
  script.hang_open = "hung";
  const auto hung = begin_open(*client, "hung");
  ASSERT_TRUE(until([&] { return script.opens == 2; }));
  EXPECT_TRUE(try_open(*client, {.name = "b"}).ok());
  EXPECT_FALSE(hung->has_value());
  ASSERT_TRUE(until([&] { return hung->has_value(); }));
  EXPECT_EQ((*hung)->code(), Errc::kTimedOut);
  EXPECT_NE((*hung)->error().message().find("'hung'"), std::string::npos)
      << (*hung)->error().message();
  EXPECT_EQ(script.opens, 3u) << "it is not asked again";
  EXPECT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  EXPECT_EQ(client->session->statistics().reconnects, 0u);
}

TEST_F(OddServer, an_open_that_is_answered_when_nobody_waits_any_more_is_closed) {
  script.device.device_id = 1;
  open(*client, "a");
  script.hang_open = "late";
  const auto late = begin_open(*client, "late");
  ASSERT_TRUE(until([&] { return late->has_value(); }));
  ASSERT_EQ((*late)->code(), Errc::kTimedOut);
  script.device.device_id = 2;
  fake->home().post([&] { fake->release_opens(); });
  ASSERT_TRUE(until([&] { return !script.closes.empty(); }));
  world.run_for(base::kSecond);
  EXPECT_EQ(script.closes, std::vector{2u});
}

TEST_F(OddServer, an_open_that_is_answered_late_and_with_nonsense_is_closed_too) {
  script.hang_open = script.odd_open = "late";
  const auto late = begin_open(*client, "late");
  ASSERT_TRUE(until([&] { return late->has_value(); }));
  ASSERT_EQ((*late)->code(), Errc::kTimedOut);
  fake->home().post([&] { fake->release_opens(); });
  ASSERT_TRUE(until([&] { return !script.closes.empty(); }));
  world.run_for(base::kSecond);
  EXPECT_EQ(script.closes, std::vector{script.device.device_id});
}

TEST_F(OddServer, devices_are_opened_again_side_by_side) {
  for (const char* name : {"a", "slow", "b"}) open(*client, name);
  script.hang_open = "slow";
  restart_fake();
  script.opens = 0;
  ASSERT_TRUE(until([&] { return script.opens == 3; })) << "the slow one is one of three";
  EXPECT_EQ(client->session->devices().at(2)->status().reopened, 0u) << "all wait for each other";
  ASSERT_TRUE(until([&] { return client->session->devices().at(2)->status().reopened == 1; }));
  EXPECT_EQ(client->session->devices().at(0)->status().reopened, 1u);
}

TEST_F(OddServer, an_open_that_is_answered_late_is_left_to_who_has_asked_again) {
  script.hang_open = "late";
  const auto late = begin_open(*client, "late");
  ASSERT_TRUE(until([&] { return late->has_value(); }));
  script.hang_open.clear();
  RemoteDevice& device = open(*client, "late");
  fake->home().post([&] { fake->release_opens(); });
  world.run_for(base::kSecond);
  EXPECT_TRUE(script.closes.empty()) << "the server has given the same device twice";
  EXPECT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
}

TEST_F(OddServer, an_open_that_is_answered_late_is_left_to_who_has_asked_by_another_spelling) {
  script.hang_open = "/late";
  const auto late = begin_open(*client, "/late");
  ASSERT_TRUE(until([&] { return late->has_value(); }));
  RemoteDevice& device = open(*client, "late");
  fake->home().post([&] { fake->release_opens(); });
  world.run_for(base::kSecond);
  EXPECT_TRUE(script.closes.empty()) << "the server has given the same device twice";
  EXPECT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
}

// The device's own maximum may be less than the transport's.
TEST_F(OddServer, requests_are_no_longer_than_the_device_takes) {
  script.device.max_io_bytes = 20 << 10;  // not a multiple of all lengths
  RemoteDevice& device = open(*client);
  Io write(BlockOp::kWrite, 4096, 256 << 10);
  for (size_t i = 0; i < 256 << 10; ++i) write.request.buffer.address[i] = std::byte(i / 4096 + 1);
  EXPECT_EQ(run(*client, device, write), Errc::kOk);
  EXPECT_EQ(script.seen.size(), 13u);
  Io read(BlockOp::kRead, 4096, 256 << 10, 0x55);
  EXPECT_EQ(run(*client, device, read), Errc::kOk);
  EXPECT_TRUE(std::equal(read.bytes().begin(), read.bytes().end(), write.bytes().begin()));
  for (const wire::Io& io : script.seen) EXPECT_LE(io.length_bytes, 20u << 10);
}

TEST_F(OddServer, requests_that_were_held_are_cut_for_a_server_that_takes_less) {
  RemoteDevice& device = open(*client);
  auto region = std::move(device.create_region(512 << 10)).value();
  std::fill_n(region->data(), 256 << 10, std::byte{9});
  script.hold_io = true;
  Io mine(BlockOp::kWrite, 0, 256 << 10);
  mine.request.buffer = {region.get(), region->data()};
  Io copied(BlockOp::kWrite, 256 << 10, 256 << 10, 8);
  Io read(BlockOp::kRead, 512 << 10, 64 << 10, 0x55);
  for (Io* io : {&mine, &copied, &read}) submit(*client, device, *io);
  ASSERT_TRUE(arrived(9));
  std::fill_n(script.content.data() + (512 << 10), 64 << 10, std::byte{7});
  script.hold_io = false;
  script.seen.clear();
  script.device.max_io_bytes = 12 << 10;
  restart_fake();
  for (Io* io : {&mine, &copied, &read}) EXPECT_EQ(wait(*io), Errc::kOk);
  for (const wire::Io& io : script.seen) EXPECT_LE(io.length_bytes, 12u << 10);
  EXPECT_TRUE(read.all(7));
  EXPECT_TRUE(reads_as(*client, device, 0, 256 << 10, 9));
  EXPECT_TRUE(reads_as(*client, device, 256 << 10, 256 << 10, 8));
  EXPECT_EQ(device.statistics().writes, 2u) << "each counts once";
  EXPECT_EQ(client->session->statistics().in_flight, 0u);
}

TEST_F(OddServer, closing_ends_requests_that_are_being_cut) {
  RemoteDevice& device = open(*client);
  script.hold_io = true;
  std::deque<Io> ios;
  for (uint64_t i = 0; i < 8; ++i) {
    ios.emplace_back(BlockOp::kWrite, i * (64 << 10), 64 << 10, 1);
    submit(*client, device, ios.back());
  }
  ASSERT_TRUE(arrived(8));
  script.hold_io = false;
  script.device.max_io_bytes = 4096;
  restart_fake();
  script.seen.clear();
  ASSERT_TRUE(until([&] { return script.seen.size() > 4; }));
  await(*client, device.close());
  for (Io& io : ios) EXPECT_EQ(io.completions, 1);
  for (Io& io : ios) EXPECT_TRUE(io.status == Errc::kOk || io.status == Errc::kCanceled);
}

TEST_F(OddServer, a_held_discard_is_cut_for_a_server_that_takes_less) {
  RemoteDevice& device = open(*client);
  script.hold_io = true;
  Io discard(BlockOp::kDiscard, 0, 1 << 20);
  submit(*client, device, discard);
  ASSERT_TRUE(arrived(1));
  script.hold_io = false;
  script.seen.clear();
  script.device.max_discard_bytes = 256 << 10;
  restart_fake();
  EXPECT_EQ(wait(discard), Errc::kOk);
  ASSERT_EQ(script.seen.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(script.seen[i].sector, i * 512);
    EXPECT_EQ(script.seen[i].length_bytes, 256u << 10);
  }
}

}  // namespace
}  // namespace braid::bnbd
