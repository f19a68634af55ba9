// Client and export server together, in a calm world: what each operation does, what is refused.
#include "bnbd/remote.h"

#include <gtest/gtest.h>

#include <deque>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;
using wire::AccessMode;

class Remote : public test::ServedRig {};

TEST_F(Remote, describes_the_servers_device) {
  ClientNode& client = add_client();
  const BlockInfo& info = open(client).info();
  EXPECT_EQ(info.size_bytes, 4u << 20);
  EXPECT_EQ(info.identity, disk->identity());
  EXPECT_EQ(info.logical_block_bytes, 512u);
  EXPECT_GT(info.max_discard_bytes, 0u);
  EXPECT_GT(info.max_write_zeroes_bytes, 0u);
  EXPECT_TRUE(info.write_cache);
  EXPECT_FALSE(info.read_only);
}

TEST_F(Remote, writes_reach_the_disk_and_reads_bring_them_back) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  EXPECT_EQ(write(client, device, 8192, 4096, 7), Errc::kOk);
  EXPECT_EQ(disk->current()[8192], std::byte{7});
  EXPECT_TRUE(reads_as(client, device, 8192, 4096, 7));
  EXPECT_TRUE(reads_as(client, device, 0, 8192, 0));
}

TEST_F(Remote, flush_fua_and_preflush_make_data_durable) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  ASSERT_EQ(write(client, device, 0, 4096, 1), Errc::kOk);
  EXPECT_EQ(flush(client, device), Errc::kOk);
  EXPECT_EQ(disk->durable()[0], std::byte{1});
  Io fua(BlockOp::kWrite, 4096, 4096, 2);
  EXPECT_EQ(run(client, device, fua.fua()), Errc::kOk);
  EXPECT_EQ(disk->durable()[4096], std::byte{2});
  ASSERT_EQ(write(client, device, 8192, 4096, 3), Errc::kOk);
  Io commit(BlockOp::kWrite, 12288, 4096, 4);
  commit.request.preflush = true;
  EXPECT_EQ(run(client, device, commit), Errc::kOk);
  EXPECT_EQ(disk->durable()[8192], std::byte{3});
}

TEST_F(Remote, discard_and_write_zeroes_clear_their_range) {
  ClientNode& client = add_client();
  for (const char* name : {"disk.img", "ram"}) {
    RemoteDevice& device = open(client, name);
    for (BlockOp op : {BlockOp::kDiscard, BlockOp::kWriteZeroes}) {
      ASSERT_EQ(write(client, device, 0, 32768, 9), Errc::kOk);
      EXPECT_EQ(run(client, device, Io(op, 4096, 8192)), Errc::kOk);
      EXPECT_TRUE(reads_as(client, device, 0, 4096, 9));
      EXPECT_TRUE(reads_as(client, device, 4096, 8192, 0));
      EXPECT_TRUE(reads_as(client, device, 12288, 4096, 9));
    }
  }
}

TEST_F(Remote, requests_longer_than_the_server_takes_go_in_parts) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  ASSERT_GT(device.info().max_io_bytes, client.session->limits().max_io_bytes);
  Io write(BlockOp::kWrite, 4096, 1 << 20);
  for (size_t i = 0; i < 1 << 20; ++i) write.request.buffer.address[i] = std::byte(i / 4096);
  EXPECT_EQ(run(client, device, write), Errc::kOk);
  Io read(BlockOp::kRead, 4096, 1 << 20, 0x55);
  EXPECT_EQ(run(client, device, read), Errc::kOk);
  EXPECT_TRUE(std::equal(read.bytes().begin(), read.bytes().end(), write.bytes().begin()));
  EXPECT_EQ(device.statistics().writes, 1u);
  EXPECT_EQ(device.status().requests_sent, 32u);
}

TEST_F(Remote, memory_of_a_region_is_not_copied_and_other_memory_is) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  auto region = std::move(device.create_region(128 << 10)).value();
  std::fill_n(region->data(), 64 << 10, std::byte{5});
  Io write(BlockOp::kWrite, 0, 64 << 10);
  write.request.buffer = {region.get(), region->data()};
  EXPECT_EQ(run(client, device, write), Errc::kOk);
  Io read(BlockOp::kRead, 0, 64 << 10);
  read.request.buffer = {region.get(), region->data() + (64 << 10)};
  EXPECT_EQ(run(client, device, read), Errc::kOk);
  EXPECT_TRUE(read.all(5));
  EXPECT_EQ(device.statistics().copies, 0u);
  EXPECT_TRUE(reads_as(client, device, 0, 4096, 5));
  EXPECT_EQ(device.statistics().copies, 1u);
}

