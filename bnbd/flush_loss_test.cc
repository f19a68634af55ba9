// Writes that a failed flush or a restart may have taken, and whose user hears of their good end
// only later: a flush that he submits then must not vouch for them.
#include <gtest/gtest.h>

#include "bnbd/device_op.h"
#include "bnbd/filters.h"
#include "bnbd/test_fake_server.h"
#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;
using wire::AccessMode;

class FlushLoss : public test::ServedRig {
 protected:
  FlushLoss() {
    client_reactors = 2;
    client = &add_client();
  }
  void disk_fails(bool fails) { disk->faults.errors_per_million = fails ? 1'000'000 : 0; }
  Errc failing_flush(ClientNode& node, RemoteDevice& device) {
    disk_fails(true);
    const Errc status = flush(node, device);
    disk_fails(false);
    return status;
  }
  /// The second reactor stands still from when the server's disk has done what it submits.
  void write_and_hang(RemoteDevice& device, Io& write) {
    const uint64_t done = disk->counters().operations;
    submit_on(1, device, write);
    ASSERT_TRUE(until([&] { return disk->counters().operations > done; }));
    client->host.hang(*client->reactors[1]);
    world.run_for(base::kMillisecond);
    ASSERT_FALSE(write.status.has_value());
  }
  void expect_told_once_more(RemoteDevice& device) {
    EXPECT_EQ(flush(*client, device), Errc::kIo);
    EXPECT_EQ(flush(*client, device), Errc::kOk);
  }
  static constexpr const char* kClientIp = "10.0.1.1";  // of the first one

  ClientNode* client = nullptr;
};

TEST_F(FlushLoss, of_a_write_whose_answer_is_polled_after_the_failure_is_told) {
  RemoteDevice& device = open(*client);
  Io late(BlockOp::kWrite, 0, 4096, 1);
  write_and_hang(device, late);
  EXPECT_EQ(failing_flush(*client, device), Errc::kIo);
  EXPECT_EQ(flush(*client, device), Errc::kIo) << "it covers too little to speak for all";
  client->host.unhang(*client->reactors[1]);
  EXPECT_EQ(wait(late), Errc::kOk);
  expect_told_once_more(device);
}

TEST_F(FlushLoss, of_a_write_that_ended_during_the_flush_is_told) {
  RemoteDevice& device = open(*client);
  disk->faults.slow_factor = 1000;
  Io slow(BlockOp::kFlush);
  submit(*client, device, slow);
  ASSERT_TRUE(until([&] { return disk->counters().slow > 0; }));
  disk->faults.slow_factor = 1;
  EXPECT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  ASSERT_FALSE(slow.status.has_value());
  disk_fails(true);
  EXPECT_EQ(wait(slow), Errc::kIo);
  disk_fails(false);
  expect_told_once_more(device);
}

TEST_F(FlushLoss, with_nothing_else_at_stake_is_told_by_the_failure_itself) {
  RemoteDevice& device = open(*client);
  EXPECT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  EXPECT_EQ(run_on(1, device, Io(BlockOp::kWrite, 4096, 4096, 1)), Errc::kOk);
  EXPECT_EQ(failing_flush(*client, device), Errc::kIo);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
  EXPECT_EQ(run_on(1, device, Io(BlockOp::kFlush)), Errc::kOk);
}

TEST_F(FlushLoss, over_an_opening_on_the_same_path_is_told) {
  ClientNode& other_client = add_client("other");
  RemoteDevice& device = open(*client, "disk.img", AccessMode::kMigration);
  RemoteDevice& other = open(other_client, "disk.img", AccessMode::kMigration);
  Io late(BlockOp::kWrite, 0, 4096, 1);
  write_and_hang(device, late);
  ASSERT_TRUE(server->force_close({"disk.img", "client"}).ok());
  EXPECT_EQ(failing_flush(other_client, other), Errc::kIo);
  ASSERT_TRUE(until([&] { return device.state() == RemoteState::kRevoked; }));
  ASSERT_TRUE(await(*client, device.remap()).ok());
  client->host.unhang(*client->reactors[1]);
  EXPECT_EQ(wait(late), Errc::kOk);
  expect_told_once_more(device);
}

