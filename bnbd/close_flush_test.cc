// Files of which the kernel keeps what is written, and which are closed while nobody has them open:
// what it cannot write then is told to who comes back.
#include <gtest/gtest.h>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using wire::AccessMode;

constexpr const char* kClientIp = "10.0.1.1";

class CloseFlush : public test::Rig {
 protected:
  void start(bool direct = false) {
    exports.direct = direct;
    start_server();
    client = &add_client();
  }
  void disk_fails(bool fails) { disk->faults.errors_per_million = fails ? 1'000'000 : 0; }
  bool closed() const { return server->exports().empty(); }
  /// Cuts the client's path until its session has ended at the server, which then closes the file.
  void send_away(const RemoteDevice& device) {
    world.fabric().set_port_up(kClientIp, false);
    ASSERT_TRUE(until([&] { return device.state() == RemoteState::kPathDown; }));
    ASSERT_TRUE(until([&] { return server->sessions().empty(); }));
    world.run_for(base::kMillisecond);
  }
  void bring_back(const RemoteDevice& device) {
    world.fabric().set_port_up(kClientIp, true);
    ASSERT_TRUE(until([&] { return device.state() == RemoteState::kOpen; }));
  }

  ClientNode* client = nullptr;
};

TEST_F(CloseFlush, that_fails_is_told_to_who_comes_back) {
  start();
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  disk_fails(true);
  send_away(device);
  ASSERT_TRUE(until([&] { return closed(); }));
  EXPECT_GT(disk->counters().errors, 0u);
  disk_fails(false);
  bring_back(device);
  EXPECT_EQ(flush(*client, device), Errc::kIo);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

TEST_F(CloseFlush, that_ends_well_is_no_news) {
  start();
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  send_away(device);
  ASSERT_TRUE(until([&] { return closed(); }));
  bring_back(device);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

TEST_F(CloseFlush, does_not_keep_waiting_who_comes_back_and_its_failure_is_told) {
  start();
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  disk->faults.stalled_until_ns = world.now_ns() + 20 * base::kSecond;
  send_away(device);
  EXPECT_FALSE(closed());
  bring_back(device);
  EXPECT_LT(world.now_ns(), disk->faults.stalled_until_ns);
  disk_fails(true);
  ASSERT_TRUE(until([&] { return disk->counters().errors > 0; }));
  disk_fails(false);
  EXPECT_EQ(flush(*client, device), Errc::kIo);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
  await(*client, device.close());
  EXPECT_TRUE(until([&] { return closed(); }));
}

TEST_F(CloseFlush, comes_only_behind_changes_and_once) {
  start();
  RemoteDevice& reader = open(*client);
  ASSERT_TRUE(reads_as(*client, reader, 0, 4096, 0));
  uint64_t before = disk->counters().operations;
  await(*client, reader.close());
  ASSERT_TRUE(until([&] { return closed(); }));
  EXPECT_EQ(disk->counters().operations, before);

  RemoteDevice& writer = open(*client);
  ASSERT_EQ(run(*client, writer, test::Io(BlockOp::kWriteZeroes, 0, 4096)), Errc::kOk);
  before = disk->counters().operations;
  await(*client, writer.close());
  ASSERT_TRUE(until([&] { return closed(); }));
  EXPECT_EQ(disk->counters().operations, before + 1);
}

TEST_F(CloseFlush, is_not_needed_where_no_cache_is) {
  start(/*direct=*/true);
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  const uint64_t before = disk->counters().operations;
  await(*client, device.close());
  ASSERT_TRUE(until([&] { return closed(); }));
  EXPECT_EQ(disk->counters().operations, before);
}

TEST_F(CloseFlush, is_of_files_that_are_said_to_be_in_the_kernels_cache) {
  log->awaited = "through the kernel's cache";
  start();
  open(*client);
  EXPECT_TRUE(server->exports().at(0).cached);
  EXPECT_EQ(log->found, 1u);
}

TEST_F(CloseFlush, is_not_of_files_that_go_past_it) {
  log->awaited = "through the kernel's cache";
  start(/*direct=*/true);
  open(*client);
  EXPECT_FALSE(server->exports().at(0).cached);
  EXPECT_EQ(log->found, 0u);
}

/// Counts what the server says of them when it stops, after the flush of one file has failed.
class CloseFlushAtTheStop : public CloseFlush {
 protected:
  uint32_t told_of_failures() {
    log->awaited = "disk.img: 1 flushes have failed";
    start();
    RemoteDevice& device = open(*client);
    EXPECT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
    disk_fails(true);
    send_away(device);
    EXPECT_TRUE(until([&] { return closed(); }));
    disk_fails(false);
    EXPECT_TRUE(await(*server_node, server->stop()).ok());
    return log->found;
  }
};

TEST_F(CloseFlushAtTheStop, what_the_file_is_marked_with_needs_no_word) {
  EXPECT_EQ(told_of_failures(), 0u);
}

/// The next process does not know: whoever was away has to be told by people.
TEST_F(CloseFlushAtTheStop, what_failed_is_named_where_no_mark_can_be_kept) {
  disk->faults.keeps_no_mark = true;
  EXPECT_EQ(told_of_failures(), 1u);
}

TEST_F(CloseFlush, that_went_well_needs_no_word_of_a_server_that_stops) {
  log->awaited = "flushes have failed";
  start();
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  send_away(device);
  ASSERT_TRUE(until([&] { return closed(); }));
  EXPECT_TRUE(await(*server_node, server->stop()).ok());
  EXPECT_EQ(log->found, 0u);
}

/// By what a client has its writes made durable while the file is flushed to be closed.
class CloseFlushBeside : public CloseFlush, public testing::WithParamInterface<BlockOp> {};
INSTANTIATE_TEST_SUITE_P(Ops, CloseFlushBeside,
                         testing::Values(BlockOp::kFlush, BlockOp::kWrite, BlockOp::kWriteZeroes),
                         [](const auto& op) {
                           return op.param == BlockOp::kWriteZeroes
                                      ? std::string("zeroes")
                                      : std::string(to_string(op.param));
                         });

TEST_P(CloseFlushBeside, what_ends_well_is_kept_back_until_the_other_end_is_known) {
  start();
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  disk->faults.stalled_until_ns = world.now_ns() + 20 * base::kSecond;
  const uint64_t ends_ns = disk->faults.stalled_until_ns;
  send_away(device);
  disk->faults.stalled_until_ns = 0;  // what comes now overtakes
  bring_back(device);
  const bool changes = GetParam() != BlockOp::kFlush;
  test::Io durable(GetParam(), changes ? 8192 : 0, changes ? 4096 : 0, 2);
  if (changes) durable.fua();
  submit(*client, device, durable);
  world.run_for(base::kSecond);
  EXPECT_FALSE(durable.status.has_value());
  disk_fails(true);
  EXPECT_EQ(wait(durable), Errc::kIo);
  EXPECT_GE(world.now_ns(), ends_ns);
  disk_fails(false);
  // A failed write alone tells nothing of what was written before.
  if (changes) {
    EXPECT_EQ(flush(*client, device), Errc::kIo);
  }
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

/// The kernel tells of a page that it could not write once: the next process is to hear of it.
TEST_F(CloseFlush, is_not_for_a_server_that_stops) {
  start();
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  const uint64_t before = disk->counters().operations;
  EXPECT_TRUE(await(*server_node, server->stop()).ok());
  EXPECT_EQ(disk->counters().operations, before);
}

TEST_F(CloseFlush, that_is_under_way_is_waited_for_by_a_server_that_stops) {
  start();
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  disk->faults.stalled_until_ns = world.now_ns() + 5 * base::kSecond;
  send_away(device);
  EXPECT_TRUE(await(*server_node, server->stop()).ok());
  EXPECT_GE(world.now_ns(), disk->faults.stalled_until_ns);
}

TEST_F(CloseFlush, of_a_process_that_dies_while_it_stops_ends_with_it) {
  start();
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  disk->faults.stalled_until_ns = world.now_ns() + 20 * base::kSecond;
  send_away(device);
  base::Reactor& home = server_node->home();
  home.post([&] {
    home.spawn([](ExportServer& its) -> base::Task<void> { (void)co_await its.stop(); }(*server));
  });
  world.run_for(base::kSecond);
  kill_server();
  world.run_for(30 * base::kSecond);
  start_server();
  bring_back(device);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

TEST_F(CloseFlush, that_hangs_is_named_by_a_server_that_cannot_stop) {
  start();
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  disk->faults.stalled_until_ns = world.now_ns() + 25 * base::kSecond;
  send_away(device);
  const auto stuck = await(*server_node, server->stop());
  ASSERT_EQ(stuck.code(), Errc::kTimedOut);
  EXPECT_NE(stuck.error().message().find("a flush of 'disk.img'"), std::string::npos)
      << stuck.error().message();
  EXPECT_EQ(await(*server_node, server->stop()).code(), Errc::kTimedOut);
  EXPECT_TRUE(await(*server_node, server->stop()).ok());
}

}  // namespace
}  // namespace braid::bnbd
