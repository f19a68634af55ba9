// The server's disk fails a flush. Like a kernel it tells so once: whoever asks again is told that
// all is well, though what could not be written is gone.
#include <gtest/gtest.h>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;
using test::kServerIp;
using wire::AccessMode;

class FlushFailure : public test::ServedRig {
 protected:
  FlushFailure() { client = &add_client(); }
  void disk_fails(bool fails) { disk->faults.errors_per_million = fails ? 1'000'000 : 0; }
  ClientNode* client = nullptr;
};

TEST_F(FlushFailure, is_told_once_to_whom_it_met) {
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  disk_fails(true);
  EXPECT_EQ(flush(*client, device), Errc::kIo);
  disk_fails(false);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

TEST_F(FlushFailure, is_told_to_each_session_that_shares_the_file) {
  ClientNode& other_client = add_client("other");
  RemoteDevice& device = open(*client);
  RemoteDevice& other = open(other_client, "disk.img", AccessMode::kMigration);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  ASSERT_EQ(write(other_client, other, 4096, 4096, 2), Errc::kOk);
  disk_fails(true);
  EXPECT_EQ(flush(*client, device), Errc::kIo);
  disk_fails(false);
  Io commit(BlockOp::kWrite, 8192, 4096, 3);
  commit.request.preflush = true;
  EXPECT_EQ(run(other_client, other, commit), Errc::kIo) << "its write may be what was lost";
  EXPECT_EQ(flush(other_client, other), Errc::kOk);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

TEST_F(FlushFailure, is_told_when_its_answer_was_lost_with_the_path) {
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  const uint64_t errors = disk->counters().errors;
  disk_fails(true);
  world.fabric().set_black_hole(kServerIp, "10.0.1.1", true);
  Io flush(BlockOp::kFlush);
  submit(*client, device, flush);
  ASSERT_TRUE(until([&] { return disk->counters().errors > errors; }));
  disk_fails(false);
  ASSERT_TRUE(until([&] { return device.state() == RemoteState::kPathDown; }));
  world.fabric().set_black_hole(kServerIp, "10.0.1.1", false);
  EXPECT_EQ(wait(flush), Errc::kIo) << "the disk fails it no more when it is sent again";
  EXPECT_EQ(FlushFailure::flush(*client, device), Errc::kOk);
}

TEST_F(FlushFailure, is_told_to_each_flush_that_was_under_way) {
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  std::vector<std::unique_ptr<Io>> flushes;
  for (int i = 0; i < 4; ++i) flushes.push_back(std::make_unique<Io>(BlockOp::kFlush));
  Io durable(BlockOp::kWrite, 8192, 4096, 3);
  durable.request.force_unit_access = true;
  disk_fails(true);
  const uint64_t errors = disk->counters().errors;
  for (const auto& flush : flushes) submit(*client, device, *flush);
  submit(*client, device, durable);
  ASSERT_TRUE(until([&] { return disk->counters().errors > errors; }));
  disk_fails(false);  // the others succeed at the disk
  for (const auto& flush : flushes) EXPECT_EQ(wait(*flush), Errc::kIo);
  EXPECT_EQ(wait(durable), Errc::kIo) << "the kernel may have told its error to a flush";
  EXPECT_EQ(disk->counters().errors, errors + 1);
  EXPECT_EQ(FlushFailure::flush(*client, device), Errc::kOk);
}

TEST_F(FlushFailure, of_a_durable_write_is_told_by_the_next_flush_too) {
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  Io durable(BlockOp::kWrite, 8192, 4096, 3);
  durable.request.force_unit_access = true;
  disk_fails(true);
  EXPECT_EQ(run(*client, device, durable), Errc::kIo);
  disk_fails(false);
  EXPECT_EQ(flush(*client, device), Errc::kIo) << "it said nothing of the write before it";
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

/// The client has opened the device after a failure, so it counts from there. Failures of the next
/// server process must not bring it to where it was.
TEST_F(FlushFailure, after_a_restart_of_the_server_is_not_taken_for_one_before) {
  ClientNode& other_client = add_client("other");
  RemoteDevice& other = open(other_client, "disk.img", AccessMode::kMigration);
  ASSERT_EQ(write(other_client, other, 4096, 4096, 2), Errc::kOk);
  disk_fails(true);
  EXPECT_EQ(flush(other_client, other), Errc::kIo);
  disk_fails(false);
  RemoteDevice& device = open(*client, "disk.img", AccessMode::kMigration);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  world.fabric().set_port_up("10.0.1.1", false);
  kill_server();
  start_server();
  ASSERT_TRUE(until([&] { return other.status().reopened == 1; }));
  disk_fails(true);
  EXPECT_EQ(flush(other_client, other), Errc::kIo);
  disk_fails(false);
  world.fabric().set_port_up("10.0.1.1", true);
  EXPECT_EQ(flush(*client, device), Errc::kIo) << "its write may be what was lost";
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

TEST_F(FlushFailure, of_one_disk_is_none_of_another) {
  RemoteDevice& device = open(*client);
  RemoteDevice& ram = open(*client, "ram");
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  ASSERT_EQ(write(*client, ram, 0, 4096, 1), Errc::kOk);
  disk_fails(true);
  EXPECT_EQ(flush(*client, device), Errc::kIo);
  EXPECT_EQ(flush(*client, ram), Errc::kOk);
}

}  // namespace
}  // namespace braid::bnbd
