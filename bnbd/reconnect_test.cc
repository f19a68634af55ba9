// The server dies and comes back, in every way: what is held, sent again, refused, reported.
#include <gtest/gtest.h>

#include <deque>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;
using wire::AccessMode;

class Reconnect : public test::ServedRig {
 protected:
  Reconnect() { client = &add_client(); }
  bool reaches(const RemoteDevice& device, RemoteState state) {
    return until([&] { return device.state() == state; });
  }
  ClientNode* client = nullptr;
};

TEST_F(Reconnect, io_is_held_while_the_server_is_away_and_goes_on_when_it_is_back) {
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  kill_server();
  ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
  Io write(BlockOp::kWrite, 4096, 4096, 2);
  Io read(BlockOp::kRead, 0, 4096);
  submit(*client, device, write);
  submit(*client, device, read);
  world.run_for(20 * base::kSecond);
  EXPECT_FALSE(write.status.has_value() || read.status.has_value());
  EXPECT_NE(device.explain().find("2 requests are held"), std::string::npos) << device.explain();
  start_server();
  EXPECT_EQ(wait(write), Errc::kOk);
  EXPECT_EQ(wait(read), Errc::kOk);
  EXPECT_TRUE(read.all(1));
  EXPECT_EQ(device.state(), RemoteState::kOpen);
  EXPECT_EQ(device.status().reopened, 1u);
}

TEST_F(Reconnect, a_server_killed_under_load_loses_no_request_and_no_data) {
  RemoteDevice& device = open(*client);
  std::deque<Io> ios;
  for (int round = 0; round < 5; ++round) {
    for (uint64_t i = 0; i < 200; ++i) {
      ios.emplace_back(BlockOp::kWrite, i * 16384, 16384, round * 40 + static_cast<int>(i % 40));
      submit(*client, device, ios.back());
    }
    world.run_for(base::kMillisecond);
    kill_server();
    start_server();
    for (Io& io : ios) ASSERT_EQ(wait(io), Errc::kOk);
    for (Io& io : ios) EXPECT_EQ(io.completions, 1);
    for (uint64_t i = 0; i < 200; i += 3) {
      EXPECT_TRUE(
          reads_as(*client, device, i * 16384, 16384, round * 40 + static_cast<int>(i % 40)));
    }
    ios.clear();
    EXPECT_EQ(flush(*client, device), Errc::kOk) << "a killed process loses nothing";
  }
  EXPECT_EQ(device.status().losses, 0u);
}

TEST_F(Reconnect, a_restart_of_the_machine_fails_the_next_flush_once) {
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  restart_machine();
  ASSERT_TRUE(until([&] { return device.status().reopened == 1; }));
  ASSERT_TRUE(reaches(device, RemoteState::kOpen));
  EXPECT_NE(device.explain().find("next flush will fail"), std::string::npos) << device.explain();
  EXPECT_EQ(flush(*client, device), Errc::kIo);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
  EXPECT_EQ(device.status().losses, 1u);
  EXPECT_EQ(device.status().flushes_failed, 1u);
}

TEST_F(Reconnect, a_restart_with_everything_flushed_or_fua_goes_unnoticed) {
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  ASSERT_EQ(flush(*client, device), Errc::kOk);
  Io fua(BlockOp::kWrite, 4096, 4096, 2);
  ASSERT_EQ(run(*client, device, fua.fua()), Errc::kOk);
  restart_machine();
  ASSERT_TRUE(until([&] { return device.status().reopened == 1; }));
  EXPECT_EQ(flush(*client, device), Errc::kOk);
  EXPECT_TRUE(reads_as(*client, device, 0, 4096, 1));
  EXPECT_TRUE(reads_as(*client, device, 4096, 4096, 2));
}

TEST_F(Reconnect, a_flush_submitted_while_the_machine_restarts_fails) {
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  server_machine.power_loss();
  Io flush(BlockOp::kFlush);
  submit(*client, device, flush);
  world.run_for(5 * base::kSecond);
  EXPECT_FALSE(flush.status.has_value());
  server_machine.power_on();
  start_server();
  EXPECT_EQ(wait(flush), Errc::kIo);
  EXPECT_EQ(Reconnect::flush(*client, device), Errc::kOk);
}

