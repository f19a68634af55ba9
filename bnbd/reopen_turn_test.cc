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

/// By two paths, with a server that tells no numbers, as Linux's: what is asked on a path ends with
/// it.
class Remap : public test::FakeRig {
 protected:
  Remap() {
    exports.transport.features = 0;
    restart_fake();
    client_paths = 2;
    client = &add_client();
  }
  ClientNode* client = nullptr;
};

TEST_F(Remap, whose_path_is_lost_while_another_stays_is_tried_again) {
  RemoteDevice& device = open(*client, "disk");
  script.device.size_bytes /= 2;
  restart_fake();
  ASSERT_TRUE(until([&] { return device.state() == RemoteState::kReplaced; }));
  const auto both_up = [&] {
    for (const trs::PathStatus& path : client->session->paths())
      if (!path.connected) return false;
    return true;
  };
  ASSERT_TRUE(until(both_up));
  script.hang_open = "disk";
  const unsigned opens = script.opens;
  std::optional<base::Status> remapped;
  client->home().post([&] {
    client->home().spawn(
        [](RemoteDevice& its, std::optional<base::Status>& end) -> base::Task<void> {
          end = co_await its.remap();
        }(device, remapped));
  });
  ASSERT_TRUE(until([&] { return script.opens > opens; }));
  world.fabric().set_port_up("10.0.1.1", false);
  ASSERT_TRUE(until([&] { return remapped.has_value(); }));
  ASSERT_EQ(remapped->code(), Errc::kDisconnected);
  ASSERT_EQ(device.state(), RemoteState::kUnavailable) << "the other path is up";
  fake->home().post([this] { fake->release_opens(); });
  EXPECT_TRUE(until([&] { return device.state() == RemoteState::kOpen; })) << device.explain();
}

}  // namespace
}  // namespace braid::bnbd
