// A disk at the server that does not answer: whom it may hold up, and what is said of it.
#include <gtest/gtest.h>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;

class HungDisk : public test::Rig {
 protected:
  HungDisk() {
    other = &server_machine.add_disk("/exports/other.img", {.size_bytes = 1 << 20});
    exports.named = {{NamedExport::Kind::kMemory, "ram", 1 << 20}};
    exports.lock_patience_ns = base::kNever;  // so that an opening hangs while the lock is taken
    start_server();
    client = &add_client();
  }
  base::sim::SimDisk* other = nullptr;
  ClientNode* client = nullptr;
};

TEST_F(HungDisk, an_open_that_hangs_holds_up_no_other_device_and_fails_in_clear_words) {
  const auto lock = take_lock(*disk);
  const uint64_t began_ns = world.now_ns();
  const auto hung = begin_open(*client, "disk.img");
  world.run_for(base::kMillisecond);
  RemoteDevice& device = open(*client, "other.img");
  EXPECT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  await(*client, device.close());
  open(add_client("second"), "ram");
  EXPECT_LT(world.now_ns() - began_ns, 2 * base::kSecond);
  EXPECT_FALSE(hung->has_value());
  EXPECT_EQ(try_open(*client, {.name = "disk.img"}).code(), Errc::kExists) << "it is being opened";
  ASSERT_TRUE(until([&] { return hung->has_value(); }));
  ASSERT_EQ((*hung)->code(), Errc::kTimedOut);
  EXPECT_NE((*hung)->error().message().find("'disk.img' is still being opened at the server"),
            std::string::npos)
      << (*hung)->error().message();
  EXPECT_TRUE(client->session->devices().empty());
}

TEST_F(HungDisk, an_open_that_is_slow_is_waited_for) {
  auto lock = take_lock(*disk);
  const auto slow = begin_open(*client, "disk.img");
  world.run_for(5 * base::kSecond);
  EXPECT_FALSE(slow->has_value());
  lock.reset();
  ASSERT_TRUE(until([&] { return slow->has_value(); }));
  ASSERT_TRUE((*slow)->ok()) << (*slow)->error().message();
  EXPECT_TRUE(reads_as(*client, *(*slow)->value(), 0, 4096, 0));
  await(*client, (*slow)->value()->close());
}

TEST_F(HungDisk, what_opened_when_nobody_waited_any_more_is_kept_for_a_while_and_then_closed) {
  auto lock = take_lock(*disk);
  const auto given_up = begin_open(*client, "disk.img");
  ASSERT_TRUE(until([&] { return given_up->has_value(); }));
  lock.reset();
  world.run_for(base::kSecond);
  EXPECT_EQ(server->exports().size(), 2u) << "for who asks again";
  world.run_for(20 * base::kSecond);
  EXPECT_EQ(server->exports().size(), 1u);
  EXPECT_NE(disk->lock(true), nullptr) << "it is closed";
}

TEST_F(HungDisk, a_reopening_that_hangs_leaves_the_other_devices_of_the_session_alone) {
  RemoteDevice& hung = open(*client, "disk.img");
  RemoteDevice& device = open(*client, "other.img");
  kill_server();
  auto lock = take_lock(*disk);
  Io held(BlockOp::kWrite, 0, 4096, 1);
  Io goes_on(BlockOp::kWrite, 0, 4096, 2);
  submit(*client, hung, held);
  submit(*client, device, goes_on);
  start_server();
  const uint64_t began_ns = world.now_ns();
  EXPECT_EQ(wait(goes_on), Errc::kOk);
  EXPECT_LT(world.now_ns() - began_ns, 3 * base::kSecond) << "of it up to two are for the path";
  EXPECT_EQ(hung.state(), RemoteState::kUnavailable);
  world.run_for(20 * base::kSecond);
  EXPECT_FALSE(held.status.has_value());
  EXPECT_EQ(client->session->statistics().reconnects, 1u) << "the path is none the worse";
  EXPECT_NE(hung.explain().find("still being opened at the server"), std::string::npos)
      << hung.explain();
  lock.reset();
  EXPECT_EQ(wait(held), Errc::kOk);
}

