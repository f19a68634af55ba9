// Exports that grow and shrink under their clients: by the operator, or by others at the server.
#include <gtest/gtest.h>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;
using wire::AccessMode;

constexpr uint64_t kResizedSize = 4 << 20;

class Resize : public test::ServedRig {
 protected:
  Resize() { client = &add_client(); }
  base::Result<uint64_t> resize(const std::string& name, uint64_t size_bytes, bool force = false) {
    return await(*server_node, server->resize(name, size_bytes, force));
  }
  bool has_size(const RemoteDevice& device, uint64_t size_bytes) {
    return until([&] { return device.info().size_bytes == size_bytes; });
  }
  ClientNode* client = nullptr;
};

TEST_F(Resize, what_grew_is_there_for_all_who_have_it_open) {
  ClientNode& other = add_client("other");
  RemoteDevice& device = open(*client);
  RemoteDevice& reader = open(other, "disk.img", AccessMode::kReadOnly);
  unsigned changes = 0;
  client->home().post([&] { device.watch([&] { ++changes; }); });
  EXPECT_EQ(write(*client, device, kResizedSize, 4096, 1), Errc::kOutOfRange);
  ASSERT_EQ(*resize("disk.img", 2 * kResizedSize), 2 * kResizedSize);
  ASSERT_TRUE(has_size(device, 2 * kResizedSize) && has_size(reader, 2 * kResizedSize));
  EXPECT_EQ(changes, 1u);
  EXPECT_EQ(write(*client, device, 2 * kResizedSize - 4096, 4096, 1), Errc::kOk);
  EXPECT_TRUE(reads_as(other, reader, 2 * kResizedSize - 4096, 4096, 1));
  EXPECT_EQ(server->statistics().resized, 1u);
  EXPECT_EQ(open(*client, "ram").info().size_bytes, 1u << 20) << "no news of others";
}

TEST_F(Resize, nothing_that_is_open_shrinks_unless_forced) {
  RemoteDevice& device = open(*client);
  const auto refused = resize("disk.img", kResizedSize / 2);
  ASSERT_EQ(refused.code(), Errc::kBusy);
  EXPECT_NE(refused.error().message().find("client ("), std::string::npos)
      << refused.error().message();
  EXPECT_NE(refused.error().message().find("--force"), std::string::npos);
  EXPECT_EQ(write(*client, device, kResizedSize - 4096, 4096, 1), Errc::kOk);
}

TEST_F(Resize, beyond_a_shrunk_end_there_are_errors_and_nobodys_data) {
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, kResizedSize - 4096, 4096, 1), Errc::kOk);
  ASSERT_TRUE(resize("disk.img", kResizedSize / 2, true).ok());
  // Before the news have come the server refuses, afterwards the client does.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(write(*client, device, kResizedSize - 4096, 4096, 2), Errc::kOutOfRange);
    EXPECT_EQ(run(*client, device, Io(BlockOp::kRead, kResizedSize / 2 - 4096, 8192)),
              Errc::kOutOfRange);
    EXPECT_EQ(write(*client, device, kResizedSize / 2 - 4096, 4096, 3), Errc::kOk);
    ASSERT_TRUE(has_size(device, kResizedSize / 2));
  }
  ASSERT_TRUE(resize("disk.img", kResizedSize).ok());
  ASSERT_TRUE(has_size(device, kResizedSize));
  EXPECT_TRUE(reads_as(*client, device, kResizedSize - 4096, 4096, 0))
      << "what was cut off is gone";
}

/// The fsync of the size was a flush that failed: what was in the cache is gone.
TEST_F(Resize, a_size_that_cannot_be_made_durable_fails_the_next_flush) {
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  disk->faults = {.errors_per_million = 1'000'000, .sets_undurably = true};
  const auto failed = resize("disk.img", 2 * kResizedSize);
  disk->faults = {};
  ASSERT_EQ(failed.code(), Errc::kIo);
  EXPECT_NE(failed.error().message().find("has the new size"), std::string::npos)
      << failed.error().message();
  ASSERT_TRUE(has_size(device, 2 * kResizedSize));
  EXPECT_EQ(run(*client, device, Io(BlockOp::kFlush)), Errc::kIo);
  EXPECT_EQ(run(*client, device, Io(BlockOp::kFlush)), Errc::kOk);
}

