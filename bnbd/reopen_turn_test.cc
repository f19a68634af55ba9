// A path is back and opens all devices again, one slower than the other: what ends, fails or is
// closed in that turn.
#include <gtest/gtest.h>

#include "bnbd/test_fake_server.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;

/// One admin permit: devices are asked for one after the other.
class ReopenTurn : public test::Rig {
 protected:
  ReopenTurn() {
    other = &server_machine.add_disk("/exports/other.img", {.size_bytes = 1 << 20});
    exports.lock_patience_ns = base::kNever;  // so that an opening hangs while the lock is taken
    start_server();
    client = &add_client();
  }
  std::shared_ptr<base::sim::SimDiskLock> take_lock(base::sim::SimDisk& of) {
    std::shared_ptr<base::sim::SimDiskLock> lock;
    EXPECT_TRUE(until([&] { return (lock = of.lock(true)) != nullptr; }));
    return lock;
  }
  bool held(const std::string& name) const {
    for (const ExportStatus& each : server->exports()) {
      if (each.name == name) return !each.holders.empty();
    }
    return false;
  }
  base::sim::SimDisk* other = nullptr;
  ClientNode* client = nullptr;
};

TEST_F(ReopenTurn, who_was_refused_long_before_its_end_is_tried_again) {
  RemoteDevice& hung = open(*client, "disk.img");
  RemoteDevice& slow = open(*client, "other.img");
  kill_server();
  auto lock = take_lock(*disk);
  auto slows_lock = take_lock(*other);
  start_server();
  ASSERT_TRUE(until([&] { return server->statistics().opens_refused > 0; }));
  world.run_for(200 * base::kMillisecond);
  slows_lock.reset();
  ASSERT_TRUE(until([&] { return slow.state() == RemoteState::kOpen; }));
  EXPECT_EQ(hung.state(), RemoteState::kUnavailable);
  EXPECT_EQ(server->statistics().opens_refused, 1u) << "no more than one was, in the turn";
  lock.reset();
  EXPECT_TRUE(until([&] { return hung.state() == RemoteState::kOpen; }));
}

TEST_F(ReopenTurn, who_is_closed_before_its_end_is_closed_at_the_server) {
  RemoteDevice& device = open(*client, "other.img");
  open(*client, "disk.img");
  kill_server();
  const auto lock = take_lock(*disk);
  start_server();
  ASSERT_TRUE(until([&] { return held("other.img"); }));
  world.run_for(10 * base::kMillisecond);
  ASSERT_EQ(device.state(), RemoteState::kPathDown) << "the turn is not over";
  await(*client, device.close());
  EXPECT_TRUE(until([&] { return !held("other.img"); }));
  EXPECT_TRUE(try_open(add_client("second"), {.name = "other.img"}).ok());
}

/// Nothing of a close that began on one path goes out by the next: there the id may be another's.
class CloseOverALoss : public test::FakeRig {
 protected:
  CloseOverALoss() { client = &add_client(); }
  ClientNode* client = nullptr;
};

TEST_F(CloseOverALoss, asks_the_next_path_for_nothing) {
  RemoteDevice& device = open(*client, "a");
  RemoteDevice& other = open(*client, "b");
  script.hold_io = true;
  test::Io held(BlockOp::kWrite, 0, 4096, 1);
  submit(*client, device, held);
  ASSERT_TRUE(until([&] { return script.seen.size() == 1; }));
  bool closed = false;
  client->home().post([&] {
    client->home().spawn([](RemoteDevice& its, bool& done) -> base::Task<void> {
      co_await its.close();
      done = true;
    }(device, closed));
  });
  world.run_for(base::kMillisecond);
  EXPECT_FALSE(closed) << "its write is at the server";
  script.hold_io = false;
  restart_fake();
  ASSERT_TRUE(until([&] { return closed && other.state() == RemoteState::kOpen; }));
  world.run_for(base::kSecond);
  EXPECT_TRUE(script.closes.empty());
}

}  // namespace
}  // namespace braid::bnbd
