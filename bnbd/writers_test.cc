// One writer after another: what a client still holds must not land over what the next one wrote.
#include <gtest/gtest.h>

#include <deque>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;
using wire::AccessMode;

class Writers : public test::ServedRig {
 protected:
  Writers() {
    first = &add_client("first");
    second = &add_client("second");
  }
  std::string ip_of(const ClientNode& client) const {
    return &client == first ? "10.0.1.1" : "10.0.1.2";
  }
  void cut(const ClientNode& client) { world.fabric().set_port_up(ip_of(client), false); }
  void mend(const ClientNode& client) { world.fabric().set_port_up(ip_of(client), true); }
  bool reaches(const RemoteDevice& device, RemoteState state) {
    return until([&] { return device.state() == state; });
  }
  /// Cuts the first's path and waits until both sides have noticed.
  void lose(const RemoteDevice& device) {
    cut(*first);
    ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
    ASSERT_TRUE(until([&] { return server->sessions().size() == 1; }));
  }
  void restart_server() {
    kill_server();
    start_server();
  }
  /// The second client's whole visit, which leaves 2 in the first block.
  void visit(const std::string& name = "disk.img") {
    RemoteDevice& device = open(*second, name);
    ASSERT_EQ(write(*second, device, 0, 4096, 2), Errc::kOk);
    await(*second, device.close());
  }
  void expect_second_wrote_last(const std::string& name = "disk.img") {
    RemoteDevice& device = open(*second, name, AccessMode::kReadOnly);
    EXPECT_TRUE(reads_as(*second, device, 0, 4096, 2));
    await(*second, device.close());
  }

  ClientNode* first = nullptr;
  ClientNode* second = nullptr;
};

TEST_F(Writers, what_is_held_over_another_writers_visit_fails_and_never_lands) {
  RemoteDevice& device = open(*first);
  ASSERT_EQ(write(*first, device, 0, 4096, 1), Errc::kOk);
  lose(device);
  Io held(BlockOp::kWrite, 0, 4096, 1);
  Io read(BlockOp::kRead, 0, 4096);
  Io flush(BlockOp::kFlush);
  for (Io* io : {&held, &read, &flush}) submit(*first, device, *io);
  visit();
  mend(*first);
  for (Io* io : {&held, &read, &flush}) EXPECT_EQ(wait(*io), Errc::kIo);
  EXPECT_EQ(device.state(), RemoteState::kSuperseded);
  EXPECT_NE(device.explain().find("second"), std::string::npos) << device.explain();
  EXPECT_NE(device.explain().find("unmapped"), std::string::npos) << device.explain();
  EXPECT_EQ(write(*first, device, 0, 4096, 1), Errc::kIo) << "its user knows nothing of the visit";
  expect_second_wrote_last();
  await(*first, device.close());
  RemoteDevice& anew = open(*first);
  EXPECT_TRUE(reads_as(*first, anew, 0, 4096, 2));
  EXPECT_EQ(write(*first, anew, 0, 4096, 3), Errc::kOk);
  EXPECT_EQ(first->session->statistics().in_flight, 0u);
}

TEST_F(Writers, what_was_on_the_wire_when_the_path_was_lost_does_not_land_after_a_visit) {
  RemoteDevice& device = open(*first);
  std::deque<Io> ios;
  for (uint64_t i = 0; i < 300; ++i) {
    ios.emplace_back(BlockOp::kWrite, i % 4 * 4096, 4096, 1);
    if (i % 10 == 0) ios.back().request.preflush = true;
    submit(*first, device, ios.back());
  }
  world.run_for(100 * base::kMicrosecond);
  lose(device);
  visit();
  mend(*first);
  for (Io& io : ios) {
    const Errc status = wait(io);
    EXPECT_TRUE(status == Errc::kOk || status == Errc::kIo) << to_string(status);
    EXPECT_EQ(io.completions, 1);
  }
  EXPECT_EQ(ios.back().status, Errc::kIo);
  expect_second_wrote_last();
}