TEST_F(Reconnect, a_preflush_fails_likewise_and_its_write_is_not_done) {
  RemoteDevice& device = open(*client);
  Io old(BlockOp::kWrite, 4096, 4096, 5);
  ASSERT_EQ(run(*client, device, old.fua()), Errc::kOk);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  restart_machine();
  Io commit(BlockOp::kWrite, 4096, 4096, 6);
  commit.request.preflush = true;
  EXPECT_EQ(run(*client, device, commit.fua()), Errc::kIo);
  EXPECT_TRUE(reads_as(*client, device, 4096, 4096, 5));
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

TEST_F(Reconnect, a_server_without_our_memory_disk_keeps_the_device_down) {
  RemoteDevice& device = open(*client, "ram");
  RemoteDevice& other = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  kill_server();
  Io held(BlockOp::kRead, 0, 4096);
  submit(*client, device, held);
  start_server();
  ASSERT_TRUE(reaches(device, RemoteState::kReplaced));
  EXPECT_TRUE(reads_as(*client, other, 0, 4096, 0)) << "the session's other devices go on";
  world.run_for(10 * base::kSecond);
  EXPECT_FALSE(held.status.has_value());
  EXPECT_NE(device.explain().find("another device"), std::string::npos) << device.explain();
  await(*client, device.close());
  EXPECT_EQ(held.status, Errc::kCanceled);
  RemoteDevice& fresh = open(*client, "ram");
  EXPECT_TRUE(reads_as(*client, fresh, 0, 4096, 0));
}

TEST_F(Reconnect, requests_in_flight_to_a_replaced_device_are_held_too) {
  RemoteDevice& device = open(*client, "ram");
  std::deque<Io> ios;
  for (uint64_t i = 0; i < 100; ++i) {
    ios.emplace_back(BlockOp::kWrite, i * 4096, 4096, 1);
    submit(*client, device, ios.back());
  }
  ASSERT_TRUE(until([&] { return ios.front().status.has_value(); }));
  kill_server();
  start_server();
  ASSERT_TRUE(reaches(device, RemoteState::kReplaced));
  world.run_for(base::kSecond);
  const auto held =
      std::count_if(ios.begin(), ios.end(), [](const Io& io) { return !io.status.has_value(); });
  EXPECT_GT(held, 0);
  EXPECT_EQ(server->exports().front().statistics.writes, 0u) << "none reached the other device";
  await(*client, device.close());
  for (Io& io : ios) EXPECT_EQ(io.completions, 1);
}

TEST_F(Reconnect, a_missing_file_makes_the_device_wait_until_it_is_there_again) {
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  kill_server();
  exports.root = "/elsewhere";
  start_server();
  ASSERT_TRUE(reaches(device, RemoteState::kUnavailable));
  Io read(BlockOp::kRead, 0, 4096);
  submit(*client, device, read);
  world.run_for(10 * base::kSecond);
  EXPECT_FALSE(read.status.has_value());
  EXPECT_NE(device.explain().find("disk.img"), std::string::npos) << device.explain();
  kill_server();
  exports.root = "/exports";
  start_server();
  EXPECT_EQ(wait(read), Errc::kOk);
  EXPECT_TRUE(read.all(1));
}

// Two writers, let in for migrations, are there when the first comes back.
TEST_F(Reconnect, a_device_held_by_another_is_tried_again_until_it_is_free) {
  RemoteDevice& device = open(*client);
  ClientNode& other = add_client("other");
  ClientNode& third = add_client("third");
  RemoteDevice& migrated = open(other, "disk.img", AccessMode::kMigration);
  world.fabric().set_port_up("10.0.1.1", false);
  world.run_for(2 * base::kSecond);
  open(third, "disk.img", AccessMode::kMigration);
  world.fabric().set_port_up("10.0.1.1", true);
  ASSERT_TRUE(reaches(device, RemoteState::kUnavailable));
  EXPECT_NE(device.explain().find("open for writing by other"), std::string::npos)
      << device.explain();
  Io write(BlockOp::kWrite, 0, 4096, 2);
  submit(*client, device, write);
  world.run_for(5 * base::kSecond);
  EXPECT_FALSE(write.status.has_value());
  await(other, migrated.close());
  EXPECT_EQ(wait(write), Errc::kOk) << "the path is the same: the device is tried again on it";
}

TEST_F(Reconnect, closing_while_the_path_is_down_fails_what_is_held) {
  RemoteDevice& device = open(*client);
  RemoteDevice& other = open(*client, "ram");
  std::deque<Io> ios;
  for (uint64_t i = 0; i < 300; ++i) {
    ios.emplace_back(BlockOp::kWrite, i * 4096, 4096, 1);
    submit(*client, device, ios.back());
  }
  world.run_for(100 * base::kMicrosecond);
  kill_server();
  ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
  await(*client, device.close());
  for (Io& io : ios) {
    ASSERT_EQ(io.completions, 1);
    EXPECT_TRUE(io.status == Errc::kOk || io.status == Errc::kCanceled);
  }
  EXPECT_EQ(other.state(), RemoteState::kPathDown);
  EXPECT_EQ(client->session->statistics().in_flight, 0u);
}

TEST_F(Reconnect, a_dropped_path_gives_back_what_a_hung_disk_does_not) {
  RemoteDevice& device = open(*client);
  disk->faults.stalled_until_ns = 10'000 * base::kSecond;
  Io stuck(BlockOp::kWrite, 0, 4096, 1);
  submit(*client, device, stuck);
  world.run_for(base::kSecond);
  bool closed = false;
  const auto close = [](RemoteDevice& which, bool& done) -> base::Task<void> {
    co_await which.close();
    done = true;
  };
  client->home().post([&] { client->home().spawn(close(device, closed)); });
  world.run_for(10 * base::kSecond);
  ASSERT_FALSE(closed || stuck.status.has_value()) << "its server may still read the buffer";
  client->home().post([&] { client->session->drop_path("the test asks for it"); });
  ASSERT_TRUE(until([&] { return closed; }));
  EXPECT_EQ(stuck.completions, 1);
  EXPECT_EQ(stuck.status, Errc::kCanceled);
}

class HungClose : public Reconnect {
 protected:
  HungClose() {
    disk->faults.stalled_until_ns = 10'000 * base::kSecond;
    submit(*client, device, stuck);
    world.run_for(base::kSecond);
  }
  /// Begins to close it, and runs for so long.
  void close_for(uint64_t duration_ns) {
    client->home().post([this] { client->home().spawn(close()); });
    world.run_for(duration_ns);
  }
  base::Task<void> close() {
    co_await device.close();
    closed = true;
  }
  RemoteDevice& device = open(*client);
  Io stuck{BlockOp::kWrite, 0, 4096, 1};
  bool closed = false;
};

TEST_F(HungClose, gives_the_path_up_after_a_while) {
  close_for(29 * base::kSecond);
  ASSERT_FALSE(closed || stuck.status.has_value()) << "its server may still read the buffer";
  ASSERT_TRUE(until([&] { return closed; }));
  EXPECT_EQ(stuck.completions, 1);
  EXPECT_EQ(stuck.status, Errc::kCanceled);
}

TEST_F(HungClose, leaves_the_path_to_others_as_long_as_they_need_it) {
  RemoteDevice& other = open(*client, "ram");
  close_for(60 * base::kSecond);
  EXPECT_FALSE(closed);
  EXPECT_EQ(write(*client, other, 0, 4096, 1), Errc::kOk);
  EXPECT_EQ(client->session->statistics().reconnects, 0u);
  await(*client, other.close());
  ASSERT_TRUE(until([&] { return closed; }));
  EXPECT_EQ(stuck.status, Errc::kCanceled);
}

TEST_F(Reconnect, a_path_that_flaps_changes_nothing) {
  RemoteDevice& device = open(*client);
  std::deque<Io> ios;
  for (int round = 0; round < 10; ++round) {
    for (uint64_t i = 0; i < 100; ++i) {
      ios.emplace_back(BlockOp::kWrite, i * 4096, 4096, round);
      submit(*client, device, ios.back());
    }
    world.run_for(200 * base::kMicrosecond);
    world.fabric().set_port_up("10.0.1.1", false);
    world.run_for(2 * base::kSecond);
    world.fabric().set_port_up("10.0.1.1", true);
    for (Io& io : ios) ASSERT_EQ(wait(io), Errc::kOk);
    ios.clear();
    for (uint64_t i = 0; i < 100; i += 9) {
      EXPECT_TRUE(reads_as(*client, device, i * 4096, 4096, round));
    }
  }
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

TEST_F(Reconnect, a_device_opened_again_on_a_path_that_dies_in_the_turn_is_opened_once_more) {
  RemoteDevice& idle = open(*client, "void");
  RemoteDevice& other = open(*client);
  kill_server();
  start_server();
  ASSERT_TRUE(until([&] { return idle.status().reopened == 1; }));
  ASSERT_EQ(other.state(), RemoteState::kPathDown) << "the turn has not ended";
  kill_server();
  start_server();
  ASSERT_TRUE(reaches(other, RemoteState::kOpen));
  EXPECT_EQ(idle.state(), RemoteState::kOpen);
  EXPECT_EQ(idle.status().reopened, 2u);
  for (const ExportStatus& exported : server->exports()) {
    if (exported.name == "void") {
      EXPECT_EQ(exported.holders.size(), 1u) << "another could write";
    }
  }
}

TEST_F(Reconnect, a_grown_device_goes_on_with_its_new_size_and_a_shrunken_one_stays_down) {
  const auto restart_with_void_of = [&](uint64_t size_bytes) {
    kill_server();
    exports.named = {{NamedExport::Kind::kNull, "void", size_bytes}};
    start_server();
  };
  RemoteDevice& device = open(*client, "void");
  restart_with_void_of(2 << 20);
  ASSERT_TRUE(until([&] { return device.info().size_bytes == 2 << 20; }));
  EXPECT_TRUE(reads_as(*client, device, 1 << 20, 4096, 0));
  restart_with_void_of(1 << 20);
  ASSERT_TRUE(reaches(device, RemoteState::kReplaced));
  EXPECT_NE(device.explain().find("shrank"), std::string::npos) << device.explain();
}

TEST_F(Reconnect, a_slow_open_on_reconnect_keeps_the_path_alive) {
  RemoteDevice& device = open(*client);
  disk->faults.slow_factor = 100;
  for (int i = 0; i < 3; ++i) {
    kill_server();
    start_server();
    EXPECT_EQ(write(*client, device, 0, 4096, i), Errc::kOk);
  }
}

class GiveUp : public Reconnect {
 protected:
  RemoteDevice& open_for(uint64_t give_up_after_ns, const std::string& name = "disk.img") {
    RemoteDeviceOptions options;
    options.name = name;
    options.give_up_after_ns = give_up_after_ns;
    return *try_open(*client, std::move(options)).value();
  }
  bool gave_up(const RemoteDevice& device) {
    return until([&] { return device.status().gave_up; });
  }
};

TEST_F(GiveUp, what_is_held_for_too_long_fails_and_what_comes_then_fails_at_once) {
  RemoteDevice& device = open_for(10 * base::kSecond);
  RemoteDevice& patient = open(*client, "void");
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  // More than there are slots, permits and buffers: held in every place that can hold.
  std::deque<Io> ios;
  for (uint64_t i = 0; i < 300; ++i) {
    ios.emplace_back(i % 3 == 0 ? BlockOp::kRead : BlockOp::kWrite, i * 4096, 4096, 2);
    submit(*client, device, ios.back());
  }
  Io waits(BlockOp::kRead, 0, 4096);
  world.run_for(100 * base::kMicrosecond);
  kill_server();
  submit(*client, patient, waits);
  ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
  const uint64_t down_ns = world.now_ns();
  world.run_for(9 * base::kSecond);
  EXPECT_GT(std::count_if(ios.begin(), ios.end(), [](const Io& io) { return !io.status; }), 0);
  EXPECT_NE(device.explain().find("and fail in "), std::string::npos) << device.explain();
  ASSERT_TRUE(gave_up(device));
  EXPECT_LT(world.now_ns() - down_ns, 11 * base::kSecond);
  for (Io& io : ios) {
    const Errc status = wait(io);
    EXPECT_TRUE(status == Errc::kOk || status == Errc::kTimedOut) << to_string(status);
    EXPECT_EQ(io.completions, 1);
  }
  EXPECT_EQ(write(*client, device, 0, 4096, 3), Errc::kTimedOut);
  EXPECT_NE(device.explain().find("gave up after 10.0 s"), std::string::npos) << device.explain();
  EXPECT_FALSE(waits.status.has_value()) << "the other device has no limit";
  start_server();
  ASSERT_TRUE(reaches(device, RemoteState::kOpen));
  EXPECT_FALSE(device.status().gave_up);
  EXPECT_EQ(write(*client, device, 0, 4096, 4), Errc::kOk);
  EXPECT_TRUE(reads_as(*client, device, 0, 4096, 4));
  EXPECT_EQ(wait(waits), Errc::kOk);
  EXPECT_EQ(client->session->statistics().in_flight, 0u);
}

class Lost : public GiveUp {
 protected:
  RemoteDevice& open_until_lost(uint64_t lost_after_ns, const std::string& name = "disk.img") {
    RemoteDeviceOptions options;
    options.name = name;
    options.give_up_after_ns = 2 * base::kSecond;
    options.lost_after_ns = lost_after_ns;
    return *try_open(*client, std::move(options)).value();
  }
};

TEST_F(Lost, device_fails_first_and_is_lost_later_and_stays_so) {
  RemoteDevice& device = open_until_lost(10 * base::kSecond);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  kill_server();
  ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
  const uint64_t down_ns = world.now_ns();
  Io held(BlockOp::kWrite, 0, 4096, 2);
  submit(*client, device, held);
  EXPECT_EQ(wait(held), Errc::kTimedOut);
  ASSERT_TRUE(reaches(device, RemoteState::kLost));
  EXPECT_GE(world.now_ns() - down_ns, 10 * base::kSecond - 10 * base::kMillisecond);
  EXPECT_LT(world.now_ns() - down_ns, 11 * base::kSecond);
  EXPECT_EQ(client->session->state(), trs::SessionState::kLost);
  EXPECT_NE(device.explain().find("is lost and fails all I/O until it is unmapped"),
            std::string::npos)
      << device.explain();
  start_server();
  world.run_for(60 * base::kSecond);
  EXPECT_EQ(device.state(), RemoteState::kLost);
  EXPECT_EQ(write(*client, device, 0, 4096, 3), Errc::kDisconnected);
  EXPECT_EQ(client->session->statistics().in_flight, 0u);
}

TEST_F(Lost, session_waits_for_the_device_that_waits_longest) {
  RemoteDevice& device = open_until_lost(10 * base::kSecond);
  RemoteDevice& patient = open_until_lost(30 * base::kSecond, "void");
  kill_server();
  ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
  world.run_for(20 * base::kSecond);
  EXPECT_EQ(device.state(), RemoteState::kPathDown);
  ASSERT_TRUE(reaches(device, RemoteState::kLost));
  EXPECT_EQ(patient.state(), RemoteState::kLost);
}

TEST_F(Lost, requests_in_every_place_end_when_nothing_fails_fast) {
  RemoteDeviceOptions options;
  options.name = "disk.img";
  options.lost_after_ns = 5 * base::kSecond;
  RemoteDevice& device = *try_open(*client, std::move(options)).value();
  std::deque<Io> ios;
  for (uint64_t i = 0; i < 300; ++i) {
    ios.emplace_back(i % 3 == 0 ? BlockOp::kRead : BlockOp::kWrite, i * 4096, 4096, 2);
    submit(*client, device, ios.back());
  }
  world.run_for(100 * base::kMicrosecond);
  kill_server();
  ASSERT_TRUE(reaches(device, RemoteState::kLost));
  for (Io& io : ios) {
    const Errc status = wait(io);
    EXPECT_TRUE(status == Errc::kOk || status == Errc::kDisconnected) << to_string(status);
    EXPECT_EQ(io.completions, 1);
  }
  EXPECT_EQ(client->session->statistics().in_flight, 0u);
}

TEST_F(GiveUp, an_absence_shorter_than_the_limit_costs_no_error_and_the_next_counts_anew) {
  RemoteDevice& device = open_for(10 * base::kSecond);
  for (int i = 0; i < 3; ++i) {
    kill_server();
    Io write(BlockOp::kWrite, 0, 4096, i);
    submit(*client, device, write);
    world.run_for(6 * base::kSecond);
    start_server();
    EXPECT_EQ(wait(write), Errc::kOk);
  }
}

// Opened again, but no request has passed: it has been away all the time.
TEST_F(GiveUp, a_path_that_dies_while_devices_are_opened_again_does_not_end_the_limit) {
  RemoteDevice& device = open_for(10 * base::kSecond, "void");
  RemoteDevice& other = open(*client);
  kill_server();
  ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
  const uint64_t down_ns = world.now_ns();
  for (uint64_t turns = 1; turns <= 3; ++turns) {
    start_server();
    ASSERT_TRUE(until([&] { return device.status().reopened == turns; }));
    ASSERT_EQ(other.state(), RemoteState::kPathDown) << "the turn has not ended";
    EXPECT_NE(device.explain().find("waits for its path"), std::string::npos) << device.explain();
    kill_server();
    world.run_for(base::kSecond);
  }
  Io held(BlockOp::kRead, 0, 4096);
  EXPECT_EQ(run(*client, device, held), Errc::kTimedOut);
  EXPECT_LT(world.now_ns() - down_ns, 11 * base::kSecond);
  EXPECT_TRUE(device.status().gave_up);
  EXPECT_NE(device.explain().find("waits for its path"), std::string::npos) << device.explain();
  start_server();
  ASSERT_TRUE(until([&] { return device.status().reopened == 4; }));
  kill_server();
  EXPECT_EQ(run(*client, device, Io(BlockOp::kRead, 0, 4096)), Errc::kTimedOut);
  start_server();
  ASSERT_TRUE(until([&] { return !device.status().gave_up; }));
  EXPECT_TRUE(reads_as(*client, device, 0, 4096, 0));
}

TEST_F(GiveUp, a_device_that_the_server_refuses_or_replaced_gives_up_too) {
  RemoteDevice& refused = open_for(5 * base::kSecond);
  RemoteDevice& replaced = open_for(5 * base::kSecond, "ram");
  kill_server();
  exports.root = "/elsewhere";
  start_server();
  Io first(BlockOp::kWrite, 0, 4096, 1);
  Io second(BlockOp::kWrite, 0, 4096, 1);
  submit(*client, refused, first);
  submit(*client, replaced, second);
  EXPECT_EQ(wait(first), Errc::kTimedOut);
  EXPECT_EQ(wait(second), Errc::kTimedOut);
  EXPECT_EQ(refused.state(), RemoteState::kUnavailable);
  EXPECT_EQ(replaced.state(), RemoteState::kReplaced);
}

TEST_F(GiveUp, its_user_may_tell_a_device_that_is_away_to) {
  RemoteDevice& device = open_for(base::kNever);
  const auto tell = [&] { client->home().post([&] { device.give_up(); }); };
  tell();
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  EXPECT_FALSE(device.status().gave_up) << "it is there";
  kill_server();
  Io held(BlockOp::kWrite, 0, 4096, 2);
  submit(*client, device, held);
  ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
  world.run_for(base::kSecond);
  EXPECT_FALSE(held.status.has_value());
  tell();
  EXPECT_EQ(wait(held), Errc::kTimedOut);
  EXPECT_EQ(write(*client, device, 0, 4096, 3), Errc::kTimedOut);
  EXPECT_NE(device.explain().find("did not want to wait"), std::string::npos) << device.explain();
  start_server();
  ASSERT_TRUE(reaches(device, RemoteState::kOpen));
  EXPECT_FALSE(device.status().gave_up);
  EXPECT_EQ(write(*client, device, 0, 4096, 4), Errc::kOk);
  EXPECT_TRUE(reads_as(*client, device, 0, 4096, 4));
}

TEST_F(GiveUp, a_device_that_gave_up_closes_at_once) {
  RemoteDevice& device = open_for(base::kSecond);
  kill_server();
  ASSERT_TRUE(gave_up(device));
  await(*client, device.close());
  EXPECT_EQ(device.state(), RemoteState::kClosed);
}

}  // namespace
}  // namespace braid::bnbd
