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

TEST_F(CloseFlush, is_waited_for_by_a_server_that_stops) {
  start();
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  disk->faults.slow_factor = 10'000;
  EXPECT_TRUE(await(*server_node, server->stop()).ok());
  EXPECT_GT(disk->counters().slow, 0u);
  server_machine.power_loss();
  EXPECT_EQ(disk->counters().sectors_lost, 0u);
}

TEST_F(CloseFlush, that_hangs_is_named_by_a_server_that_cannot_stop) {
  start();
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  disk->faults.stalled_until_ns = world.now_ns() + 25 * base::kSecond;
  const auto stuck = await(*server_node, server->stop());
  ASSERT_EQ(stuck.code(), Errc::kTimedOut);
  EXPECT_NE(stuck.error().message().find("a flush of 'disk.img'"), std::string::npos)
      << stuck.error().message();
  EXPECT_EQ(await(*server_node, server->stop()).code(), Errc::kTimedOut);
  EXPECT_TRUE(await(*server_node, server->stop()).ok());
}

}  // namespace
}  // namespace braid::bnbd
