// Local sockets: message boundaries, handles, identity, the end of the peer.
#include "base/linux/local_socket.h"

#include <sys/resource.h>

#include <cstring>

#include "base/linux/test_support.h"

namespace braid::base {
namespace {

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class LocalSocketTest : public testing::Test {
 public:
  void SetUp() override {
    listener = std::move(host->listen_local(name)).value();
    client = std::move(host->connect_local(name)).value();
    server = std::move(listener->accept()).value();
  }
  Result<size_t> receive(LocalSocket& socket, size_t room = 1024) {
    buffer.assign(room, std::byte{0});
    return socket.receive(buffer, handles);
  }
  static size_t open_descriptors() {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      count += !entry.path().empty();
    }
    return count;
  }

  const std::string name = unique_name("braid-socket-test");
  std::unique_ptr<Host> host = quiet_linux_host();
  std::unique_ptr<LocalListener> listener;
  std::unique_ptr<LocalSocket> client, server;
  std::vector<std::byte> buffer;
  std::vector<std::unique_ptr<Handle>> handles;
};

TEST_F(LocalSocketTest, KeepsMessageBoundaries) {
  ASSERT_TRUE(client->send(bytes("one")).ok());
  ASSERT_TRUE(client->send(bytes("three")).ok());
  EXPECT_EQ(receive(*server).value(), 3u);
  EXPECT_EQ(receive(*server).value(), 5u);
  EXPECT_EQ(std::memcmp(buffer.data(), "three", 5), 0);
  EXPECT_EQ(receive(*server).code(), Errc::kWouldBlock);
}

TEST_F(LocalSocketTest, KnowsThePeer) {
  EXPECT_EQ(server->peer().pid, ::getpid());
  EXPECT_EQ(server->peer().uid, ::getuid());
}

TEST_F(LocalSocketTest, PassesHandlesOfAWorkingEvent) {
  auto event = host->create_event();
  const Handle* const sent[] = {&event->handle()};
  ASSERT_TRUE(client->send(bytes("x"), sent).ok());
  ASSERT_TRUE(receive(*server).ok());
  ASSERT_EQ(handles.size(), 1u);
  auto other = host->adopt_event(std::move(handles[0]));
  ASSERT_TRUE(other.ok()) << other.error().message();
  other.value()->signal();
  EXPECT_TRUE(event->consume());
  EXPECT_FALSE(event->consume());
}

TEST_F(LocalSocketTest, RefusesWhatIsNoEvent) {
  const Handle* const sent[] = {&client->handle()};
  ASSERT_TRUE(client->send(bytes("x"), sent).ok());
  ASSERT_TRUE(receive(*server).ok());
  EXPECT_EQ(host->adopt_event(std::move(handles[0])).code(), Errc::kProtocol);
}

TEST_F(LocalSocketTest, SaysWhenThePeerIsGone) {
  ASSERT_TRUE(client->send(bytes("last")).ok());
  client.reset();
  EXPECT_TRUE(receive(*server).ok()) << "what was sent before still arrives";
  EXPECT_EQ(receive(*server).code(), Errc::kDisconnected);
  EXPECT_EQ(server->send(bytes("x")).code(), Errc::kDisconnected);
}

TEST_F(LocalSocketTest, SaysWhenThePeerIsSlow) {
  Status status;
  const std::vector<std::byte> large(64 * 1024);
  for (int i = 0; i < 1000 && status.ok(); ++i) status = client->send(large);
  EXPECT_EQ(status.code(), Errc::kWouldBlock);
}

TEST_F(LocalSocketTest, HoldsTheAnnouncementsOfEverySegment) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may have so large a buffer";
  const auto event = host->create_event();
  const Handle* const handle = &event->handle();
  const std::vector<std::byte> announcement(64);
  for (int i = 0; i < 1024; ++i) ASSERT_TRUE(client->send(announcement, {&handle, 1}).ok()) << i;
}

TEST_F(LocalSocketTest, RefusesMessagesBeyondTheLimits) {
  EXPECT_EQ(client->send({}).code(), Errc::kInvalid);
  EXPECT_EQ(client->send(std::vector<std::byte>(64 * 1024 + 1)).code(), Errc::kInvalid);
  const std::vector<const Handle*> many(17, &client->handle());
  EXPECT_EQ(client->send(bytes("x"), many).code(), Errc::kInvalid);
  EXPECT_TRUE(client
                  ->send(std::vector<std::byte>(64 * 1024),
                         std::vector<const Handle*>(16, &client->handle()))
                  .ok());
}

TEST_F(LocalSocketTest, AMessageThatDoesNotFitIsRefusedAndItsHandlesAreClosed) {
  const Handle* const sent[] = {&client->handle()};
  ASSERT_TRUE(client->send(bytes("too long"), sent).ok());
  const size_t before = open_descriptors();
  EXPECT_EQ(receive(*server, 3).code(), Errc::kProtocol);
  EXPECT_TRUE(handles.empty());
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(LocalSocketTest, NamesAreCheckedAndUniqueAndGoWithTheListener) {
  EXPECT_EQ(host->listen_local("").code(), Errc::kInvalid);
  EXPECT_EQ(host->listen_local(std::string(108, 'n')).code(), Errc::kInvalid);
  EXPECT_EQ(host->listen_local(name).code(), Errc::kExists);
  listener.reset();
  const auto refused = host->connect_local(name);
  EXPECT_EQ(refused.code(), Errc::kRefused);
  EXPECT_NE(refused.error().message().find(name), std::string::npos);
  EXPECT_TRUE(host->listen_local(name).ok());
}

}  // namespace
}  // namespace braid::base