TEST_F(Remote, a_region_of_another_session_is_copied) {
  ClientNode& client = add_client("a");
  RemoteDevice& device = open(client);
  ClientNode& other = add_client("b");
  RemoteDevice& foreign = open(other, "ram");
  auto region = std::move(foreign.create_region(4096)).value();
  Io write(BlockOp::kWrite, 0, 4096);
  write.request.buffer = {region.get(), region->data()};
  EXPECT_EQ(run(client, device, write), Errc::kOk);
  EXPECT_EQ(device.statistics().copies, 1u);
}

TEST_F(Remote, reads_of_a_memory_export_are_lent) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client, "ram");
  ASSERT_EQ(write(client, device, 4096, 4096, 3), Errc::kOk);
  EXPECT_TRUE(reads_as(client, device, 4096, 4096, 3));
  ASSERT_EQ(server->exports().front().name, "ram");
  EXPECT_EQ(server->exports().front().statistics.lent, 1u);
}

TEST_F(Remote, a_null_export_shows_no_old_bytes) {
  ClientNode& client = add_client();
  RemoteDevice& disk_device = open(client);
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(write(client, disk_device, i * 4096, 4096, 0xee), Errc::kOk);
  }
  RemoteDevice& device = open(client, "void");
  EXPECT_EQ(write(client, device, 0, 4096, 0xee), Errc::kOk);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(reads_as(client, device, 0, 16384, 0));
}

TEST_F(Remote, more_requests_than_permits_slots_and_buffers_all_end_once) {
  session_options.copy_pool_bytes = 1;  // the least there may be
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  std::deque<Io> ios;
  for (uint64_t i = 0; i < 600; ++i) {
    ios.emplace_back(BlockOp::kWrite, i * 4096, 4096, static_cast<int>(i % 251));
    submit(client, device, ios.back());
  }
  for (Io& io : ios) EXPECT_EQ(wait(io), Errc::kOk);
  for (Io& io : ios) EXPECT_EQ(io.completions, 1);
  for (uint64_t i = 0; i < 600; i += 7) {
    EXPECT_TRUE(reads_as(client, device, i * 4096, 4096, static_cast<int>(i % 251)));
  }
}

/// With two pools: the second is made when the size of the server's requests is known, while the
/// path is up already.
TEST_F(Remote, buffers_whose_pages_a_worker_makes_serve_as_well) {
  session_options.touch_buffers = true;
  for (const uint64_t pool_bytes : {uint64_t{1}, uint64_t{4} << 20}) {
    session_options.copy_pool_bytes = pool_bytes;
    ClientNode& client = add_client();
    RemoteDevice& device = open(client, pool_bytes == 1 ? "ram" : "disk.img");  // one writer each
    ASSERT_EQ(write(client, device, 4096, 8192, 0xab), Errc::kOk);
    EXPECT_TRUE(reads_as(client, device, 4096, 8192, 0xab));
  }
}

TEST_F(Remote, a_busy_device_does_not_starve_another_of_its_session) {
  ClientNode& client = add_client();
  RemoteDevice& busy = open(client, "disk.img");
  RemoteDevice& calm = open(client, "ram");
  std::deque<Io> flood;
  for (uint64_t i = 0; i < 900; ++i) flood.emplace_back(BlockOp::kRead, i * 4096, 4096);
  Io one(BlockOp::kRead, 0, 4096);
  client.home().post([&] {
    for (Io& io : flood) busy.submit(io.request);
    calm.submit(one.request);
  });
  EXPECT_EQ(wait(one), Errc::kOk);
  const auto done =
      std::count_if(flood.begin(), flood.end(), [](const Io& io) { return io.status.has_value(); });
  EXPECT_LT(done, 100) << "it had to wait for the flood";
  for (Io& io : flood) EXPECT_EQ(wait(io), Errc::kOk);
}

