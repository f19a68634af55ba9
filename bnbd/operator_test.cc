// What an operator at the server does to clients: takes devices away. And how users get them back.
#include <gtest/gtest.h>

#include "bnbd/server/session.h"
#include "bnbd/test_fake_server.h"
#include "bnbd/test_rig.h"
#include "trs/wire.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;
using wire::AccessMode;

class Operator : public test::ServedRig {
 protected:
  Operator() {
    first = &add_client("first");
    second = &add_client("second");
  }
  base::Result<ForceClosed> force_close(const std::string& exported,
                                        const std::string& session = "") {
    auto closed = std::make_shared<std::optional<base::Result<ForceClosed>>>();
    server_node->home().post([this, exported, session, closed] {
      closed->emplace(server->force_close({exported, session}));
    });
    EXPECT_TRUE(until([&] { return closed->has_value(); }));
    return **closed;
  }
  base::Status remap(ClientNode& client, RemoteDevice& device) {
    return await(client, device.remap());
  }
  bool reaches(const RemoteDevice& device, RemoteState state) {
    return until([&] { return device.state() == state; });
  }
  void expect_held(const Io& io) {
    world.run_for(10 * base::kSecond);
    EXPECT_FALSE(io.status.has_value());
  }

  ClientNode* first = nullptr;
  ClientNode* second = nullptr;
};

TEST_F(Operator, a_device_that_is_taken_away_holds_its_io_until_its_user_takes_it_back) {
  RemoteDevice& device = open(*first);
  ASSERT_EQ(write(*first, device, 0, 4096, 1), Errc::kOk);
  ASSERT_EQ(force_close("disk.img")->devices, 1u);
  Io held(BlockOp::kWrite, 4096, 4096, 2);
  submit(*first, device, held);
  ASSERT_TRUE(reaches(device, RemoteState::kRevoked));
  EXPECT_NE(device.explain().find("operator"), std::string::npos) << device.explain();
  EXPECT_NE(device.explain().find("1 requests are held"), std::string::npos) << device.explain();
  expect_held(held);
  EXPECT_EQ(device.state(), RemoteState::kRevoked) << "it does not come back by itself";
  ASSERT_TRUE(remap(*first, device).ok());
  EXPECT_EQ(wait(held), Errc::kOk);
  EXPECT_TRUE(reads_as(*first, device, 0, 4096, 1));
  EXPECT_EQ(device.state(), RemoteState::kOpen);
  EXPECT_EQ(server->statistics().force_closed, 1u);
}

TEST_F(Operator, a_client_that_is_idle_is_told_too) {
  RemoteDevice& device = open(*first);
  RemoteDevice& other = open(*first, "ram");
  unsigned changes = 0;
  first->home().post([&] { device.watch([&] { ++changes; }); });
  world.run_for(base::kMillisecond);
  ASSERT_TRUE(force_close("disk.img").ok());
  ASSERT_TRUE(reaches(device, RemoteState::kRevoked));
  EXPECT_EQ(changes, 1u);
  EXPECT_EQ(other.state(), RemoteState::kOpen);
}

TEST_F(Operator, who_is_let_in_meanwhile_supersedes_who_was_put_out) {
  RemoteDevice& device = open(*first);
  ASSERT_TRUE(force_close("disk.img", "first").ok());
  Io held(BlockOp::kWrite, 0, 4096, 1);
  submit(*first, device, held);
  RemoteDevice& others = open(*second);
  ASSERT_EQ(write(*second, others, 0, 4096, 2), Errc::kOk);
  ASSERT_TRUE(reaches(device, RemoteState::kRevoked));
  const base::Status refused = remap(*first, device);
  EXPECT_EQ(refused.code(), Errc::kStale) << "not even beside it: what it holds must never land";
  EXPECT_EQ(device.state(), RemoteState::kSuperseded);
  EXPECT_EQ(wait(held), Errc::kIo);
  EXPECT_TRUE(reads_as(*second, others, 0, 4096, 2));
  EXPECT_EQ(remap(*first, device).code(), Errc::kStale);
}

TEST_F(Operator, the_loss_of_the_path_does_not_give_back_what_was_taken_away) {
  for (const AccessMode mode : {AccessMode::kReadWrite, AccessMode::kReadOnly}) {
    RemoteDevice& device = open(*first, "disk.img", mode);
    world.fabric().set_port_up("10.0.1.1", false);  // it cannot be told
    ASSERT_TRUE(force_close("disk.img").ok());
    ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
    Io held(BlockOp::kRead, 0, 4096);
    submit(*first, device, held);
    world.fabric().set_port_up("10.0.1.1", true);
    ASSERT_TRUE(reaches(device, RemoteState::kRevoked)) << wire::to_string(mode);
    expect_held(held);
    ASSERT_TRUE(remap(*first, device).ok());
    EXPECT_EQ(wait(held), Errc::kOk);
    await(*first, device.close());
  }
}

