// What a listener writes about peers that break its rules as often as they like, in a simulated
// world.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <set>
#include <string>

#include "base/sim.h"
#include "base/stream_socket.h"
#include "base/test_lines.h"
#include "vhca/soft/device.h"
#include "vhca/soft/tcp/connection.h"

namespace braid::vhca::soft::tcp {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;

constexpr const char* kListenerIp = "10.0.0.1";
constexpr const char* kPeerIp = "10.0.0.2";
constexpr const char* kNetworkOf = "2001:db8:1:2::";  // 64 bits of it

/// For want of descriptors, say, nobody is accepted.
class FullListener final : public base::StreamListener {
 public:
  FullListener(std::unique_ptr<base::StreamListener> inner, int& refusals)
      : inner_(std::move(inner)), refusals_(refusals) {}
  base::Result<std::unique_ptr<base::StreamSocket>> accept() override {
    ++refusals_;
    return base::make_error(Errc::kNoMemory, "no descriptor is left");
  }
  base::SocketAddress address() const override { return inner_->address(); }
  const base::Handle& handle() const override { return inner_->handle(); }

 private:
  const std::unique_ptr<base::StreamListener> inner_;
  int& refusals_;
};

class TcpListeners : public testing::Test {
 protected:
  TcpListeners() {
    world.fabric().add_port(host.machine(), kListenerIp);
    world.fabric().add_port(peer.machine(), kPeerIp);
    host.drive(*reactor);
    auto made = std::make_unique<TcpWire>(host, kListenerIp);
    wire = made.get();
    device = std::move(*SoftDevice::create(host, *reactor, "tcp0", std::move(made)));
  }
  std::unique_ptr<base::StreamSocket> connect(uint16_t port) {
    auto socket = std::move(*peer.connect_stream(kPeerIp, {.ip = kListenerIp, .port = port}));
    EXPECT_TRUE(world.run_until([&] { return socket->connected() == Errc::kOk; }, kSecond));
    return socket;
  }

  std::shared_ptr<base::TestLines> lines = std::make_shared<base::TestLines>();
  base::sim::SimWorld world{{.seed = 1, .timing = {}, .log_sink = lines}};
  base::sim::SimHost& host = world.add_machine("host").start_process("host");
  base::sim::SimHost& peer = world.add_machine("peer").start_process("peer");
  std::unique_ptr<base::Reactor> reactor = std::move(*base::Reactor::create(host, {}));
  TcpWire* wire = nullptr;
  std::unique_ptr<Device> device;
};

TEST_F(TcpListeners, who_talks_nonsense_for_ever_does_not_flood_the_log) {
  const auto listener = std::move(*device->listen(*reactor, {.ip = kListenerIp}, 8));
  const uint64_t begun_ns = world.now_ns();
  const auto talk_nonsense = [&] {
    const auto socket = connect(listener->address().port);
    std::array<std::byte, sizeof(FrameHeader)> nonsense{};
    for (size_t said = 0; said < nonsense.size();) {
      const iovec piece{nonsense.data() + said, nonsense.size() - said};
      size_t sent = 0;
      ASSERT_EQ(socket->send({&piece, 1}, sent), Errc::kOk);
      said += sent;
    }
    world.run_for(kMillisecond);
  };
  for (int i = 0; i < 500; ++i) talk_nonsense();
  EXPECT_GE(lines->with("refused a connection from"), 10u) << "a burst is told";
  EXPECT_LE(lines->with("refused a connection from"),
            11 + (world.now_ns() - begun_ns) * 10 / kSecond);
  world.run_for(kSecond);
  talk_nonsense();
  EXPECT_GE(lines->with("lines of this kind were not logged"), 1u) << "and how many are not";
}

TEST_F(TcpListeners, who_waits_while_nobody_can_be_accepted_does_not_flood_the_log) {
  auto inner = std::move(*host.listen_stream({.ip = kListenerIp}, 8));
  const uint16_t port = inner->address().port;
  int refusals = 0;
  TcpListener listener(*wire, dynamic_cast<SoftDevice&>(*device), *reactor,
                       std::make_unique<FullListener>(std::move(inner), refusals), 8,
                       std::make_shared<RequestQueue>(*reactor));
  const auto socket = connect(port);
  world.run_for(10 * kSecond);
  EXPECT_GT(refusals, 400) << "it tries again and again";
  EXPECT_GE(lines->with("no descriptor is left"), 10u);
  EXPECT_LE(lines->with("no descriptor is left"), 10u + 10u * 10u + 1u);
}

TEST_F(TcpListeners, who_connects_from_a_whole_network_and_says_nothing_has_one_bound) {
  world.fabric().add_port(host.machine(), "2001:db8:9:9::1");
  const auto listener = std::move(*device->listen(*reactor, {.ip = "2001:db8:9:9::1"}, 8));
  std::set<std::string> ports;
  const auto connect_from = [&](const std::string& ip) {
    if (ports.insert(ip).second) world.fabric().add_port(peer.machine(), ip);
    const base::SocketAddress to = {.ip = "2001:db8:9:9::1", .port = listener->address().port};
    auto socket = std::move(*peer.connect_stream(ip, to));
    EXPECT_TRUE(world.run_until([&] { return socket->connected() == Errc::kOk; }, kSecond));
    return socket;
  };
  const auto over = [](base::StreamSocket& socket) {
    std::byte byte;
    const iovec piece{&byte, 1};
    size_t received = 0;
    return socket.receive({&piece, 1}, received) == Errc::kDisconnected;
  };
  const auto stranger = connect_from("2001:db8:1:3::1");
  std::vector<std::unique_ptr<base::StreamSocket>> silent;
  for (int i = 0; i < 128; ++i)
    silent.push_back(connect_from(kNetworkOf + std::to_string(i % 4 + 1)));
  world.run_for(kMillisecond);
  EXPECT_FALSE(over(*silent.front()));
  silent.push_back(connect_from(kNetworkOf + std::string("5")));
  world.run_for(kMillisecond);
  EXPECT_TRUE(over(*silent.front())) << "the oldest of its network";
  EXPECT_FALSE(over(*silent[1]));
  EXPECT_FALSE(over(*stranger)) << "it is of another one";
}

}  // namespace
}  // namespace braid::vhca::soft::tcp