TEST_F(Remote, several_clients_share_one_backend) {
  ClientNode& writer = add_client("writer");
  ClientNode& reader = add_client("reader");
  RemoteDevice& out = open(writer);
  RemoteDevice& in = open(reader, "./disk.img", AccessMode::kReadOnly);
  ASSERT_EQ(write(writer, out, 0, 4096, 8), Errc::kOk);
  EXPECT_TRUE(reads_as(reader, in, 0, 4096, 8));
  EXPECT_EQ(run(reader, in, Io(BlockOp::kWrite, 0, 4096, 1)), Errc::kReadOnly);
  const auto shown = server->exports();
  ASSERT_EQ(shown.size(), 3u);
  EXPECT_EQ(shown.back().name, "disk.img");
  EXPECT_EQ(shown.back().holders.size(), 2u);
}

TEST_F(Remote, a_second_writer_is_refused_and_told_who_the_first_is) {
  ClientNode& first = add_client("host-a");
  open(first);
  ClientNode& second = add_client("host-b");
  auto refused = try_open(second, {.name = "disk.img"});
  EXPECT_EQ(refused.code(), Errc::kBusy);
  EXPECT_NE(refused.error().message().find("host-a"), std::string::npos)
      << refused.error().message();
}

TEST_F(Remote, a_migration_lets_one_second_writer_in) {
  ClientNode& first = add_client("host-a");
  open(first);
  ClientNode& second = add_client("host-b");
  EXPECT_TRUE(try_open(second, {.name = "disk.img", .mode = AccessMode::kMigration}).ok());
  ClientNode& third = add_client("host-c");
  auto refused = try_open(third, {.name = "disk.img", .mode = AccessMode::kMigration});
  EXPECT_EQ(refused.code(), Errc::kBusy);
  EXPECT_NE(refused.error().message().find("host-b"), std::string::npos);
}

TEST_F(Remote, closing_lets_the_next_writer_in_and_closes_the_file) {
  ClientNode& first = add_client("host-a");
  RemoteDevice& device = open(first);
  await(first, device.close());
  EXPECT_EQ(device.state(), RemoteState::kClosed);
  EXPECT_EQ(server->exports().size(), 2u) << "only the named exports are left";
  EXPECT_EQ(run(first, device, Io(BlockOp::kRead, 0, 4096)), Errc::kCanceled);
  ClientNode& second = add_client("host-b");
  EXPECT_TRUE(try_open(second, {.name = "disk.img"}).ok());
}

TEST_F(Remote, a_session_that_dies_gives_its_devices_back) {
  ClientNode& first = add_client("host-a");
  open(first);
  first.host.kill();
  ASSERT_TRUE(until([&] { return server->exports().size() == 2; }));
  ClientNode& second = add_client("host-b");
  EXPECT_TRUE(try_open(second, {.name = "disk.img"}).ok());
}

TEST_F(Remote, bad_names_are_refused_with_words) {
  ClientNode& client = add_client();
  const std::pair<std::string, const char*> cases[] = {
      {"nothing.img", "nothing.img"}, {"../etc/passwd", ".."}, {"/etc/passwd", "/etc/passwd"},
      {"a/../disk.img", ".."},        {"", "empty"},           {std::string(255, 'x'), "255"},
  };
  for (const auto& [name, word] : cases) {
    auto refused = try_open(client, {.name = name});
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_NE(refused.error().message().find(word), std::string::npos) << refused.error().message();
    EXPECT_EQ(refused.error().message().find("/exports"), std::string::npos)
        << "tells where the server's root lies: " << refused.error().message();
  }
  EXPECT_TRUE(reads_as(client, open(client), 0, 4096, 0)) << "the session is none the worse";
}

TEST_F(Remote, a_disk_is_exported_only_where_disks_are_allowed) {
  server_machine.add_disk("/exports/sda", {.size_bytes = 1 << 20, .block_device = true});
  ClientNode& client = add_client();
  EXPECT_EQ(try_open(client, {.name = "sda"}).code(), Errc::kPermission);
}

TEST_F(Remote, the_same_device_opens_once_per_session) {
  ClientNode& client = add_client();
  open(client);
  EXPECT_EQ(try_open(client, {.name = "disk.img"}).code(), Errc::kExists);
}

