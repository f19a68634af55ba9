// Processes that flood the in-host connection manager, by real sockets: others still connect, and
// one turn of the reactor takes only so much.
#include <poll.h>

#include "vhca/soft/device.h"
#include "vhca/soft/inhost/channel.h"
#include "vhca/soft/inhost/listener.h"
#include "vhca/soft/inhost/party_test.h"
#include "vhca/soft/inhost/rendezvous.h"
#include "vhca/soft/inhost/wire.h"

namespace braid::vhca::soft::inhost {
namespace {

using Tell = std::function<void(uint32_t)>;

std::unique_ptr<base::Host> quiet_host() {
  base::LinuxHostOptions options;
  options.log_sink = base::make_null_sink();
  return std::move(*base::create_linux_host(options));
}

/// A connected socket; the listener's backlog in the kernel may be full for a while.
std::unique_ptr<base::LocalSocket> dial(base::Host& host, const std::string& name) {
  for (;;) {
    auto socket = host.connect_local(name);
    if (socket.ok()) return std::move(*socket);
    BRAID_ASSERT(socket.code() == base::Errc::kWouldBlock);
    host.yield();
  }
}

/// A process that connects so often, says nothing, and waits to be killed.
int stay_silent(const std::string& name, int connects, const Tell& tell) {
  const auto host = quiet_host();
  std::vector<std::unique_ptr<base::LocalSocket>> sockets;
  for (int i = 0; i < connects; ++i) sockets.push_back(dial(*host, name));
  tell(0);
  for (;;) ::pause();
}

/// A process that connects again and again, says nothing, and keeps the newest.
int connect_without_end(const std::string& name, const Tell& tell) {
  const auto host = quiet_host();
  std::array<std::unique_ptr<base::LocalSocket>, 100> newest;
  for (uint32_t i = 0;; ++i) {
    newest[i % newest.size()] = dial(*host, name);
    if (i == 1000) tell(i);
  }
}

/// A process that connects as others do, and then writes without end.
int write_without_end(const std::string& name, const Tell& tell) {
  constexpr uint32_t kEntries = 4;
  const auto host = quiet_host();
  const auto socket = dial(*host, name);
  const auto table = std::move(*host->create_segment(kEntries * sizeof(MrEntry), "table"));
  CmMessage request;
  request.kind = CmKind::kRequest;
  request.end.device = {1};
  request.end.qp_number = 77;
  request.end.geometry = Geometry::for_receives(16, 4096, 1);
  request.end.mr_capacity = kEntries;
  request.private_data.resize(sizeof(Exposed));
  const auto inbound =
      std::move(*host->create_segment(request.end.geometry.total_bytes(), "inbound"));
  const std::array<const base::Handle*, 2> handles = {&table->handle(), &inbound->handle()};
  BRAID_ASSERT(socket->send(encode_cm_message(request), handles).ok());
  const std::vector<std::byte> ready = encode_cm_message({.kind = CmKind::kReady});
  for (uint32_t written = 0;;) {
    const base::Status sent = socket->send(ready);
    if (sent.ok() && ++written == 10'000) tell(written);
    if (!sent.ok() && sent.error().code() != base::Errc::kWouldBlock) return 1;
  }
}

std::string name_of(const Party& party) {
  return listener_name("127.0.0.1", party.listener->address().port);
}

/// Whether the peer has hung up.
bool hung_up(base::LocalSocket& socket) {
  std::array<std::byte, kCmMessageMax> buffer;
  std::vector<std::unique_ptr<base::Handle>> handles;
  return socket.receive(buffer, handles).code() == base::Errc::kDisconnected;
}

/// The client connects to where the server listens; both on this thread.
bool connect_beside(Party& client, Party& server) {
  client.make_qp();
  server.make_qp();
  auto accepting = [](Party& party) -> base::Task<base::Status> {
    auto request = co_await party.listener->next();
    if (!request.ok()) co_return request.error();
    const Exposed mine = party.exposed();
    ConnectParameters parameters;
    parameters.private_data = std::as_bytes(std::span(&mine, 1));
    auto result = co_await request.value()->accept(*party.reactor, *party.qp, parameters);
    if (!result.ok()) co_return result.error();
    party.connection = std::move(result).value();
    co_return base::ok_status();
  };
  auto connecting = [](Party& party, Address address) -> base::Task<base::Status> {
    const Exposed mine = party.exposed();
    ConnectParameters parameters;
    parameters.private_data = std::as_bytes(std::span(&mine, 1));
    auto result = co_await party.device->connect(*party.reactor, *party.qp, address, parameters,
                                                 20 * base::kSecond);
    if (!result.ok()) co_return result.error();
    party.connection = std::move(result.value().connection);
    party.learn_peer();
    co_return base::ok_status();
  };
  base::Task<base::Status> accepted = accepting(server);
  base::Task<base::Status> connected = connecting(client, server.listener->address());
  accepted.start();
  connected.start();
  const bool over = client.run_until([&] {
    server.reactor->turn();
    return connected.done() && (accepted.done() || client.connection == nullptr);
  });
  return over && accepted.done() && accepted.take().ok() && client.connection != nullptr;
}

TEST(InHostFloodTest, AClientConnectsThoughAProcessFillsTheListenerWithSilentConnects) {
  Party client, server;
  server.listen();
  const std::string name = name_of(server);
  const auto slow = dial(*client.host, name);  // of an honest process, and silent for a while
  Child flooder([&](const Tell& tell) { return stay_silent(name, 400, tell); });
  ASSERT_TRUE(client.run_until([&] {
    server.reactor->turn();
    return flooder.told();
  }));
  EXPECT_TRUE(connect_beside(client, server)) << "the newcomer was hung up on";
  EXPECT_FALSE(hung_up(*slow)) << "who has one only goes before who has hundreds";
}

TEST(InHostFloodTest, AClientConnectsWhileAProcessConnectsWithoutEnd) {
  Party client, server;
  server.listen();
  Child flooder([&](const Tell& tell) { return connect_without_end(name_of(server), tell); });
  ASSERT_TRUE(client.run_until([&] {
    server.reactor->turn();
    return flooder.told();
  }));
  EXPECT_TRUE(connect_beside(client, server));
}

TEST(InHostFloodTest, AClientConnectsWhileAChannelIsWrittenToWithoutEnd) {
  Party client, server;
  server.listen();
  Child flooder([&](const Tell& tell) { return write_without_end(name_of(server), tell); });
  server.make_qp();
  ASSERT_TRUE(server.accept().ok());
  const auto flooded_qp = std::move(server.qp);
  const auto flooded = std::move(server.connection);
  ASSERT_TRUE(server.run_until([&] { return flooder.told(); }));
  EXPECT_TRUE(connect_beside(client, server));
  EXPECT_FALSE(flooded->disconnected()) << "the test was about a channel that is read";
}

/// Counts what is asked of a listener.
class CountingListener final : public base::LocalListener {
 public:
  CountingListener(std::unique_ptr<base::LocalListener> inner, int& accepted)
      : inner_(std::move(inner)), accepted_(accepted) {}
  base::Result<std::unique_ptr<base::LocalSocket>> accept() override {
    auto socket = inner_->accept();
    if (socket.ok()) ++accepted_;
    return socket;
  }
  const base::Handle& handle() const override { return inner_->handle(); }

 private:
  const std::unique_ptr<base::LocalListener> inner_;
  int& accepted_;
};

TEST(InHostFloodTest, ATurnAcceptsSoManyAndTheNextTheRest) {
  constexpr int kConnects = 100;  // fit in the kernel's backlog
  const auto host = quiet_host();
  const auto reactor = std::move(*base::Reactor::create(*host, {}));
  auto made = std::make_unique<InHostWire>(*host, InHostWire::Options{});
  InHostWire& wire = *made;
  const auto device = std::move(*SoftDevice::create(*host, *reactor, "soft", std::move(made)));
  BoundListener bound = std::move(*bind_listener(*host, {.ip = "127.0.0.1"}));
  const std::string name = listener_name(bound.address.ip, bound.address.port);
  int accepted = 0;
  bound.socket = std::make_unique<CountingListener>(std::move(bound.socket), accepted);
  InHostListener listener(wire, dynamic_cast<SoftDevice&>(*device), *reactor, std::move(bound), 8,
                          std::make_shared<RequestQueue>(*reactor));
  std::vector<std::unique_ptr<base::LocalSocket>> sockets;
  for (int i = 0; i < kConnects; ++i) sockets.push_back(dial(*host, name));
  const uint64_t deadline_ns = host->now_ns() + 30 * base::kSecond;
  while (accepted < kConnects && host->now_ns() < deadline_ns) {
    const int before = accepted;
    reactor->turn();
    ASSERT_LE(accepted - before, kAcceptsPerTurn);
  }
  EXPECT_EQ(accepted, kConnects);
}

/// A socket whose peer writes one more message whenever one is read, for long.
class EndlessSocket final : public base::LocalSocket {
 public:
  EndlessSocket(std::unique_ptr<base::LocalSocket> inner, base::LocalSocket& peer, int& reads)
      : inner_(std::move(inner)), peer_(peer), reads_(reads) {}
  base::Status send(std::span<const std::byte> message,
                    std::span<const base::Handle* const> handles) override {
    return inner_->send(message, handles);
  }
  base::Result<size_t> receive(std::span<std::byte> buffer,
                               std::vector<std::unique_ptr<base::Handle>>& handles) override {
    if (++reads_ < 10'000) BRAID_ASSERT(peer_.send(ready_).ok());
    return inner_->receive(buffer, handles);
  }
  base::PeerIdentity peer() const override { return inner_->peer(); }
  const base::Handle& handle() const override { return inner_->handle(); }

 private:
  const std::unique_ptr<base::LocalSocket> inner_;
  base::LocalSocket& peer_;
  int& reads_;
  const std::vector<std::byte> ready_ = encode_cm_message({.kind = CmKind::kReady});
};

TEST(InHostFloodTest, ATurnReadsSoManyMessagesOfAChannelThatIsWrittenToWithoutEnd) {
  const auto host = quiet_host();
  const auto reactor = std::move(*base::Reactor::create(*host, {}));
  const BoundListener bound = std::move(*bind_listener(*host, {.ip = "127.0.0.1"}));
  const auto writer = dial(*host, listener_name(bound.address.ip, bound.address.port));
  int reads = 0;
  const auto channel = std::make_shared<Channel>(
      *reactor,
      std::make_unique<EndlessSocket>(std::move(*bound.socket->accept()), *writer, reads));
  channel->start();
  ASSERT_TRUE(writer->send(encode_cm_message({.kind = CmKind::kReady})).ok());
  const uint64_t deadline_ns = host->now_ns() + 30 * base::kSecond;
  for (int turns = 0; turns < 100 && host->now_ns() < deadline_ns;) {
    const int before = reads;
    reactor->turn();
    EXPECT_LE(reads - before, kMessagesPerTurn);
    if (reads > before) ++turns;
  }
  EXPECT_EQ(reads, 100 * kMessagesPerTurn) << "it goes on by itself";
  channel->shut_down();
}

/// What was announced is in the socket, behind more than is read at once.
TEST(InHostFloodTest, ASegmentAnnouncedBehindManyOthersIsFoundByLaterPolls) {
  constexpr int kSegments = 3 * kMessagesPerTurn;
  Party client, server;
  ASSERT_TRUE(connect_pair(client, server));
  std::vector<std::pair<std::unique_ptr<base::Segment>, std::unique_ptr<Mr>>> late(kSegments);
  for (auto& [segment, mr] : late) {
    segment = std::move(*server.host->create_segment(4096, "late"));
    mr = std::move(*server.pd->reg_mr(segment->data(), 4096,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  }
  client.peer = {reinterpret_cast<uint64_t>(late.back().first->data()), late.back().second->rkey,
                 4096};
  client.buffer[0] = std::byte{42};
  ASSERT_EQ(client.post_send(IBV_WR_RDMA_WRITE, 1, 0, 1), 0);
  const std::optional<Wc> wc = client.next();
  ASSERT_TRUE(wc.has_value());
  EXPECT_EQ(wc->status, IBV_WC_SUCCESS);
  EXPECT_EQ(late.back().first->data()[0], std::byte{42});
}

}  // namespace
}  // namespace braid::vhca::soft::inhost
