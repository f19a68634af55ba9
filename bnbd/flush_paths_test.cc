// A flush fails at the server's disk, and its answer is late or lost with a path: another flush,
// whose answer comes by another path and first, must not vouch for what is gone.
#include <gtest/gtest.h>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;
using test::kServerIp;

constexpr size_t kPaths = 3;

class FlushPaths : public test::ServedRig {
 protected:
  FlushPaths() {
    client_paths = kPaths;
    // A path comes back before another is missed.
    session_options.transport.reconnect.delay_min_ns = base::kMillisecond;
    session_options.transport.reconnect.delay_max_ns = base::kMillisecond;
    client = &add_client();
    EXPECT_TRUE(until_up(0) && until_up(1) && until_up(2));
    device = &open(*client);
    EXPECT_EQ(write(*client, *device, 0, 4096, 1), Errc::kOk);
  }
  static std::string ip(size_t path) { return "10." + std::to_string(path) + ".1.1"; }
  bool up(size_t path) const { return client->session->paths()[path].connected; }
  bool until_up(size_t path) {
    return until([&] { return up(path); });
  }
  /// Answers and heartbeats; requests arrive.
  void lose_answers(size_t path, bool on) {
    world.fabric().set_black_hole(kServerIp, ip(path), on);
  }
  void connect(size_t path, bool on) {
    client->home().post([this, path, on] {
      RemoteSession& session = *client->session;
      EXPECT_TRUE((on ? session.reconnect_path(path) : session.disconnect_path(path)).ok());
    });
    ASSERT_TRUE(until([&] { return up(path) == on; }));
  }
  void disk_fails(bool fails) { disk->faults.errors_per_million = fails ? 1'000'000 : 0; }
  /// Until it has failed at the disk; the disk is well then.
  void submit_failing(Io& io) {
    const uint64_t errors = disk->counters().errors;
    disk_fails(true);
    submit(*client, *device, io);
    ASSERT_TRUE(until([&] { return disk->counters().errors > errors; }));
    disk_fails(false);
  }
  void submit_until_done_at_disk(Io& io) {
    const uint64_t done = disk->counters().operations;
    submit(*client, *device, io);
    ASSERT_TRUE(until([&] { return disk->counters().operations > done; }));
  }
  void only_by_path_0() {
    connect(1, false);
    connect(2, false);
    world.run_for(20 * base::kMillisecond);  // the server has let go of them
  }
  /// Until what was in flight there is on its way by the others.
  void move_from_path_0(uint64_t requests) {
    const uint64_t resent = client->session->statistics().resent;
    connect(0, false);
    ASSERT_TRUE(until([&] { return client->session->statistics().resent == resent + requests; }));
  }
  void also_by_the_others() {
    connect(1, true);
    connect(2, true);
  }
  Errc flush_now() { return flush(*client, *device); }

  ClientNode* client = nullptr;
  RemoteDevice* device = nullptr;
  Io first{BlockOp::kFlush};
  Io second{BlockOp::kFlush};
};

TEST_F(FlushPaths, a_failure_is_told_to_a_flush_by_another_path_whose_answer_is_polled_first) {
  only_by_path_0();
  lose_answers(0, true);
  submit_failing(first);
  also_by_the_others();
  EXPECT_EQ(flush_now(), Errc::kIo);
  ASSERT_FALSE(first.status.has_value());
  connect(0, false);
  EXPECT_EQ(wait(first), Errc::kIo);
  EXPECT_EQ(device->state(), RemoteState::kOpen);
}

/// Both answers are lost with one path. Asked for again, each by a path of its own, the good one
/// comes first.
TEST_F(FlushPaths, answers_that_are_asked_for_again_in_another_order_vouch_for_no_more) {
  for (const size_t slow : {1u, 2u}) {
    Io failed(BlockOp::kFlush), good(BlockOp::kFlush);
    ASSERT_EQ(write(*client, *device, 0, 4096, 1), Errc::kOk);
    only_by_path_0();
    lose_answers(0, true);
    submit_failing(failed);
    submit_until_done_at_disk(good);
    also_by_the_others();
    move_from_path_0(2);
    lose_answers(slow, true);
    EXPECT_EQ(wait(good), Errc::kIo) << "path " << slow << " is slow";
    EXPECT_EQ(wait(failed), Errc::kIo);
    EXPECT_EQ(device->state(), RemoteState::kOpen);
    lose_answers(0, false);
    lose_answers(slow, false);
    connect(0, true);
    ASSERT_TRUE(until_up(slow));
  }
}

/// The same, and the second is still at the disk when its path is lost.
TEST_F(FlushPaths, a_flush_that_ends_after_its_path_was_lost_vouches_for_no_more) {
  for (const size_t slow : {1u, 2u}) {
    Io failed(BlockOp::kFlush), good(BlockOp::kFlush);
    ASSERT_EQ(write(*client, *device, 0, 4096, 1), Errc::kOk);
    only_by_path_0();
    lose_answers(0, true);
    submit_failing(failed);
    const uint64_t stalled = disk->counters().stalled;
    disk->faults.stalled_until_ns = world.now_ns() + 60 * base::kMillisecond;
    submit(*client, *device, good);
    ASSERT_TRUE(until([&] { return disk->counters().stalled > stalled; }));
    also_by_the_others();
    move_from_path_0(2);
    lose_answers(slow, true);
    ASSERT_LT(world.now_ns(), disk->faults.stalled_until_ns);
    EXPECT_EQ(wait(good), Errc::kIo) << "path " << slow << " is slow";
    EXPECT_EQ(wait(failed), Errc::kIo);
    EXPECT_EQ(device->state(), RemoteState::kOpen);
    lose_answers(0, false);
    lose_answers(slow, false);
    connect(0, true);
    ASSERT_TRUE(until_up(slow));
  }
}

/// The failure went out by a connection of path 0. The path comes back, and its new connection with
/// the same number has told nobody anything.
TEST_F(FlushPaths, a_path_that_comes_back_has_told_nothing) {
  only_by_path_0();
  lose_answers(0, true);
  submit_failing(first);
  connect(1, true);
  move_from_path_0(1);
  lose_answers(1, true);
  lose_answers(0, false);
  connect(0, true);
  ASSERT_FALSE(first.status.has_value());
  EXPECT_EQ(flush_now(), Errc::kIo);
  ASSERT_FALSE(first.status.has_value());
  EXPECT_EQ(wait(first), Errc::kIo) << "path 1 is lost at last";
}

/// A client that is seen to know of the failure is not told by each new connection once more.
TEST_F(FlushPaths, a_path_that_comes_back_does_not_repeat_what_the_client_knows) {
  submit_failing(first);
  ASSERT_EQ(wait(first), Errc::kIo);
  EXPECT_EQ(flush_now(), Errc::kOk);
  for (size_t path = 0; path < kPaths; ++path) {
    connect(path, false);
    connect(path, true);
  }
  for (size_t i = 0; i < 2 * kPaths; ++i) {
    ASSERT_EQ(write(*client, *device, 0, 4096, 1), Errc::kOk);
    EXPECT_EQ(flush_now(), Errc::kOk) << i;
  }
  EXPECT_EQ(device->status().losses, 1u);
}

}  // namespace
}  // namespace braid::bnbd