TEST_F(Operator, a_taken_device_is_remapped_when_there_is_a_path_again) {
  RemoteDevice& device = open(*first);
  ASSERT_TRUE(force_close("disk.img").ok());
  ASSERT_TRUE(reaches(device, RemoteState::kRevoked));
  kill_server();
  ASSERT_TRUE(until([&] { return first->session->state() != trs::SessionState::kConnected; }));
  EXPECT_EQ(device.state(), RemoteState::kRevoked);
  EXPECT_EQ(remap(*first, device).code(), Errc::kDisconnected);
  EXPECT_EQ(device.state(), RemoteState::kPathDown);
  start_server();
  EXPECT_TRUE(reaches(device, RemoteState::kOpen));
}

TEST_F(Operator, unmapping_ends_what_a_taken_device_holds) {
  RemoteDevice& device = open(*first);
  ASSERT_TRUE(force_close("disk.img").ok());
  Io held(BlockOp::kWrite, 0, 4096, 1);
  submit(*first, device, held);
  ASSERT_TRUE(reaches(device, RemoteState::kRevoked));
  await(*first, device.close());
  EXPECT_EQ(wait(held), Errc::kCanceled);
  open(*first);
}

TEST_F(Operator, a_taken_device_gives_up_when_it_was_told_to) {
  RemoteDeviceOptions options;
  options.name = "disk.img";
  options.give_up_after_ns = 3 * base::kSecond;
  RemoteDevice& device = **try_open(*first, std::move(options));
  ASSERT_TRUE(force_close("disk.img").ok());
  EXPECT_EQ(write(*first, device, 0, 4096, 1), Errc::kTimedOut);
  EXPECT_EQ(device.state(), RemoteState::kRevoked);
}

TEST_F(Operator, a_session_that_is_closed_loses_its_devices_and_its_connections) {
  RemoteDevice& device = open(*first);
  RemoteDevice& ram = open(*first, "ram");
  RemoteDevice& others = open(*second, "void");
  const auto before = server->session_statuses();
  ASSERT_EQ(before.size(), 2u);
  EXPECT_EQ(before.front().devices.size(), 2u);
  const uint64_t opened = server->transport_statistics().sessions_opened;
  auto closed = force_close("", "first");
  ASSERT_TRUE(closed.ok()) << closed.error().message();
  EXPECT_EQ(closed->devices, 2u);
  EXPECT_EQ(closed->sessions, 1u);
  EXPECT_EQ(closed->kept, 0u);
  EXPECT_EQ(server->statistics().sessions_ended, 1u);
  EXPECT_TRUE(until([&] { return server->transport_statistics().sessions_opened > opened; }))
      << "its client makes another session";
  EXPECT_TRUE(reaches(device, RemoteState::kRevoked) && reaches(ram, RemoteState::kRevoked));
  EXPECT_NE(device.explain().find("operator has closed 'disk.img'"), std::string::npos)
      << device.explain();
  EXPECT_EQ(others.state(), RemoteState::kOpen);
  EXPECT_EQ(server->transport_statistics().sessions_opened, opened + 1) << "the other one stands";
  for (const SessionStatus& session : server->session_statuses()) {
    EXPECT_EQ(session.devices.size(), session.name == "first" ? 0u : 1u);
  }
  EXPECT_EQ(force_close("disk.img", "nobody").code(), Errc::kNotFound);
  EXPECT_EQ(force_close("", "nobody").code(), Errc::kNotFound);
  EXPECT_EQ(force_close("").code(), Errc::kInvalid);
}

TEST_F(Operator, io_of_a_session_that_was_closed_waits_until_its_user_takes_the_device_back) {
  RemoteDevice& device = open(*first);
  disk->faults.stalled_until_ns = world.now_ns() + 3 * base::kSecond;
  Io at_disk(BlockOp::kWrite, 0, 4096, 1);
  submit(*first, device, at_disk);
  world.run_for(10 * base::kMillisecond);
  ASSERT_EQ(force_close("", "first")->sessions, 1u);
  Io later(BlockOp::kWrite, 4096, 4096, 2);
  submit(*first, device, later);
  auto again = force_close("", "first");
  EXPECT_EQ(again.code(), Errc::kBusy) << "its disk has not answered";
  EXPECT_EQ(try_open(*second, {.name = "disk.img"}).code(), Errc::kBusy);
  ASSERT_TRUE(reaches(device, RemoteState::kRevoked));
  EXPECT_EQ(wait(at_disk), Errc::kOk) << "it was done, and the server knows that still";
  expect_held(later);
  ASSERT_TRUE(remap(*first, device).ok());
  EXPECT_EQ(wait(later), Errc::kOk);
  EXPECT_TRUE(reads_as(*first, device, 0, 4096, 1) && reads_as(*first, device, 4096, 4096, 2));
}

