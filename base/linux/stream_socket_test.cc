// TCP sockets: bytes in order, readiness, refusal, the end of the peer, addresses.
#include "base/linux/stream_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <climits>
#include <cstring>

#include "base/linux/test_support.h"

namespace braid::base {
namespace {

class StreamSocketTest : public testing::TestWithParam<const char*> {
 public:
  void SetUp() override {
    auto listening = host->listen_stream({.ip = GetParam(), .port = 0}, 16);
    if (!listening.ok()) GTEST_SKIP() << listening.error().message();
    listener = std::move(*listening);
    client = std::move(*host->connect_stream(GetParam(), listener->address()));
    ASSERT_TRUE(wait([&] { return client->connected() != Errc::kWouldBlock; }));
    ASSERT_EQ(client->connected(), Errc::kOk);
    ASSERT_TRUE(wait([&] {
      auto accepted = listener->accept();
      if (accepted.ok()) server = std::move(*accepted);
      return server != nullptr;
    }));
  }
  bool wait(const std::function<bool()>& done) {
    const uint64_t deadline_ns = host->now_ns() + 60 * kSecond;
    while (!done()) {
      if (host->now_ns() > deadline_ns) return false;
      host->yield();
    }
    return true;
  }
  Errc send(StreamSocket& from, std::string_view text, size_t& sent) {
    const iovec piece{const_cast<char*>(text.data()), text.size()};
    return from.send({&piece, 1}, sent);
  }

  std::unique_ptr<Host> host = quiet_linux_host();
  std::unique_ptr<StreamListener> listener;
  std::unique_ptr<StreamSocket> client, server;
};

INSTANTIATE_TEST_SUITE_P(Families, StreamSocketTest, testing::Values("127.0.0.1", "::1"),
                         [](const auto& each) {
                           return std::string(each.param) == "::1" ? "v6" : "v4";
                         });

TEST_P(StreamSocketTest, pieces_arrive_in_order_and_fill_pieces) {
  iovec out[2] = {{const_cast<char*>("hello "), 6}, {const_cast<char*>("world"), 5}};
  size_t sent = 0;
  ASSERT_EQ(client->send(out, sent), Errc::kOk);
  EXPECT_EQ(sent, 11u);
  char first[4] = {};
  char rest[20] = {};
  iovec in[2] = {{first, 4}, {rest, 20}};
  size_t received = 0;
  ASSERT_TRUE(wait([&] { return server->receive(in, received) == Errc::kOk; }));
  EXPECT_EQ(received, 11u);
  EXPECT_EQ(std::string(first, 4) + rest, "hello world");
  EXPECT_EQ(server->receive(in, received), Errc::kWouldBlock);
}

TEST_P(StreamSocketTest, both_ends_know_both_addresses) {
  EXPECT_EQ(client->peer().ip, GetParam());
  EXPECT_EQ(client->peer().port, listener->address().port);
  EXPECT_EQ(client->local().ip, GetParam());
  EXPECT_EQ(server->peer().port, client->local().port);
  EXPECT_EQ(server->local().port, listener->address().port);
}

TEST_P(StreamSocketTest, a_full_socket_is_writable_again_when_the_peer_reads) {
  const std::string much(1 << 20, 'x');
  size_t total = 0;
  size_t sent = 0;
  while (send(*client, much, sent) == Errc::kOk) total += sent;
  ASSERT_GT(total, 0u);
  auto queue = std::move(*host->create_io_queue());
  Watch watch;
  bool writable = false;
  watch.context = &writable;
  watch.ready = [](Watch& each) { *static_cast<bool*>(each.context) = true; };
  queue->watch_writable(client->handle(), watch);
  queue->poll();
  EXPECT_FALSE(writable);
  std::string buffer(1 << 20, ' ');
  size_t left = total;
  ASSERT_TRUE(wait([&] {
    const iovec piece{buffer.data(), buffer.size()};
    size_t received = 0;
    if (server->receive({&piece, 1}, received) == Errc::kOk) left -= received;
    queue->poll();
    return writable && left == 0;
  }));
  queue->unwatch(watch);
}

TEST_P(StreamSocketTest, what_was_sent_before_the_end_is_received_first) {
  size_t sent = 0;
  ASSERT_EQ(send(*client, "last", sent), Errc::kOk);
  client.reset();
  char buffer[16];
  const iovec piece{buffer, sizeof buffer};
  size_t received = 0;
  ASSERT_TRUE(wait([&] { return server->receive({&piece, 1}, received) == Errc::kOk; }));
  EXPECT_EQ(std::string(buffer, received), "last");
  ASSERT_TRUE(wait([&] { return server->receive({&piece, 1}, received) != Errc::kWouldBlock; }));
  EXPECT_EQ(server->receive({&piece, 1}, received), Errc::kDisconnected);
  // No signal, whatever was sent before.
  ASSERT_TRUE(wait([&] { return send(*server, "x", sent) == Errc::kDisconnected; }));
}

TEST_P(StreamSocketTest, half_an_end_leaves_the_other_direction) {
  client->shut_down_send();
  char buffer[16];
  const iovec piece{buffer, sizeof buffer};
  size_t bytes = 0;
  ASSERT_TRUE(wait([&] { return server->receive({&piece, 1}, bytes) == Errc::kDisconnected; }));
  ASSERT_EQ(send(*server, "answer", bytes), Errc::kOk);
  ASSERT_TRUE(wait([&] { return client->receive({&piece, 1}, bytes) == Errc::kOk; }));
  EXPECT_EQ(std::string(buffer, bytes), "answer");
}

TEST_P(StreamSocketTest, shut_down_is_heard_by_whoever_watches_and_by_the_peer) {
  auto queue = std::move(*host->create_io_queue());
  Watch watch;
  bool readable = false;
  watch.context = &readable;
  watch.ready = [](Watch& each) { *static_cast<bool*>(each.context) = true; };
  queue->watch_readable(client->handle(), watch);
  queue->poll();
  EXPECT_FALSE(readable);
  size_t bytes = 0;
  ASSERT_EQ(send(*client, "last", bytes), Errc::kOk);
  client->shut_down();
  EXPECT_TRUE(wait([&] {
    queue->poll();
    return readable;
  }));
  queue->unwatch(watch);
  EXPECT_EQ(send(*client, "x", bytes), Errc::kDisconnected);
  char buffer[16];
  const iovec piece{buffer, sizeof buffer};
  EXPECT_EQ(client->receive({&piece, 1}, bytes), Errc::kDisconnected);
  ASSERT_TRUE(wait([&] { return server->receive({&piece, 1}, bytes) == Errc::kOk; }));
  EXPECT_EQ(std::string(buffer, bytes), "last");
  ASSERT_TRUE(wait([&] { return server->receive({&piece, 1}, bytes) != Errc::kWouldBlock; }));
  EXPECT_EQ(server->receive({&piece, 1}, bytes), Errc::kDisconnected);
}

// The kernel ends a silent connection at the first probe's turn behind the user time-out.
TEST_P(StreamSocketTest, no_single_lost_segment_or_probe_ends_a_connection) {
  const auto option = [&](int level, int name) {
    int value = 0;
    socklen_t length = sizeof value;
    EXPECT_EQ(::getsockopt(client->handle().fd(), level, name, &value, &length), 0);
    return value;
  };
  for (const uint64_t wanted : {kMillisecond, 4 * kSecond, 30 * kSecond, 900 * kSecond}) {
    client->set_user_timeout(wanted);
    const int timeout_ms = option(IPPROTO_TCP, TCP_USER_TIMEOUT);
    EXPECT_GE(static_cast<uint64_t>(timeout_ms) * kMillisecond, wanted);
    const int idle_s = option(IPPROTO_TCP, TCP_KEEPIDLE);
    const int interval_s = option(IPPROTO_TCP, TCP_KEEPINTVL);
    EXPECT_GT(timeout_ms, 1000 * (idle_s + 2 * interval_s)) << "two probes may be lost";
    EXPECT_GT(timeout_ms, 3000) << "0.2 + 0.4 + 0.8 + 1.6 s: four transmissions";
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
  }
  client->set_user_timeout(0);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), INT_MAX);
  EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 0);
}

