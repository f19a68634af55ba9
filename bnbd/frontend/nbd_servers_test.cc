// NBD connections of one remote device, each served on a reactor of its own.
#include "bnbd/frontend/nbd_servers.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "bnbd/frontend/nbd_device.h"
#include "bnbd/test_client_threads.h"

namespace braid::bnbd {
namespace {

constexpr uint32_t kServersBytes = 4096;

class NbdServersTest : public test::ClientThreadsRig, public testing::WithParamInterface<size_t> {
 protected:
  NbdServersTest() : ClientThreadsRig(GetParam()) {}
  ~NbdServersTest() override {
    at_home([&] { servers_.reset(); });
  }
  void serve(unsigned connections) {
    std::vector<UniqueFd> server_ends;
    for (unsigned i = 0; i < connections; ++i) {
      int ends[2];
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      clients_.emplace_back(ends[0]);
      server_ends.emplace_back(ends[1]);
    }
    await([&] { return make_servers(std::move(server_ends)); });
  }
  base::Task<void> make_servers(std::vector<UniqueFd> sockets) {
    NbdServerOptions options;
    options.name = "test";
    auto servers =
        co_await NbdServers::create(home(), *disk_, std::move(options), 8, std::move(sockets));
    EXPECT_TRUE(servers.ok()) << servers.error().message();
    servers_ = std::move(servers).value();
  }
  base::Task<void> drain() { co_await servers_->drained(); }
  void send(size_t connection, NbdCommand command, uint64_t offset, uint32_t length,
            const void* payload = nullptr) {
    NbdRequest request;
    request.magic = kNbdRequestMagic;
    request.command = static_cast<uint16_t>(command);
    request.cookie = ++cookie_;
    request.offset_bytes = offset;
    request.length_bytes = length;
    const int socket = clients_[connection].get();
    ASSERT_EQ(::send(socket, &request, sizeof request, MSG_NOSIGNAL), ssize_t{sizeof request});
    if (payload != nullptr) {
      ASSERT_EQ(::send(socket, payload, length, MSG_NOSIGNAL), ssize_t{length});
    }
  }
  /// Waits for the answer to what was sent last; its error.
  uint32_t answer(size_t connection, void* payload = nullptr, uint32_t length = 0) {
    NbdReply reply;
    const int socket = clients_[connection].get();
    EXPECT_EQ(::recv(socket, &reply, sizeof reply, MSG_WAITALL), ssize_t{sizeof reply});
    EXPECT_EQ(uint64_t{reply.cookie}, cookie_);
    if (payload != nullptr && reply.error == 0) {
      EXPECT_EQ(::recv(socket, payload, length, MSG_WAITALL), ssize_t{length});
    }
    return reply.error;
  }

  std::vector<UniqueFd> clients_;
  std::unique_ptr<NbdServers> servers_;
  uint64_t cookie_ = 0;
};

TEST(NbdConnections, are_one_for_each_reactor_up_to_the_most) {
  EXPECT_EQ(nbd_connections(1, 1), 1u);
  EXPECT_EQ(nbd_connections(4, 2), 4u);
  EXPECT_EQ(nbd_connections(1, 3), 3u);
  EXPECT_EQ(nbd_connections(1, 16), 16u);
  EXPECT_EQ(nbd_connections(1, 17), 16u) << "what check() lets through is the most";
  EXPECT_EQ(nbd_connections(16, 100), 16u);
}

TEST_P(NbdServersTest, each_reactor_serves_its_connections_and_a_flush_is_of_all) {
  open("disk.img");
  const auto connections = static_cast<unsigned>(2 * GetParam());
  serve(connections);
  std::array<char, kServersBytes> block{};
  for (unsigned i = 0; i < connections; ++i) {
    block.fill(static_cast<char>(i + 1));
    send(i, NbdCommand::kWrite, i * kServersBytes, kServersBytes, block.data());
    ASSERT_EQ(answer(i), 0u);
    send((i + 1) % connections, NbdCommand::kFlush, 0, 0);
    ASSERT_EQ(answer((i + 1) % connections), 0u);
  }
  for (unsigned i = 0; i < connections; ++i) {
    const unsigned by = (i + 1) % connections;
    send(by, NbdCommand::kRead, i * kServersBytes, kServersBytes);
    ASSERT_EQ(answer(by, block.data(), kServersBytes), 0u);
    EXPECT_EQ(block.front(), static_cast<char>(i + 1));
  }
  at_home([&] {
    EXPECT_EQ(servers_->reactors(), GetParam());
    EXPECT_EQ(servers_->statistics().requests, 3u * connections);
    EXPECT_EQ(servers_->statistics().errors, 0u);
    EXPECT_TRUE(servers_->alive());
  });
  const RemoteDeviceStatus now = status();
  EXPECT_EQ(now.requests_by_reactor, std::vector<uint64_t>(GetParam(), 6))
      << "two connections, three requests each";
}

TEST_P(NbdServersTest, they_end_together_and_give_everything_back) {
  open("ram");
  serve(static_cast<unsigned>(GetParam()));
  std::array<char, kServersBytes> block{};
  for (size_t i = 0; i < GetParam(); ++i) {
    for (uint64_t j = 0; j < 4; ++j) {
      send(i, NbdCommand::kWrite, (i * 4 + j) * kServersBytes, kServersBytes, block.data());
    }
  }
  at_home([&] { servers_->stop(); });
  await([&] { return drain(); });
  at_home([&] {
    EXPECT_FALSE(servers_->alive());
    EXPECT_EQ(servers_->statistics().in_flight, 0u);
    servers_.reset();
  });
  await([&] { return close_disk(); });
  at_home([&] { disk_.reset(); });
}

TEST_P(NbdServersTest, one_is_alive_while_any_connection_is) {
  open("ram");
  serve(static_cast<unsigned>(GetParam()));
  for (size_t i = 0; i < clients_.size(); ++i) {
    at_home([&] { EXPECT_TRUE(servers_->alive()); });
    clients_[i].reset();
  }
  bool alive = true;
  while (alive) at_home([&] { alive = servers_->alive(); });
}

INSTANTIATE_TEST_SUITE_P(Reactors, NbdServersTest, testing::Values(1, 2, 4),
                         [](const auto& count) { return std::to_string(count.param); });

}  // namespace
}  // namespace braid::bnbd