TEST_F(Operator, a_session_with_nothing_open_can_be_closed_and_its_client_goes_on) {
  ASSERT_TRUE(until([&] { return server->session_statuses().size() == 2; }));
  auto closed = force_close("", "first");
  ASSERT_TRUE(closed.ok()) << closed.error().message();
  EXPECT_EQ(closed->devices, 0u);
  EXPECT_EQ(closed->sessions, 1u);
  ASSERT_TRUE(until([&] { return first->session->state() != trs::SessionState::kConnected; }));
  ASSERT_TRUE(until([&] { return first->session->state() == trs::SessionState::kConnected; }));
  EXPECT_EQ(write(*first, open(*first), 0, 4096, 1), Errc::kOk);
}

TEST(OperatorAndOthers, connections_stay_of_clients_that_would_open_their_devices_again) {
  EXPECT_TRUE(server::may_end_transport(/*braid_peer=*/true, 2));
  EXPECT_TRUE(server::may_end_transport(true, 0));
  EXPECT_TRUE(server::may_end_transport(false, 0));
  EXPECT_FALSE(server::may_end_transport(false, 1));
}

TEST_F(Operator, what_is_at_the_disk_of_a_taken_device_ends_before_another_may_write) {
  RemoteDevice& device = open(*first);
  disk->faults.stalled_until_ns = world.now_ns() + 20 * base::kSecond;
  Io slow(BlockOp::kWrite, 0, 4096, 1);
  submit(*first, device, slow);
  world.run_for(10 * base::kMillisecond);
  ASSERT_TRUE(force_close("disk.img").ok());
  const auto ending = server->session_statuses();
  ASSERT_EQ(ending.front().devices.size(), 1u);
  EXPECT_TRUE(ending.front().devices.front().ending);
  EXPECT_EQ(ending.front().devices.front().in_flight, 1u);
  EXPECT_EQ(try_open(*second, {.name = "disk.img"}).code(), Errc::kBusy);
  EXPECT_EQ(wait(slow), Errc::kOk) << "it was let in before";
  EXPECT_TRUE(try_open(*second, {.name = "disk.img"}).ok());
}

TEST_F(Operator, a_restarted_server_has_forgotten_whom_it_put_out) {
  RemoteDevice& device = open(*first);
  world.fabric().set_port_up("10.0.1.1", false);
  ASSERT_TRUE(force_close("disk.img").ok());
  ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
  kill_server();
  start_server();
  world.fabric().set_port_up("10.0.1.1", true);
  EXPECT_TRUE(reaches(device, RemoteState::kOpen)) << "documented: unless another came first";
}

TEST_F(Operator, an_open_device_or_one_without_a_path_is_not_mapped_again) {
  RemoteDevice& device = open(*first);
  EXPECT_EQ(remap(*first, device).code(), Errc::kExists);
  kill_server();
  ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
  EXPECT_EQ(remap(*first, device).code(), Errc::kDisconnected);
}

class OddNews : public test::FakeRig {
 protected:
  OddNews() {
    // As an older version, which asks by itself.
    session_options.transport.features = trs::kAllFeatures & ~trs::wire::kFeatureNotices;
    client = &add_client();
  }
  ClientNode* client = nullptr;
};

TEST_F(OddNews, news_of_unknown_devices_and_answers_that_are_none_do_no_harm) {
  RemoteDevice& device = open(*client);
  script.news = {5, {{999, wire::NewsKind::kClosed, 0}, {999, wire::NewsKind::kResized, 512}}};
  ASSERT_TRUE(until([&] { return script.news_seen == 5; }));
  EXPECT_EQ(device.state(), RemoteState::kOpen);
  EXPECT_EQ(device.info().size_bytes, 1u << 20);
  script.odd_news = true;
  world.run_for(5 * base::kSecond);
  EXPECT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  EXPECT_EQ(client->session->statistics().reconnects, 0u);
}

TEST_F(OddNews, a_size_that_is_no_whole_blocks_is_cut) {
  RemoteDevice& device = open(*client);
  script.news = {1, {{7, wire::NewsKind::kResized, (2 << 20) + 512}}};
  ASSERT_TRUE(until([&] { return device.info().size_bytes != 1u << 20; }));
  EXPECT_EQ(device.info().size_bytes, 2u << 20);
}

}  // namespace
}  // namespace braid::bnbd