/// What was done is not done again: so the failure has taken it, though it is answered later.
TEST_F(FlushLoss, of_a_write_that_is_answered_by_the_session_after_the_failure_is_told) {
  ClientNode& other_client = add_client("other");
  RemoteDevice& device = open(*client, "disk.img", AccessMode::kMigration);
  RemoteDevice& other = open(other_client, "disk.img", AccessMode::kMigration);
  world.fabric().set_black_hole(test::kServerIp, kClientIp, true);
  Io write(BlockOp::kWrite, 0, 4096, 1);
  const uint64_t done = disk->counters().operations;
  submit(*client, device, write);
  ASSERT_TRUE(until([&] { return disk->counters().operations > done; }));
  world.fabric().set_black_hole(kClientIp, test::kServerIp, true);
  ASSERT_TRUE(until([&] { return device.state() == RemoteState::kPathDown; }));
  EXPECT_EQ(failing_flush(other_client, other), Errc::kIo);
  const uint64_t before = disk->counters().operations;
  world.fabric().set_black_hole(kClientIp, test::kServerIp, false);
  world.fabric().set_black_hole(test::kServerIp, kClientIp, false);
  EXPECT_EQ(wait(write), Errc::kOk);
  EXPECT_EQ(disk->counters().operations, before) << "it was done again: nothing is lost";
  expect_told_once_more(device);
}

TEST_F(FlushLoss, is_told_to_a_flush_on_another_connection_whose_answer_is_polled_first) {
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  const uint64_t errors = disk->counters().errors;
  disk_fails(true);
  Io first(BlockOp::kFlush);
  submit_on(1, device, first);
  ASSERT_TRUE(until([&] { return disk->counters().errors > errors; }));
  client->host.hang(*client->reactors[1]);
  disk_fails(false);
  world.run_for(base::kMillisecond);
  ASSERT_FALSE(first.status.has_value());
  EXPECT_EQ(flush(*client, device), Errc::kIo) << "it would vouch for what the first has lost";
  EXPECT_EQ(flush(*client, device), Errc::kOk);
  client->host.unhang(*client->reactors[1]);
  EXPECT_EQ(wait(first), Errc::kIo);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
  EXPECT_EQ(run_on(1, device, Io(BlockOp::kFlush)), Errc::kOk);
}

/// The server finds its own mark when it opens the file again.
TEST_F(FlushLoss, is_told_once_more_by_a_new_path_and_not_by_a_file_that_was_closed) {
  ClientNode& reader = add_client("reader");
  RemoteDevice& holds = open(reader, "disk.img", AccessMode::kReadOnly);
  RemoteDevice& device = open(*client);
  const auto lose_path = [&] {
    ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
    world.fabric().set_black_hole(test::kServerIp, kClientIp, true);
    world.fabric().set_black_hole(kClientIp, test::kServerIp, true);
    ASSERT_TRUE(until([&] { return device.state() == RemoteState::kPathDown; }));
    ASSERT_TRUE(until([&] { return server->sessions().size() < 2; }));
    world.run_for(base::kSecond);
    world.fabric().set_black_hole(test::kServerIp, kClientIp, false);
    world.fabric().set_black_hole(kClientIp, test::kServerIp, false);
    ASSERT_TRUE(until([&] { return device.state() == RemoteState::kOpen; }));
  };
  EXPECT_EQ(failing_flush(*client, device), Errc::kIo);
  lose_path();
  expect_told_once_more(device);
  await(reader, holds.close());
  lose_path();
  EXPECT_EQ(flush(*client, device), Errc::kOk) << "nothing has failed since";
}

/// A write that is longer than the device takes at once.
struct LongWrite {
  explicit LongWrite(size_t length) : data(length) {
    operation.op = BlockOp::kWrite;
    operation.length_bytes = length;
    operation.buffer.address = data.data();
    operation.context = this;
    operation.done = [](DeviceOp& ended, Errc how) {
      static_cast<LongWrite*>(ended.context)->status = how;
    };
  }
  std::vector<std::byte> data;
  DeviceOp operation;
  std::optional<Errc> status;
};

/// Its user has heard of nothing of it when he asks for the flush.
TEST_F(FlushLoss, of_a_part_whose_request_goes_on_is_told) {
  RemoteDevice& device = open(*client);
  LongWrite write(2 * device.info().max_io_bytes);
  client->home().post([&] { write.operation.start(device); });
  ASSERT_TRUE(until([&] { return device.statistics().writes == 1; }));
  Io between(BlockOp::kFlush);
  submit(*client, device, between);
  restart_machine();
  EXPECT_EQ(wait(between), Errc::kIo);
  ASSERT_TRUE(until([&] { return write.status.has_value(); }));
  EXPECT_EQ(*write.status, Errc::kOk);
  expect_told_once_more(device);
}