TEST_F(Resize, a_size_that_could_not_be_set_fails_no_flush) {
  RemoteDevice& device = open(*client);
  ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  disk->faults = {.errors_per_million = 1'000'000};
  EXPECT_EQ(resize("disk.img", 2 * kResizedSize).code(), Errc::kIo);
  disk->faults = {};
  EXPECT_EQ(run(*client, device, Io(BlockOp::kFlush)), Errc::kOk);
  EXPECT_EQ(device.info().size_bytes, kResizedSize);
}

TEST_F(Resize, a_size_that_somebody_else_changed_is_noticed) {
  RemoteDevice& device = open(*client);
  disk->resize(3 * kResizedSize);
  ASSERT_TRUE(has_size(device, 3 * kResizedSize));
  EXPECT_EQ(write(*client, device, 3 * kResizedSize - 4096, 4096, 1), Errc::kOk);
  disk->resize(kResizedSize);
  ASSERT_TRUE(has_size(device, kResizedSize));
  EXPECT_EQ(write(*client, device, kResizedSize, 4096, 1), Errc::kOutOfRange);
}

TEST_F(Resize, a_disk_is_not_given_another_size_but_followed) {
  exports.block_devices = true;
  base::sim::SimDisk& raw =
      server_machine.add_disk("/exports/raw", {.size_bytes = 1 << 20, .block_device = true});
  kill_server();
  start_server();
  ASSERT_TRUE(until([&] { return client->session->statistics().reconnects == 1; }));
  RemoteDevice& device = open(*client, "raw");
  EXPECT_EQ(resize("raw", 2 << 20).code(), Errc::kNotSupported);
  raw.resize(2 << 20);
  EXPECT_TRUE(has_size(device, 2 << 20));
}

TEST_F(Resize, what_cannot_be_resized_says_so) {
  EXPECT_EQ(resize("disk.img", kResizedSize).code(), Errc::kNotFound) << "nobody has it open";
  EXPECT_EQ(resize("nothing", kResizedSize).code(), Errc::kNotFound);
  open(*client, "ram");
  EXPECT_EQ(resize("ram", 2 << 20).code(), Errc::kNotSupported);
  open(*client);
  EXPECT_EQ(resize("disk.img", kResizedSize + 100).code(), Errc::kInvalid);
}

TEST_F(Resize, a_device_that_shrank_while_its_client_was_away_stays_down_until_mapped_again) {
  RemoteDevice& device = open(*client);
  world.fabric().set_port_up("10.0.1.1", false);
  ASSERT_TRUE(resize("disk.img", kResizedSize / 2, true).ok());
  ASSERT_TRUE(until([&] { return device.state() == RemoteState::kPathDown; }));
  Io inside(BlockOp::kWrite, 0, 4096, 1);
  Io beyond(BlockOp::kWrite, kResizedSize - 4096, 4096, 1);
  submit(*client, device, inside);
  submit(*client, device, beyond);
  world.fabric().set_port_up("10.0.1.1", true);
  ASSERT_TRUE(until([&] { return device.state() == RemoteState::kReplaced; }));
  EXPECT_NE(device.explain().find("mapped again"), std::string::npos) << device.explain();
  // The path is still being made: it is mapped again as soon as there is one.
  EXPECT_EQ(await(*client, device.remap()).code(), Errc::kDisconnected);
  ASSERT_TRUE(until([&] { return device.state() == RemoteState::kOpen; }));
  EXPECT_EQ(device.info().size_bytes, kResizedSize / 2);
  EXPECT_EQ(wait(inside), Errc::kOk);
  EXPECT_EQ(wait(beyond), Errc::kOutOfRange);
}

TEST_F(Resize, a_restarted_server_tells_the_new_size_when_the_device_is_opened_again) {
  RemoteDevice& device = open(*client);
  kill_server();
  disk->resize(2 * kResizedSize);
  start_server();
  EXPECT_TRUE(has_size(device, 2 * kResizedSize));
}

}  // namespace
}  // namespace braid::bnbd
