// A link so slow that one message takes longer than a silent peer is waited for: what moves is
// alive. The TCP wire, over simulated streams that share a rate.
#include <gmock/gmock.h>

#include "trs/session_rig.h"

namespace braid::trs::testing {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;

constexpr uint32_t kLongBytes = 4 << 20;
constexpr uint64_t kBytesPerMs = 3000;  // 1.4 s for kLongBytes: 16 MiB over 100 Mbit/s

class SlowLink : public SessionRig {
 protected:
  explicit SlowLink(size_t reactors = 1) : SessionRig(reactors) {
    process_size.tcp = true;
    adjust_server = [](ServerOptions& options) {
      options.queue_depth = 4;
      options.max_io_bytes = kLongBytes;
    };
  }
  void slow(uint64_t bytes_per_ms) {
    world.fabric().set_rate(kClientIp, kServerIp, bytes_per_ms);
    world.fabric().set_rate(kServerIp, kClientIp, bytes_per_ms);
  }
  /// It has gone on for 600 ms, and does not end soon.
  std::unique_ptr<Io> begin_write() {
    connect();
    slow(kBytesPerMs);
    auto io = client->make_io(Direction::kWrite, 0, kLongBytes);
    client->submit(*io);
    world.run_for(600 * kMillisecond);
    expect_undisturbed();
    return io;
  }
  void expect_undisturbed() {
    EXPECT_EQ(client->disconnected_calls, 0u) << client->disconnected_why;
    EXPECT_EQ(store.opened, 1u);
  }
};

TEST_F(SlowLink, WriteThatTakesLongerThanSilenceMayEndsWell) {
  connect();
  slow(kBytesPerMs);
  auto io = client->make_io(Direction::kWrite, 0, kLongBytes);
  fill(io->buffer, 1);
  const uint64_t began_ns = world.now_ns();
  client->submit(*io);
  ASSERT_TRUE(until([&] { return io->done; }, 5 * kSecond))
      << client->disconnected_calls << " " << client->disconnected_why << " " << store.opened;
  EXPECT_EQ(io->status, Errc::kOk);
  EXPECT_GT(world.now_ns() - began_ns, kSecond) << "it was no slow link";
  EXPECT_EQ(store.write_log.size(), 1u);
  EXPECT_TRUE(filled(std::span(store.bytes).first(kLongBytes), 1));
  expect_undisturbed();
}

TEST_F(SlowLink, ReadThatTakesLongerThanSilenceMayEndsWell) {
  connect();
  slow(kBytesPerMs);
  fill(store.bytes, 2);
  auto io = client->make_io(Direction::kRead, 0, kLongBytes);
  const uint64_t began_ns = world.now_ns();
  client->submit(*io);
  ASSERT_TRUE(until([&] { return io->done; }, 5 * kSecond))
      << client->disconnected_calls << " " << client->disconnected_why << " " << store.opened;
  EXPECT_EQ(io->status, Errc::kOk);
  EXPECT_GT(world.now_ns() - began_ns, kSecond) << "it was no slow link";
  EXPECT_TRUE(filled(io->buffer, 2));
  expect_undisturbed();
}

TEST_F(SlowLink, WritesAndReadsAtOnceEndWell) {
  connect();
  slow(kBytesPerMs);
  auto write = client->make_io(Direction::kWrite, 0, kLongBytes);
  auto read = client->make_io(Direction::kRead, 0, kLongBytes);
  client->submit(*write);
  client->submit(*read);
  ASSERT_TRUE(until([&] { return write->done && read->done; }, 10 * kSecond));
  EXPECT_EQ(write->status, Errc::kOk);
  EXPECT_EQ(read->status, Errc::kOk);
  expect_undisturbed();
}

/// Answers keep coming to a client that has nothing more to ask, and their sender's own question
/// waits behind them.
TEST_F(SlowLink, ReadsThatAreAllUnderWayAtOnceEndWell) {
  constexpr uint32_t kBytes = 256 << 10;
  adjust_server = [](ServerOptions& options) {
    options.queue_depth = 32;
    options.max_io_bytes = kBytes;
  };
  connect();
  slow(kBytesPerMs);
  std::vector<std::unique_ptr<Io>> all;
  for (size_t i = 0; i < 16; ++i) {
    all.push_back(client->make_io(Direction::kRead, i * kBytes, kBytes));
    client->submit(*all.back());
  }
  const uint64_t began_ns = world.now_ns();
  const auto done = [&] {
    return std::all_of(all.begin(), all.end(), [](const auto& io) { return io->done; });
  };
  ASSERT_TRUE(until(done, 10 * kSecond));
  EXPECT_GT(world.now_ns() - began_ns, kSecond) << "it was no slow link";
  for (const auto& io : all) EXPECT_EQ(io->status, Errc::kOk);
  expect_undisturbed();
}

TEST_F(SlowLink, ServerThatStopsInTheMiddleOfAWriteIsNoticedAsSoonAsEver) {
  const auto io = begin_write();
  server_host->pause();
  const uint64_t stopped_ns = world.now_ns();
  ASSERT_TRUE(until([&] { return client->disconnected_calls == 1; }, 2 * kSecond));
  EXPECT_LE(client->disconnected_at_ns - stopped_ns, kSecond);
  server_host->resume();
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(io->status, Errc::kOk);
}

TEST_F(SlowLink, ClientThatStopsInTheMiddleOfAWriteIsNoticedWhenItsLastBytesHaveCome) {
  const auto io = begin_write();
  client_host->pause();
  const uint64_t stopped_ns = world.now_ns();
  ASSERT_TRUE(until([&] { return server->server->sessions().empty(); }, 2 * kSecond));
  // A simulated socket holds at most 256 KiB: 90 ms.
  EXPECT_LE(world.now_ns() - stopped_ns, kSecond + 90 * kMillisecond);
  client_host->resume();
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(io->status, Errc::kOk);
}

/// Twelve connections that share a link.
class SharedSlowLink : public SlowLink {
 protected:
  static constexpr uint32_t kBytes = 512 << 10;
  SharedSlowLink() : SlowLink(12) {
    adjust_server = [](ServerOptions& options) {
      options.queue_depth = 64;
      options.max_io_bytes = kBytes;
    };
  }
};

TEST_F(SharedSlowLink, ConnectionsThatShareALinkHaveTheirTurnsInTime) {
  connect();
  slow(6000);
  std::vector<std::unique_ptr<Io>> all;
  for (size_t i = 0; i < reactor_count; ++i) {
    all.push_back(client->make_io(Direction::kWrite, i % 8 * kBytes, kBytes));
    client->submit(*all.back(), i);
  }
  const uint64_t began_ns = world.now_ns();
  ASSERT_TRUE(
      until([&] { return std::all_of(all.begin(), all.end(), [](auto& io) { return io->done; }); },
            10 * kSecond));
  EXPECT_GT(world.now_ns() - began_ns, kSecond) << "it was no slow link";
  for (const auto& io : all) EXPECT_EQ(io->status, Errc::kOk);
  EXPECT_EQ(store.write_log.size(), reactor_count);
  expect_undisturbed();
}

}  // namespace
}  // namespace braid::trs::testing
