// Writes whose chunk guard copies them in parts, as others share the server, and what becomes of
// them when their path goes between two parts.
#include "base/sim_charge.h"
#include "trs/kernel_client_rig.h"
#include "trs/multipath_rig.h"

namespace braid::trs {
namespace {

using base::Errc;
using base::kMillisecond;
using testing::HostileClient;
using testing::Io;
using testing::KernelClient;
using testing::MultipathRig;

constexpr uint32_t kMebibyte = 1 << 20;
constexpr uint64_t kTurnNs = 50'000;  // longer than a message to the server takes

/// One that is there, so that turns are shared.
class Neighbour final : public SessionUser {
 public:
  base::Task<base::Status> reconnected() override { co_return base::Status(); }
  void disconnected(const base::Error&) override {}
};

class GuardParts : public MultipathRig {
 protected:
  explicit GuardParts(ChunkGuard guard = ChunkGuard::kCopy) {
    adjust_server = [guard](ServerOptions& options) {
      options.guard = guard;
      options.max_io_bytes = kMebibyte;
    };
  }
  void SetUp() override {
    connect_both();
    client->home().spawn(open_neighbour());
    client->home().wake();
    ASSERT_TRUE(until([&] { return client_neighbour != nullptr; }));
    base::sim::charge_turns(server->home(), [] { return kTurnNs; });
    write = client->make_io(Direction::kWrite, kMebibyte, kMebibyte);
    fill(write->buffer, 7);
  }
  void TearDown() override {
    client->home().spawn(close_neighbour());
    client->home().wake();
    EXPECT_TRUE(until([&] { return client_neighbour == nullptr; }));
  }
  base::Task<void> open_neighbour() {
    ClientOptions options;
    options.session_name = "neighbour";
    options.server = {testing::kServerIp, testing::kPort};
    options.reactors = client->reactor_list();
    Domain& domain = *client->domain;
    auto opened = co_await ClientSession::open(domain, options, user);
    BRAID_ASSERT(opened.ok());
    client_neighbour = std::move(*opened);
  }
  base::Task<void> close_neighbour() {
    co_await client_neighbour->close();
    client_neighbour.reset();
  }
  ServerSession* session() const {
    for (ServerSession* each : server->server->sessions())
      if (each->name() == "client") return each;
    return nullptr;
  }
  /// By path and connection 1.
  uint64_t copied(size_t path) const {
    const auto all = session()->path_statistics();
    return path < all.size() ? all[path][1].copied_bytes : 0;
  }
  /// The path by which the write comes, when the server has copied some of it.
  size_t begin() {
    client->submit(*write);
    const auto some = [this](size_t path) { return copied(path) >= 3 * (16 << 10); };
    EXPECT_TRUE(until([&] { return some(0) || some(1); }));
    const size_t path = some(0) ? 0 : 1;
    EXPECT_LT(copied(path), kMebibyte / 2);
    EXPECT_EQ(store.requests, 0u) << "it has been looked at";
    return path;
  }
  void expect_done_once() {
    ASSERT_TRUE(until([&] { return write->done; }));
    EXPECT_EQ(write->status, Errc::kOk);
    EXPECT_EQ(write->completions, 1u);
    EXPECT_EQ(store.requests, 1u);
    EXPECT_EQ(store.write_log.size(), 1u);
    EXPECT_TRUE(filled(std::span(store.bytes).subspan(kMebibyte, kMebibyte), 7));
    EXPECT_TRUE(server->server->statistics().breaches.empty());
  }
  Neighbour user;
  std::unique_ptr<ClientSession> client_neighbour;
  std::unique_ptr<Io> write;
};

TEST_F(GuardParts, RequestBeginsWhenAllOfItIsCopied) {
  begin();
  expect_done_once();
  EXPECT_EQ(copied(0) + copied(1), kMebibyte);
}

TEST_F(GuardParts, SmallRequestsOvertakeIt) {
  begin();
  const auto small = client->make_io(Direction::kRead, 0, 4096);
  client->submit(*small);
  ASSERT_TRUE(until([&] { return small->done; }));
  EXPECT_FALSE(write->done);
  ASSERT_TRUE(until([&] { return write->done; }));
}

TEST_F(GuardParts, WriteWhosePathEndsBetweenThemIsDoneOnceByTheOther) {
  const size_t path = begin();
  ASSERT_TRUE(client->session->disconnect_path(path).ok());
  ASSERT_TRUE(until([&] { return session()->paths() == 1; }));
  EXPECT_LT(copied(0), kMebibyte) << "the path ended too late";
  expect_done_once();
  // Its chunk takes the next request, and the one after it.
  for (int i = 0; i < 2; ++i) {
    store.requests = 0;
    store.write_log.clear();
    write->completions = 0;
    client->submit(*write);
    expect_done_once();
  }
}

TEST_F(GuardParts, WriteWhoseSessionEndsBetweenThemIsDoneOnceByTheNext) {
  begin();
  ASSERT_TRUE(session()->end("a test"));
  expect_done_once();
  EXPECT_EQ(store.opened, 3u);
}

}  // namespace
}  // namespace braid::trs