TEST_F(FlushLoss, of_a_write_of_which_its_user_hears_later_is_told) {
  RemoteDevice& device = open(*client);
  Io write(BlockOp::kWrite, 0, 4096, 1);
  write.request.told_later = true;
  EXPECT_EQ(run(*client, device, write), Errc::kOk);
  EXPECT_TRUE(write.request.untold.any());
  restart_machine();
  EXPECT_EQ(flush(*client, device), Errc::kIo);
  EXPECT_EQ(flush(*client, device), Errc::kIo) << "he has not heard yet";
  device.note_told(write.request.untold, true);
  EXPECT_FALSE(write.request.untold.any());
  expect_told_once_more(device);
}

TEST_F(FlushLoss, is_told_by_each_flush_until_the_user_of_one_hears_of_it) {
  RemoteDevice& device = open(*client);
  EXPECT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  restart_machine();
  Io first(BlockOp::kFlush), second(BlockOp::kFlush);
  first.request.told_later = second.request.told_later = true;
  EXPECT_EQ(run(*client, device, first), Errc::kIo);
  EXPECT_EQ(run(*client, device, second), Errc::kIo);
  device.note_told(second.request.untold, true);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
  EXPECT_EQ(write(*client, device, 0, 4096, 2), Errc::kOk);
  Io at_disk(BlockOp::kFlush);
  at_disk.request.told_later = true;
  disk_fails(true);
  EXPECT_EQ(run(*client, device, at_disk), Errc::kIo);
  disk_fails(false);
  device.note_told(first.request.untold, true);
  EXPECT_EQ(flush(*client, device), Errc::kIo) << "that was of the loss before";
  device.note_told(at_disk.request.untold, true);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

TEST_F(FlushLoss, is_told_by_another_flush_if_the_user_of_the_first_never_hears) {
  RemoteDevice& device = open(*client);
  EXPECT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  restart_machine();
  Io unheard(BlockOp::kFlush);
  unheard.request.told_later = true;
  EXPECT_EQ(run(*client, device, unheard), Errc::kIo);
  device.note_told(unheard.request.untold, false);
  EXPECT_EQ(flush(*client, device), Errc::kIo);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

TEST_F(FlushLoss, is_none_of_a_write_that_was_flushed_before_its_user_hears_of_it) {
  RemoteDevice& device = open(*client);
  Io write(BlockOp::kWrite, 0, 4096, 1);
  write.request.told_later = true;
  EXPECT_EQ(run(*client, device, write), Errc::kOk);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
  restart_machine();
  device.note_told(write.request.untold, true);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

/// Through every kind of filter.
TEST_F(FlushLoss, of_a_write_of_which_its_user_hears_later_is_told_through_filters) {
  RemoteDevice& device = open(*client);
  std::vector<FilterSpec> specs;
  for (const char* text : {"delay:1us", "error:read,every=1000", "rate:ops=1000000", "checksum"}) {
    auto spec = parse_filter(text);
    ASSERT_TRUE(spec.ok()) << spec.error().message();
    specs.push_back(std::move(spec).value());
  }
  auto filters = await(*client, FilterStack::create(client->home(), device, specs, "disk.img"));
  ASSERT_TRUE(filters.ok()) << filters.error().message();
  BlockDevice& top = (*filters)->top();
  Io write(BlockOp::kWrite, 0, 4096, 1);
  write.request.told_later = true;
  EXPECT_EQ(run(*client, top, write), Errc::kOk);
  restart_machine();
  EXPECT_EQ(flush(*client, top), Errc::kIo);
  EXPECT_EQ(flush(*client, top), Errc::kIo) << "he has not heard yet";
  top.note_told(write.request.untold, true);
  EXPECT_EQ(flush(*client, top), Errc::kIo);
  EXPECT_EQ(flush(*client, top), Errc::kOk);
  await(*client, (*filters)->let_go());
  await(*client, (*filters)->drained());
}

/// The server's process ends between a failure and its being told.
class FlushLossOverProcesses : public FlushLoss {
 protected:
  /// The answer of a flush that failed is lost; then the process, and what it knew.
  void fail_unheard(RemoteDevice& device, Io& unheard) {
    ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
    world.fabric().set_black_hole(test::kServerIp, kClientIp, true);
    disk_fails(true);
    submit(*client, device, unheard);
    ASSERT_TRUE(until([&] { return disk->counters().errors > 0; }));
    disk_fails(false);
    world.run_for(base::kMillisecond);
    ASSERT_FALSE(unheard.status.has_value());
    restart_process();
    world.fabric().set_black_hole(test::kServerIp, kClientIp, false);
  }
  void restart_process() {
    kill_server();
    start_server();
  }
};

TEST_F(FlushLossOverProcesses, is_told_by_the_next_one) {
  RemoteDevice& device = open(*client);
  Io unheard(BlockOp::kFlush);
  fail_unheard(device, unheard);
  EXPECT_EQ(wait(unheard), Errc::kIo) << "it vouches for what the former process has lost";
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

TEST_F(FlushLossOverProcesses, is_told_by_the_one_after_the_next) {
  RemoteDevice& device = open(*client);
  Io unheard(BlockOp::kFlush);
  fail_unheard(device, unheard);
  restart_process();
  EXPECT_EQ(wait(unheard), Errc::kIo);
  EXPECT_EQ(flush(*client, device), Errc::kOk);
}

TEST_F(FlushLossOverProcesses, is_told_once) {
  RemoteDevice& device = open(*client);
  Io unheard(BlockOp::kFlush);
  fail_unheard(device, unheard);
  EXPECT_EQ(wait(unheard), Errc::kIo);
  EXPECT_EQ(write(*client, device, 0, 4096, 2), Errc::kOk);
  restart_process();
  EXPECT_EQ(flush(*client, device), Errc::kOk) << "nothing has failed since";
}

TEST_F(FlushLossOverProcesses, stays_untold_where_no_mark_can_be_kept) {
  disk->faults.keeps_no_mark = true;
  log->awaited = "cannot be noted at the file";
  RemoteDevice& device = open(*client);
  Io unheard(BlockOp::kFlush);
  fail_unheard(device, unheard);
  EXPECT_EQ(wait(unheard), Errc::kOk);
  EXPECT_EQ(log->found, 1u);
}

/// One client is away while a flush of another one fails, and the file cannot be marked then.
class FlushLossMarkedLater : public FlushLossOverProcesses {
 protected:
  void SetUp() override {
    FlushLossOverProcesses::SetUp();
    device = &open(*client, "disk.img", AccessMode::kMigration);
    other = &open(other_client, "disk.img", AccessMode::kMigration);
    ASSERT_EQ(write(*client, *device, 0, 4096, 1), Errc::kOk);
    away(true);
    disk->faults.keeps_no_mark = true;
    EXPECT_EQ(failing_flush(other_client, *other), Errc::kIo);
    world.run_for(base::kMillisecond);
    disk->faults.keeps_no_mark = false;
  }
  void away(bool on) {
    world.fabric().set_black_hole(test::kServerIp, kClientIp, on);
    world.fabric().set_black_hole(kClientIp, test::kServerIp, on);
  }
  void expect_told_by_the_next_process() {
    restart_process();
    away(false);
    EXPECT_EQ(flush(*client, *device), Errc::kIo);
    EXPECT_EQ(flush(*client, *device), Errc::kOk);
  }

  ClientNode& other_client = add_client("other");
  RemoteDevice* device = nullptr;
  RemoteDevice* other = nullptr;
};

TEST_F(FlushLossMarkedLater, by_a_flush_that_ends_well) {
  EXPECT_EQ(flush(other_client, *other), Errc::kOk);
  world.run_for(base::kMillisecond);
  expect_told_by_the_next_process();
}

TEST_F(FlushLossMarkedLater, by_an_opening) {
  await(other_client, other->close());
  ASSERT_TRUE(until([&] { return server->sessions().size() < 2; }));
  open(other_client, "disk.img", AccessMode::kReadOnly);
  world.run_for(base::kMillisecond);
  expect_told_by_the_next_process();
}

TEST_F(FlushLossMarkedLater, by_the_stop_of_the_server) {
  EXPECT_TRUE(await(*server_node, server->stop()).ok());
  expect_told_by_the_next_process();
}

class PartsLost : public test::FakeRig {};

TEST_F(PartsLost, of_a_write_that_ended_after_the_restart_are_told_to_a_flush_after_it) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  script.answers_max = 1;
  Io write(BlockOp::kWrite, 0, 128 << 10, 1);  // two parts
  submit(client, device, write);
  ASSERT_TRUE(until([&] { return script.seen.size() == 2; }));
  world.run_for(base::kMillisecond);  // the first is acknowledged
  Io early(BlockOp::kFlush);
  submit(client, device, early);
  world.run_for(base::kMillisecond);
  script.answers_max = SIZE_MAX;
  ++script.device.incarnation;
  restart_fake();
  EXPECT_EQ(wait(write), Errc::kOk);
  EXPECT_EQ(wait(early), Errc::kIo);
  EXPECT_EQ(flush(client, device), Errc::kIo) << "the one before was older than the write's end";
  EXPECT_EQ(flush(client, device), Errc::kOk);
}

}  // namespace
}  // namespace braid::bnbd
