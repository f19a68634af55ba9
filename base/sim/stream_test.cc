// Simulated streams: bytes whole and in order whatever is cut, delayed and lost, and the ends.
#include "base/sim/stream.h"

#include <gtest/gtest.h>

#include "base/reactor.h"
#include "base/sim/host.h"
#include "base/sim/world.h"

namespace braid::base::sim {
namespace {

class SimStreams : public ::testing::TestWithParam<uint64_t> {
 protected:
  SimStreams() {
    world.fabric().add_port(a, "10.0.0.1");
    world.fabric().add_port(b, "10.0.0.2");
    listener = std::move(*pb.listen_stream({.ip = "10.0.0.2", .port = 7}, 4));
    client = std::move(*pa.connect_stream("10.0.0.1", {.ip = "10.0.0.2", .port = 7}));
    EXPECT_TRUE(world.run_until([&] { return client->connected() == Errc::kOk; }, kSecond));
    auto accepted = listener->accept();
    EXPECT_TRUE(accepted.ok());
    server = std::move(*accepted);
  }
  /// As much as goes now.
  void pump(StreamSocket& from, size_t& at, size_t end) {
    std::byte bytes[3000];
    for (;;) {
      const size_t count = std::min(sizeof bytes, end - at);
      for (size_t i = 0; i < count; ++i) bytes[i] = pattern(at + i);
      const iovec piece{bytes, count};
      size_t sent = 0;
      if (count == 0 || from.send({&piece, 1}, sent) != Errc::kOk) return;
      at += sent;
    }
  }
  void drain(StreamSocket& to, size_t& at) {
    std::byte bytes[5000];
    const iovec pieces[2] = {{bytes, 7}, {bytes + 7, sizeof bytes - 7}};
    size_t received = 0;
    while (to.receive(pieces, received) == Errc::kOk) {
      for (size_t i = 0; i < received; ++i) ASSERT_EQ(bytes[i], pattern(at + i)) << at + i;
      at += received;
    }
  }
  static std::byte pattern(size_t at) {
    return static_cast<std::byte>((at * 31 + at / 256) & 0xff);
  }
  void tick() {
    world.after(100 * kMicrosecond, [this] { tick(); });
  }
  Errc receive(StreamSocket& from) {
    std::byte byte;
    const iovec piece{&byte, 1};
    size_t received = 0;
    return from.receive({&piece, 1}, received);
  }
  Errc send(StreamSocket& from) {
    std::byte byte{7};
    const iovec piece{&byte, 1};
    size_t sent = 0;
    return from.send({&piece, 1}, sent);
  }