TEST_F(Writers, who_comes_back_while_the_other_is_still_there_fails_too_and_does_not_disturb_it) {
  RemoteDevice& device = open(*first);
  lose(device);
  Io held(BlockOp::kWrite, 0, 4096, 1);
  submit(*first, device, held);
  RemoteDevice& others = open(*second);
  ASSERT_EQ(write(*second, others, 0, 4096, 2), Errc::kOk);
  mend(*first);
  EXPECT_EQ(wait(held), Errc::kIo);
  EXPECT_EQ(write(*second, others, 4096, 4096, 2), Errc::kOk);
  await(*second, others.close());
  EXPECT_EQ(device.state(), RemoteState::kSuperseded) << "for good";
  open(*second);
}

TEST_F(Writers, a_restarted_server_knows_the_last_writer_whoever_comes_back_first) {
  for (const bool first_is_first : {true, false}) {
    RemoteDevice& device = open(*first);
    lose(device);
    Io held(BlockOp::kWrite, 0, 4096, 1);
    submit(*first, device, held);
    RemoteDevice& others = open(*second);
    ASSERT_EQ(write(*second, others, 0, 4096, 2), Errc::kOk);
    cut(*second);
    ASSERT_TRUE(reaches(others, RemoteState::kPathDown));
    restart_server();
    mend(first_is_first ? *first : *second);
    ASSERT_TRUE(first_is_first ? reaches(device, RemoteState::kSuperseded)
                               : reaches(others, RemoteState::kOpen));
    mend(first_is_first ? *second : *first);
    EXPECT_EQ(wait(held), Errc::kIo);
    ASSERT_TRUE(reaches(others, RemoteState::kOpen));
    EXPECT_TRUE(reads_as(*second, others, 0, 4096, 2));
    await(*second, others.close());
    await(*first, device.close());
  }
}

TEST_F(Writers, a_restarted_machine_knows_the_last_writer) {
  RemoteDevice& device = open(*first);
  lose(device);
  Io held(BlockOp::kWrite, 0, 4096, 1);
  submit(*first, device, held);
  RemoteDevice& others = open(*second);
  Io durable(BlockOp::kWrite, 0, 4096, 2);
  ASSERT_EQ(run(*second, others, durable.fua()), Errc::kOk);
  restart_machine();
  mend(*first);
  EXPECT_EQ(wait(held), Errc::kIo);
  EXPECT_TRUE(reads_as(*second, others, 0, 4096, 2));
}

/// All that tells a file's age is what is kept with it: the number of its writer.
TEST_F(Writers, a_file_rolled_back_to_before_its_writer_fails_that_one) {
  RemoteDevice& device = open(*first);
  await(*first, device.close());
  const uint64_t earlier = *disk->note();
  RemoteDevice& others = open(*second);
  kill_server();
  ASSERT_TRUE(disk->set_note(earlier).ok());
  start_server();
  ASSERT_TRUE(reaches(others, RemoteState::kSuperseded));
  EXPECT_EQ(write(*second, others, 0, 4096, 2), Errc::kIo);
}

TEST_F(Writers, a_memory_device_knows_its_last_writer) {
  RemoteDevice& device = open(*first, "ram");
  lose(device);
  Io held(BlockOp::kWrite, 0, 4096, 1);
  submit(*first, device, held);
  visit("ram");
  mend(*first);
  EXPECT_EQ(wait(held), Errc::kIo);
  expect_second_wrote_last("ram");
}

TEST_F(Writers, a_disk_without_a_place_for_notes_knows_its_last_writer_while_the_server_lives) {
  exports.block_devices = true;
  server_machine.add_disk("/exports/raw", {.size_bytes = 1 << 20, .block_device = true});
  restart_server();
  ASSERT_TRUE(until([&] {
    return first->session->statistics().reconnects == 1 &&
           second->session->statistics().reconnects == 1;
  }));
  RemoteDevice& device = open(*first, "raw");
  lose(device);
  restart_server();
  mend(*first);
  EXPECT_EQ(write(*first, device, 0, 4096, 1), Errc::kOk) << "nobody else was there";
  lose(device);
  Io late(BlockOp::kWrite, 0, 4096, 1);
  submit(*first, device, late);
  visit("raw");
  mend(*first);
  EXPECT_EQ(wait(late), Errc::kIo);
  expect_second_wrote_last("raw");
}