TEST_P(StreamSocketTest, an_address_is_listened_on_by_one) {
  EXPECT_EQ(host->listen_stream(listener->address(), 1).code(), Errc::kExists);
}

TEST_P(StreamSocketTest, nobody_listens_is_refused) {
  const SocketAddress address = listener->address();
  listener.reset();
  auto refused = host->connect_stream("", address);
  if (refused.ok()) {
    Errc result = Errc::kWouldBlock;
    ASSERT_TRUE(wait([&] {
      result = (*refused)->connected();
      return result != Errc::kWouldBlock;
    }));
    EXPECT_EQ(result, Errc::kRefused);
  } else {
    EXPECT_EQ(refused.code(), Errc::kRefused);
  }
}

TEST(StreamSockets, addresses_that_are_none_are_refused_by_name) {
  auto host = quiet_linux_host();
  const auto bad = host->listen_stream({.ip = "localhost", .port = 1}, 1);
  EXPECT_EQ(bad.code(), Errc::kInvalid);
  EXPECT_NE(bad.error().message().find("localhost"), std::string::npos);
  EXPECT_EQ(host->connect_stream("", {.ip = "1.2.3", .port = 1}).code(), Errc::kInvalid);
  // 192.0.2.0/24 is nobody's.
  EXPECT_EQ(host->listen_stream({.ip = "192.0.2.1", .port = 0}, 1).code(), Errc::kNotFound);
}

}  // namespace
}  // namespace braid::base