TEST_F(HungDisk, when_many_hang_no_more_are_opened_until_one_ends) {
  constexpr int kStuckMax = 64;
  constexpr int kOfOneClient = 4;  // few, as those that wait for an admin permit time out
  std::vector<std::shared_ptr<base::sim::SimDiskLock>> locks;
  ClientNode* asking = nullptr;
  for (int i = 0; i < kStuckMax; ++i) {
    const std::string name = "hung" + std::to_string(i);
    locks.push_back(take_lock(server_machine.add_disk("/exports/" + name, {})));
    if (i % kOfOneClient == 0) asking = &add_client("client-" + name);
    begin_open(*asking, name);
  }
  world.run_for(5 * base::kSecond);
  auto refused = try_open(*client, {.name = "disk.img"});
  EXPECT_EQ(refused.code(), Errc::kBusy);
  EXPECT_NE(refused.error().message().find("64 other exports"), std::string::npos)
      << refused.error().message();
  open(*client, "ram");
  locks.pop_back();
  world.run_for(base::kSecond);
  open(*client, "disk.img");
}

TEST_F(HungDisk, what_hangs_leaves_a_permit_and_a_buffer_to_each_other_device) {
  session_options.copy_pool_bytes = 0;  // the least: two buffers
  ClientNode& node = add_client("few-buffers");
  RemoteDevice& hung = open(node, "disk.img");
  RemoteDevice& ram = open(node, "ram");
  const uint64_t began_ns = world.now_ns();
  disk->faults.stalled_until_ns = began_ns + 20 * base::kSecond;
  std::vector<std::unique_ptr<Io>> held;
  for (int i = 0; i < 64; ++i) {
    const BlockOp op = i % 2 == 0 ? BlockOp::kRead : BlockOp::kFlush;
    held.push_back(std::make_unique<Io>(op, 0, op == BlockOp::kRead ? 4096 : 0));
    submit(node, hung, *held.back());
  }
  ASSERT_TRUE(until([&] { return disk->counters().stalled > 0; }));
  EXPECT_EQ(write(node, ram, 0, 8192, 7), Errc::kOk);
  EXPECT_TRUE(reads_as(node, ram, 0, 8192, 7));
  EXPECT_EQ(flush(node, ram), Errc::kOk);
  EXPECT_LT(world.now_ns() - began_ns, base::kSecond);
  for (const auto& io : held) EXPECT_EQ(wait(*io), Errc::kOk);
}

TEST_F(HungDisk, a_server_whose_disk_does_not_answer_says_so_when_it_is_stopped) {
  RemoteDevice& device = open(*client, "disk.img");
  disk->faults.stalled_until_ns = world.now_ns() + 40 * base::kSecond;
  Io held(BlockOp::kWrite, 0, 4096, 1);
  submit(*client, device, held);
  ASSERT_TRUE(until([&] { return disk->counters().stalled == 1; }));
  const uint64_t began_ns = world.now_ns();
  const base::Status status = await(*server_node, server->stop());
  EXPECT_EQ(status.code(), Errc::kTimedOut);
  EXPECT_NE(status.error().message().find("1 requests of 'disk.img'"), std::string::npos)
      << status.error().message();
  EXPECT_LT(world.now_ns() - began_ns, 15 * base::kSecond);
  EXPECT_EQ(await(*server_node, server->stop()).code(), Errc::kTimedOut) << "still";
  world.run_for(30 * base::kSecond);
  EXPECT_TRUE(await(*server_node, server->stop()).ok());
}

TEST_F(HungDisk, disks_are_not_blamed_when_something_else_keeps_a_server_from_its_end) {
  kill_server();
  start_server(2);
  server_host->hang(*server_node->reactors[1]);
  const base::Status status = await(*server_node, server->stop());
  ASSERT_EQ(status.code(), Errc::kTimedOut);
  const std::string& why = status.error().message();
  EXPECT_NE(why.find("1 reactors have not answered"), std::string::npos) << why;
  EXPECT_EQ(why.find("disks"), std::string::npos) << why;
}

}  // namespace
}  // namespace braid::bnbd
