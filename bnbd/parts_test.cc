// What a server with several sessions does in parts, when a path is lost between two of them.
#include <gtest/gtest.h>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;

constexpr uint64_t kLongBytes = 1 << 20;

class Parts : public test::Rig {
 protected:
  Parts() {
    exports.transport.max_io_bytes = kLongBytes;
    exports.named = {{NamedExport::Kind::kMemory, "ram", 4 * kLongBytes}};
    start_server();
    add_client("other");
    client_paths = 2;
    client = &add_client("client");
    EXPECT_TRUE(until([&] { return up(0) && up(1); }));
    device = &open(*client, "ram");
  }
  bool up(size_t path) const { return client->session->paths()[path].connected; }
  void connect(size_t path, bool on) {
    client->home().post([this, path, on] {
      RemoteSession& session = *client->session;
      EXPECT_TRUE((on ? session.reconnect_path(path) : session.disconnect_path(path)).ok());
    });
    ASSERT_TRUE(until([&] { return up(path) == on; }));
  }
  /// Two requests, one by each path, of which one is taken away so long after; then it is back.
  void run_two(Io& first, Io& second, size_t lost, uint64_t after_ns) {
    submit(*client, *device, first);
    submit(*client, *device, second);
    world.run_for(after_ns);
    connect(lost, false);
    EXPECT_EQ(wait(first), Errc::kOk);
    EXPECT_EQ(wait(second), Errc::kOk);
    connect(lost, true);
  }
  uint64_t resent() const { return client->session->statistics().resent; }

  ClientNode* client = nullptr;
  RemoteDevice* device = nullptr;
};

// A MiB takes about 0.1 ms here: the path goes before the first part, after the last, and between.
constexpr int kMoments = 40;
constexpr uint64_t kStepNs = 4 * base::kMicrosecond;

TEST_F(Parts, a_read_that_loses_its_path_between_them_is_answered_whole_by_the_other) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(write(*client, *device, static_cast<uint64_t>(i) * kLongBytes, kLongBytes, i + 1),
              Errc::kOk);
  }
  for (int step = 0; step < kMoments; ++step) {
    SCOPED_TRACE(step);
    const int place = step % 3;
    Io first(BlockOp::kRead, static_cast<uint64_t>(place) * kLongBytes, kLongBytes, 0x55);
    Io second(BlockOp::kRead, static_cast<uint64_t>(place + 1) * kLongBytes, kLongBytes, 0x55);
    run_two(first, second, static_cast<size_t>(step % 2), static_cast<uint64_t>(step) * kStepNs);
    EXPECT_TRUE(first.all(place + 1));
    EXPECT_TRUE(second.all(place + 2));
  }
  EXPECT_GT(resent(), kMoments / 4u);
}

TEST_F(Parts, a_write_that_loses_its_path_between_them_is_done_whole) {
  for (int step = 0; step < kMoments; ++step) {
    SCOPED_TRACE(step);
    Io first(BlockOp::kWrite, 0, kLongBytes, 2 * step + 1);
    Io second(BlockOp::kWrite, kLongBytes, kLongBytes, 2 * step + 2);
    run_two(first, second, static_cast<size_t>(step % 2), static_cast<uint64_t>(step) * kStepNs);
    EXPECT_TRUE(reads_as(*client, *device, 0, kLongBytes, 2 * step + 1));
    EXPECT_TRUE(reads_as(*client, *device, kLongBytes, kLongBytes, 2 * step + 2));
  }
  EXPECT_GT(resent(), kMoments / 4u);
}

// Who waits in the middle of its parts holds up neither the operator nor the end.
TEST_F(Parts, a_device_that_is_closed_by_force_between_them_is_closed_when_they_are_done) {
  Io clear(BlockOp::kWriteZeroes, 0, kLongBytes);
  submit(*client, *device, clear);
  world.run_for(10 * base::kMicrosecond);
  ASSERT_FALSE(clear.status.has_value());
  server_node->home().post(
      [this] { EXPECT_TRUE(server->force_close({.export_name = "ram"}).ok()); });
  (void)wait(clear);
  EXPECT_TRUE(until([&] { return server->exports().front().holders.empty(); }));
}

}  // namespace
}  // namespace braid::bnbd