TEST_F(Remote, what_breaks_a_rule_is_refused_here_and_not_sent) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  EXPECT_EQ(run(client, device, Io(BlockOp::kRead, 4 << 20, 4096)), Errc::kOutOfRange);
  EXPECT_EQ(run(client, device, Io(BlockOp::kRead, 1, 512)), Errc::kInvalid);
  Io nowhere(BlockOp::kRead, 0, 4096);
  nowhere.request.buffer = {};
  nowhere.request.may_lend = true;
  EXPECT_EQ(run(client, device, nowhere), Errc::kInvalid);
  EXPECT_EQ(device.status().requests_sent, 0u);
}

TEST_F(Remote, disk_errors_come_back_as_such) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  disk->faults.errors_per_million = 1'000'000;
  EXPECT_EQ(run(client, device, Io(BlockOp::kRead, 0, 4096)), Errc::kIo);
  EXPECT_EQ(write(client, device, 0, 1 << 20, 1), Errc::kIo);
  EXPECT_EQ(flush(client, device), Errc::kIo);
  EXPECT_EQ(device.statistics().errors, 3u);
}

/// Codes that a file system behind an export may give, and that on this wire mean something else:
/// ENOTCONN would be asked again for ever, ECANCELED would pass for our own cancellation.
TEST_F(Remote, disk_errors_that_sound_like_errors_of_the_path_come_back_as_disk_errors) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  for (Errc code :
       {Errc::kDisconnected, Errc::kCanceled, Errc::kProtocol, Errc::kWouldBlock, Errc::kStale}) {
    disk->faults = {.errors_per_million = 1'000'000, .error = code};
    EXPECT_EQ(run(client, device, Io(BlockOp::kRead, 0, 4096)), Errc::kIo) << to_string(code);
    EXPECT_EQ(write(client, device, 0, 4096, 1), Errc::kIo) << to_string(code);
    EXPECT_EQ(flush(client, device), Errc::kIo) << to_string(code);
  }
  disk->faults = {.errors_per_million = 1'000'000, .error = Errc::kNoSpace};
  EXPECT_EQ(write(client, device, 0, 4096, 1), Errc::kNoSpace) << "others come back as they are";
  EXPECT_EQ(device.state(), RemoteState::kOpen);
  EXPECT_EQ(device.status().reopened, 0u);
}

TEST_F(Remote, statistics_and_latencies_are_counted) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(write(client, device, 0, 4096, i), Errc::kOk);
  ASSERT_TRUE(reads_as(client, device, 0, 4096, 9));
  ASSERT_EQ(flush(client, device), Errc::kOk);
  const RemoteDeviceStatus status = device.status();
  EXPECT_EQ(status.statistics.writes, 10u);
  EXPECT_EQ(status.statistics.write_bytes, 40960u);
  EXPECT_EQ(status.statistics.reads, 1u);
  EXPECT_EQ(status.statistics.flushes, 1u);
  EXPECT_EQ(status.in_progress, 0u);
  const LatencyHistogram& latency = device.latency(LatencyKind::kWrite);
  EXPECT_EQ(latency.count(), 10u);
  EXPECT_GT(latency.percentile_ns(50), 10 * base::kMicrosecond) << "the disk takes so long";
  EXPECT_LE(latency.percentile_ns(50), latency.percentile_ns(99.9));
  EXPECT_EQ(device.latency(LatencyKind::kRead).count(), 1u);
  EXPECT_EQ(device.latency(LatencyKind::kOther).count(), 1u);
}

TEST_F(Remote, the_session_closes_what_is_open) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  await(client, client.session->close());
  EXPECT_EQ(device.state(), RemoteState::kClosed);
  EXPECT_TRUE(until([&] { return server->sessions().empty(); }));
}

TEST_F(Remote, the_server_stops_in_order) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  ASSERT_EQ(write(client, device, 0, 4096, 1), Errc::kOk);
  EXPECT_TRUE(await(*server_node, server->stop()).ok());
  EXPECT_TRUE(until([&] { return device.state() == RemoteState::kPathDown; }));
}

}  // namespace
}  // namespace braid::bnbd