TEST_F(Writers, readers_and_refused_writers_change_nothing) {
  RemoteDevice& device = open(*first);
  EXPECT_EQ(try_open(*second, {.name = "disk.img"}).code(), Errc::kBusy);
  lose(device);
  Io held(BlockOp::kWrite, 0, 4096, 1);
  submit(*first, device, held);
  RemoteDevice& reader = open(*second, "disk.img", AccessMode::kReadOnly);
  mend(*first);
  EXPECT_EQ(wait(held), Errc::kOk);
  EXPECT_TRUE(reads_as(*second, reader, 0, 4096, 1));
}

TEST_F(Writers, a_change_of_writers_that_cannot_be_recorded_does_not_happen) {
  RemoteDevice& device = open(*first);
  lose(device);
  Io held(BlockOp::kWrite, 0, 4096, 1);
  submit(*first, device, held);
  disk->faults = {.errors_per_million = 1'000'000, .error = Errc::kStale};
  const auto refused = try_open(*second, {.name = "disk.img"});
  ASSERT_EQ(refused.code(), Errc::kIo);
  EXPECT_NE(refused.error().message().find("cannot be recorded"), std::string::npos)
      << refused.error().message();
  disk->faults = {};
  mend(*first);
  EXPECT_EQ(wait(held), Errc::kOk);
}

/// The fsync of the note was a flush that failed: what was in the cache is gone, and its writer,
/// who goes on, is told. Also if the file is open all the time.
TEST_F(Writers, a_change_of_writers_that_cannot_be_made_durable_fails_the_next_flush) {
  ClientNode& reader = add_client("reader");
  for (const bool is_read : {false, true}) {
    RemoteDevice& device = open(*first);
    if (is_read) open(reader, "disk.img", AccessMode::kReadOnly);
    ASSERT_EQ(write(*first, device, 0, 4096, 1), Errc::kOk);
    cut(*first);
    ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
    ASSERT_TRUE(until([&] { return server->sessions().size() == 2; }));
    Io held(BlockOp::kWrite, 8192, 4096, 1);
    submit(*first, device, held);
    disk->faults = {.errors_per_million = 1'000'000, .sets_undurably = true};
    EXPECT_EQ(try_open(*second, {.name = "disk.img"}).code(), Errc::kIo);
    disk->faults = {};
    mend(*first);
    EXPECT_EQ(wait(held), Errc::kOk);
    EXPECT_EQ(run(*first, device, Io(BlockOp::kFlush)), Errc::kIo);
    EXPECT_EQ(run(*first, device, Io(BlockOp::kFlush)), Errc::kOk);
    await(*first, device.close());
  }
}

TEST_F(Writers, who_joins_for_a_migration_shares_the_tenure) {
  RemoteDevice& source = open(*first, "disk.img", AccessMode::kMigration);
  RemoteDevice& target = open(*second, "disk.img", AccessMode::kMigration);
  ASSERT_EQ(write(*second, target, 4096, 4096, 2), Errc::kOk);
  lose(source);
  Io held(BlockOp::kWrite, 0, 4096, 1);
  submit(*first, source, held);
  mend(*first);
  EXPECT_EQ(wait(held), Errc::kOk);
  EXPECT_EQ(target.state(), RemoteState::kOpen);
}

TEST_F(Writers, a_superseded_device_leaves_the_others_of_its_session_alone) {
  RemoteDevice& device = open(*first);
  RemoteDevice& other = open(*first, "ram");
  lose(device);
  Io goes_on(BlockOp::kWrite, 0, 4096, 1);
  submit(*first, other, goes_on);
  visit();
  mend(*first);
  ASSERT_TRUE(reaches(device, RemoteState::kSuperseded));
  EXPECT_EQ(wait(goes_on), Errc::kOk);
  cut(*first);
  ASSERT_TRUE(reaches(other, RemoteState::kPathDown));
  EXPECT_EQ(write(*first, device, 0, 4096, 1), Errc::kIo) << "the path does not matter any more";
  EXPECT_EQ(device.state(), RemoteState::kSuperseded);
  mend(*first);
  EXPECT_TRUE(reaches(other, RemoteState::kOpen));
}

}  // namespace
}  // namespace braid::bnbd