  SimWorld world{{.seed = GetParam()}};
  SimMachine& a = world.add_machine("a");
  SimMachine& b = world.add_machine("b");
  SimHost& pa = a.start_process("pa");
  SimHost& pb = b.start_process("pb");
  std::unique_ptr<StreamListener> listener;
  std::unique_ptr<StreamSocket> client, server;
};

INSTANTIATE_TEST_SUITE_P(Seeds, SimStreams, ::testing::Range<uint64_t>(1, 9));

TEST_P(SimStreams, bytes_arrive_whole_and_in_order_both_ways_over_a_bad_network) {
  constexpr size_t kBytes = 300'000;
  world.fabric().set_extra_delay("10.0.0.1", "10.0.0.2", kMillisecond);
  client->set_user_timeout(10 * kSecond);
  server->set_user_timeout(10 * kSecond);
  size_t out[2] = {}, in[2] = {};
  tick();
  world.after(5 * kMillisecond,
              [&] { world.fabric().set_black_hole("10.0.0.1", "10.0.0.2", true); });
  world.after(90 * kMillisecond, [&] { world.fabric().heal_all(); });
  ASSERT_TRUE(world.run_until(
      [&] {
        pump(*client, out[0], kBytes);
        pump(*server, out[1], kBytes);
        drain(*server, in[0]);
        drain(*client, in[1]);
        return in[0] == kBytes && in[1] == kBytes;
      },
      60 * kSecond));
}

TEST_P(SimStreams, a_reader_that_does_not_read_stops_the_sender) {
  size_t out = 0, in = 0;
  pump(*client, out, 10 << 20);
  EXPECT_LE(out, 256u * 1024);
  EXPECT_EQ(send(*client), Errc::kWouldBlock);
  world.run_for(kSecond);
  EXPECT_EQ(send(*client), Errc::kWouldBlock);
  drain(*server, in);
  EXPECT_EQ(in, out);
  world.run_for(kSecond);
  EXPECT_EQ(send(*client), Errc::kOk);
}

// As Linux: the user time-out also runs while the peer's window is closed.
TEST_P(SimStreams, a_reader_that_does_not_read_for_the_user_timeout_is_lost) {
  client->set_user_timeout(4 * kSecond);
  size_t out = 0, in = 0;
  pump(*client, out, 10 << 20);
  for (int i = 0; i < 3; ++i) {  // one that reads now and then is not
    world.run_for(3 * kSecond);
    ASSERT_EQ(send(*client), Errc::kWouldBlock) << i;
    drain(*server, in);
    world.run_for(10 * kMillisecond);
    pump(*client, out, 10 << 20);
  }
  world.run_for(9 * kSecond);
  EXPECT_EQ(send(*client), Errc::kTimedOut);
  EXPECT_EQ(receive(*client), Errc::kTimedOut);
  drain(*server, in);
  EXPECT_EQ(receive(*server), Errc::kDisconnected);
}

TEST_P(SimStreams, without_a_user_timeout_everything_is_waited_for) {
  client->set_user_timeout(0);
  size_t out = 0, in = 0;
  pump(*client, out, 10 << 20);
  world.run_for(100 * kSecond);
  EXPECT_EQ(send(*client), Errc::kWouldBlock);
  drain(*server, in);
  world.run_for(10 * kMillisecond);
  world.fabric().set_black_hole("10.0.0.1", "10.0.0.2", true);
  ASSERT_EQ(send(*client), Errc::kOk);
  world.run_for(100 * kSecond);
  world.fabric().heal_all();
  world.run_for(120 * kSecond);  // what it waits at most before it repeats
  EXPECT_EQ(receive(*server), Errc::kOk);
}

// As Linux: after 200 ms at the least, then after twice the time, whatever the user time-out is.
TEST_P(SimStreams, what_is_lost_is_repeated_soon_and_then_ever_more_slowly) {
  client->set_user_timeout(StreamSocket::kUserTimeoutMinNs);
  const auto lose_for = [&](uint64_t lost_ns, uint64_t repeated_ns) {
    world.fabric().set_black_hole("10.0.0.1", "10.0.0.2", true);
    EXPECT_EQ(send(*client), Errc::kOk);
    world.run_for(lost_ns);
    world.fabric().heal_all();
    const uint64_t missing_ns = repeated_ns - lost_ns;
    EXPECT_FALSE(world.run_until([&] { return receive(*server) == Errc::kOk; }, missing_ns));
    EXPECT_TRUE(world.run_until([&] { return receive(*server) == Errc::kOk; }, missing_ns));
    world.run_for(kMillisecond);
  };
  lose_for(10 * kMillisecond, 190 * kMillisecond);
  lose_for(300 * kMillisecond, 590 * kMillisecond);
  lose_for(10 * kMillisecond, 190 * kMillisecond);
  lose_for(kSecond, 1390 * kMillisecond);
}

TEST_P(SimStreams, shut_down_is_heard_by_whoever_watches_and_by_the_peer) {
  auto reactor = std::move(*Reactor::create(pa, {}));
  pa.drive(*reactor);
  bool readable = false;
  Watch watch;
  watch.context = &readable;
  watch.ready = [](Watch& each) { *static_cast<bool*>(each.context) = true; };
  reactor->io().watch_readable(client->handle(), watch);
  world.run_for(10 * kMillisecond);
  EXPECT_FALSE(readable);
  ASSERT_EQ(send(*client), Errc::kOk);
  client->shut_down();
  EXPECT_TRUE(world.run_until([&] { return readable; }, kSecond));
  reactor->io().unwatch(watch);
  EXPECT_EQ(receive(*client), Errc::kDisconnected);
  EXPECT_EQ(send(*client), Errc::kDisconnected);
  world.run_for(kSecond);
  EXPECT_EQ(receive(*server), Errc::kOk) << "what was sent before";
  EXPECT_EQ(receive(*server), Errc::kDisconnected);
}

TEST_P(SimStreams, what_was_sent_before_the_end_is_received_first) {
  size_t out = 0, in = 0;
  pump(*client, out, 5000);
  const size_t sent = out;
  client.reset();
  world.run_for(kSecond);
  drain(*server, in);
  EXPECT_EQ(in, sent);
  EXPECT_EQ(receive(*server), Errc::kDisconnected);
  EXPECT_EQ(send(*server), Errc::kDisconnected);
}

TEST_P(SimStreams, a_peer_that_is_cut_off_times_out_and_a_dead_one_is_told) {
  client->set_user_timeout(4 * kSecond);
  world.fabric().set_black_hole("10.0.0.1", "10.0.0.2", true);
  ASSERT_EQ(send(*client), Errc::kOk);
  world.run_for(3 * kSecond);
  EXPECT_EQ(receive(*client), Errc::kWouldBlock);
  world.run_for(5 * kSecond);
  EXPECT_EQ(receive(*client), Errc::kTimedOut);
  world.fabric().heal_all();

  auto second = std::move(*pa.connect_stream("", {.ip = "10.0.0.2", .port = 7}));
  ASSERT_TRUE(world.run_until([&] { return second->connected() == Errc::kOk; }, kSecond));
  pb.kill();
  world.run_for(kSecond);
  EXPECT_EQ(receive(*second), Errc::kDisconnected);
}

TEST_P(SimStreams, readiness_is_told_for_as_long_as_it_lasts) {
  auto reactor = std::move(*Reactor::create(pb, {}));
  pb.drive(*reactor);
  struct Reader : Watch {
    StreamSocket* socket = nullptr;
    size_t bytes = 0;
  } reader;
  reader.socket = server.get();
  reader.ready = [](Watch& watch) {  // takes a byte at a time
    auto& self = static_cast<Reader&>(watch);
    std::byte byte;
    const iovec piece{&byte, 1};
    size_t received = 0;
    if (self.socket->receive({&piece, 1}, received) == Errc::kOk) ++self.bytes;
  };
  reactor->io().watch_readable(server->handle(), reader);
  size_t out = 0;
  pump(*client, out, 500);
  EXPECT_TRUE(world.run_until([&] { return reader.bytes == out; }, kSecond)) << reader.bytes;
  reactor->io().unwatch(reader);
}

TEST_P(SimStreams, nobody_listens_is_refused) {
  listener.reset();
  auto refused = std::move(*pa.connect_stream("", {.ip = "10.0.0.2", .port = 7}));
  ASSERT_TRUE(world.run_until([&] { return refused->connected() != Errc::kWouldBlock; }, kSecond));
  EXPECT_EQ(refused->connected(), Errc::kRefused);
}

}  // namespace
}  // namespace braid::base::sim
