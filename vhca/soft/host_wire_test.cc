// One device for peers here and elsewhere: which wire an address takes, one listener for both.
#include "vhca/soft/host_wire.h"

#include <gtest/gtest.h>

#include "base/linux_host.h"
#include "base/log.h"
#include "base/reactor.h"
#include "vhca/soft/device.h"

namespace braid::vhca {
namespace {

using base::Errc;
using base::Task;

class HostDevices : public ::testing::Test {
 protected:
  static std::unique_ptr<base::Host> quiet_host() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    return std::move(*base::create_linux_host(options));
  }
  std::unique_ptr<Device> device(const HostDeviceOptions& options) {
    return std::move(*create_host_device(*host, *reactor, options));
  }
  /// A QP with all that it needs.
  struct End {
    explicit End(Device& device)
        : pd(std::move(*device.alloc_pd())), cq(std::move(*device.create_cq({.capacity = 8}))) {
      QpOptions options;
      options.send_cq = options.recv_cq = cq.get();
      qp = std::move(*pd->create_qp(options));
    }
    ~End() {
      connection.reset();
      qp.reset();
    }
    std::unique_ptr<Pd> pd;
    std::unique_ptr<Cq> cq;
    std::unique_ptr<Qp> qp;
    std::unique_ptr<Connection> connection;
  };
  static Task<void> accept(Listener& listener, base::Reactor& reactor, End& end) {
    auto request = co_await listener.next();
    if (!request.ok()) co_return;
    const ConnectParameters parameters;
    auto accepted = co_await (*request)->accept(reactor, *end.qp, parameters);
    EXPECT_TRUE(accepted.ok()) << accepted.error().message();
    if (accepted.ok()) end.connection = std::move(*accepted);
  }
  base::Result<ConnectResult> connect(Device& from, End& end, const Address& to) {
    return reactor->run_until_done(
        from.connect(*reactor, *end.qp, to, ConnectParameters{}, 10 * base::kSecond));
  }

  const std::unique_ptr<base::Host> host = quiet_host();
  const std::unique_ptr<base::Reactor> reactor = std::move(*base::Reactor::create(*host, {}));
};

TEST_F(HostDevices, one_listener_takes_peers_of_both_wires) {
  const auto server = device({.listen_tcp = true});
  const auto here = device({});
  const auto by_tcp = device({.tcp_within_host = true});
  auto listener = std::move(*server->listen(*reactor, {.ip = "127.0.0.1", .port = 0}, 4));
  for (Device* const client : {here.get(), by_tcp.get()}) {
    End there(*server);
    End end(*client);
    reactor->spawn(accept(*listener, *reactor, there));
    auto connected = connect(*client, end, listener->address());
    ASSERT_TRUE(connected.ok()) << connected.error().message();
    end.connection = std::move(connected->connection);
    ASSERT_NE(end.connection, nullptr);
    const bool tcp = client == by_tcp.get();
    EXPECT_EQ(end.connection->peer_text().find("process") == std::string::npos, tcp)
        << end.connection->peer_text();
    while (there.connection == nullptr) reactor->turn();
  }
}

// A stream that is at work on memory may have resolved its key, or be filling a receive.
TEST_F(HostDevices, deregistration_waits_for_streams) {
  const auto made = device({.listen_tcp = true});
  auto& wire = static_cast<soft::HostWire&>(static_cast<soft::SoftDevice&>(*made).wire());
  const std::shared_ptr<soft::tcp::Activity> stream = wire.tcp().add_activity();
  const auto pd = std::move(*made->alloc_pd());
  std::vector<std::byte> memory(4096);
  for (const int access :
       {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, +IBV_ACCESS_LOCAL_WRITE}) {
    bool gone = false;
    auto mr = std::move(*pd->reg_mr(memory.data(), memory.size(), access));
    ++stream->count;
    pd->dereg_mr(std::move(mr), std::shared_ptr<void>(nullptr, [&gone](void*) { gone = true; }));
    for (int i = 0; i < 10; ++i) reactor->turn();
    EXPECT_FALSE(gone) << access;
    ++stream->count;
    const uint64_t deadline_ns = host->now_ns() + 30 * base::kSecond;
    while (!gone && host->now_ns() < deadline_ns) reactor->turn();
    EXPECT_TRUE(gone) << access;
  }
}

TEST_F(HostDevices, without_being_told_a_listener_takes_nobody_by_tcp) {
  const auto server = device({});
  const auto by_tcp = device({.tcp_within_host = true});
  auto listener = std::move(*server->listen(*reactor, {.ip = "127.0.0.1", .port = 0}, 4));
  End end(*by_tcp);
  EXPECT_EQ(connect(*by_tcp, end, listener->address()).code(), Errc::kRefused);
}

TEST_F(HostDevices, an_address_is_listened_on_by_one_and_free_again_after) {
  const auto server = device({.listen_tcp = true});
  auto listener = std::move(*server->listen(*reactor, {.ip = "127.0.0.1", .port = 0}, 4));
  const Address address = listener->address();
  EXPECT_NE(address.port, 0);
  EXPECT_EQ(server->listen(*reactor, address, 4).code(), Errc::kExists);
  listener.reset();
  EXPECT_TRUE(server->listen(*reactor, address, 4).ok());
}

TEST_F(HostDevices, the_kind_says_which_wires_there_are) {
  EXPECT_EQ(device({})->info().kind, "software HCA, shared memory inside this host, TCP to others");
  EXPECT_EQ(device({.listen_tcp = true})->info().kind,
            "software HCA, shared memory inside this host, TCP to and from others");
  EXPECT_EQ(device({.tcp_within_host = true})->info().kind, "software HCA, TCP");
}

}  // namespace
}  // namespace braid::vhca
