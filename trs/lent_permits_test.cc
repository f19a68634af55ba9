// Permits that reactors lend each other: what each device gets, and that nothing is lost or done
// twice while they move.
#include "trs/multipath_rig.h"
#include "trs/wire.h"

namespace braid::trs {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;
using testing::Io;

constexpr uint32_t kAdmin = 2;
constexpr uint32_t kDepth = 64;  // permits for I/O

/// Somebody who always has `depth` writes to do, if he gets the permits.
class Load : private PermitWaiter {
 public:
  Load(testing::ClientProcess& client, size_t reactor, size_t count, size_t& next_offset)
      : queue_(client.session->queue(reactor)) {
    PermitWaiter::context = this;
    permit_free = [](PermitWaiter& waiter) { static_cast<Load*>(waiter.context)->go_on(); };
    for (size_t i = 0; i < count; ++i) {
      ios_.push_back(client.make_io(Direction::kWrite, next_offset, 512));
      next_offset += 512;
      idle_.push_back(ios_.back().get());
      ios_.back()->after = [this](Io& io) { ended(io); };
    }
  }
  void start() {
    if (!linked()) go_on();
  }
  void stop() { stopping_ = true; }
  bool quiet() const { return stopping_ && idle_.size() == ios_.size(); }
  uint64_t completed = 0;
  uint64_t failed = 0;

 private:
  void ended(Io& io) {
    ++completed;
    if (io.status != Errc::kOk) ++failed;
    idle_.push_back(&io);
    if (!linked()) wait();
  }
  void wait() {
    if (!stopping_) queue_.wait_for_permit(*this);
  }
  void go_on() {
    if (stopping_ || idle_.empty()) return;
    Permit permit = queue_.acquire();
    if (permit) {
      Io& io = *idle_.back();
      idle_.pop_back();
      io.request.permit = std::move(permit);
      queue_.submit(io.request);
    }
    if (!idle_.empty()) wait();
  }

  ClientQueue& queue_;
  std::vector<std::unique_ptr<Io>> ios_;
  std::vector<Io*> idle_;
  bool stopping_ = false;
};

class LentPermits : public testing::MultipathRig {
 protected:
  explicit LentPermits(size_t reactors = 2, uint64_t seed = 1) : MultipathRig(reactors, seed) {
    adjust_server = [](ServerOptions& options) { options.queue_depth = kDepth + kAdmin; };
  }
  Load& add_load(size_t reactor, size_t count) {
    loads_.push_back(std::make_unique<Load>(*client, reactor, count, next_offset_));
    return *loads_.back();
  }
  /// The way takes milliseconds, so that a second of it is not a million writes.
  void make_slow() {
    constexpr uint64_t kExtraMaxNs = 4 * kMillisecond;
    for (const auto& [client_ip, server_ip] :
         {std::pair(testing::kClientIp, testing::kServerIp),
          std::pair(testing::kClientIpB, testing::kServerIpB)}) {
      world.fabric().set_extra_delay(client_ip, server_ip, kExtraMaxNs);
      world.fabric().set_extra_delay(server_ip, client_ip, kExtraMaxNs);
    }
  }
  void start_loads() {
    for (auto& load : loads_) load->start();
    for (auto& reactor : client->reactors) reactor->wake();
  }
  void end_loads() {
    for (auto& load : loads_) load->stop();
    ASSERT_TRUE(until([&] {
      return std::all_of(loads_.begin(), loads_.end(), [](auto& load) { return load->quiet(); });
    }));
    for (auto& load : loads_) EXPECT_EQ(load->failed, 0u);
    expect_all_permits_back(kAdmin);
  }
  void pass(uint64_t ns) {
    const uint64_t until_ns = world.now_ns() + ns;
    until([&] { return world.now_ns() >= until_ns; }, 2 * ns);
  }
  /// By which the server serves the I/O connection of a client's reactor.
  base::Reactor* server_reactor_of(size_t client_reactor) const {
    return server->reactors[(1 + client_reactor) % server->reactors.size()].get();
  }
  ClientStatistics of(size_t reactor) const { return client->session->queue(reactor).statistics(); }

  std::vector<std::unique_ptr<Load>> loads_;
  size_t next_offset_ = 0;
};

TEST_F(LentPermits, WhoIsAloneGetsNearlyAllOfThem) {
  connect();
  add_load(0, kDepth);
  start_loads();
  ASSERT_TRUE(until([&] { return of(0).permits >= kDepth - kDepth / 2 / 8; }));
  EXPECT_EQ(of(1).permits_lent, of(0).permits_borrowed);
  EXPECT_EQ(of(0).permits + of(1).permits, kDepth);
  EXPECT_GE(of(1).permits, kDepth / 2 / 8);
  end_loads();
}

TEST_F(LentPermits, WhoComesLaterGetsHisShareBack) {
  connect();
  add_load(0, kDepth);
  start_loads();
  ASSERT_TRUE(until([&] { return of(0).permits > kDepth * 3 / 4; }));
  add_load(1, kDepth);
  start_loads();
  ASSERT_TRUE(until([&] { return of(1).permits >= kDepth / 2 - 1; }));
  end_loads();
}

TEST_F(LentPermits, NothingIsLentWhileAllHaveEnough) {
  connect();
  make_slow();
  add_load(0, kDepth / 2 - 1);
  add_load(1, kDepth / 2 - 1);
  start_loads();
  pass(100 * kMillisecond);
  EXPECT_EQ(of(0).permits_lent + of(1).permits_lent, 0u);
  end_loads();
}

TEST_F(LentPermits, BalancedQueuesKeepWhatTheyHave) {
  connect();
  make_slow();
  add_load(0, kDepth);
  add_load(1, kDepth);
  start_loads();
  pass(50 * kMillisecond);
  const uint64_t before = of(0).permits_lent + of(1).permits_lent;
  pass(500 * kMillisecond);
  EXPECT_LE(of(0).permits_lent + of(1).permits_lent, before + 4) << "they go to and fro";
  end_loads();
}

TEST_F(LentPermits, NothingIsDoneTwiceWhenAPathIsLostMeanwhile) {
  connect_both();
  make_slow();
  add_load(0, kDepth);
  add_load(1, 8);
  start_loads();
  for (int i = 0; i < 5; ++i) {
    pass(30 * kMillisecond);
    i % 2 == 0 ? cut_a(true) : cut_b(true);
    ASSERT_TRUE(until_up(1));
    pass(30 * kMillisecond);
    i % 2 == 0 ? cut_a(false) : cut_b(false);
    ASSERT_TRUE(until_up(2));
  }
  EXPECT_GT(of(0).permits_borrowed, 0u);
  const uint64_t completed = loads_[0]->completed + loads_[1]->completed;
  end_loads();
  EXPECT_GE(store.write_log.size(), completed);
  EXPECT_EQ(store.write_log.size(), loads_[0]->completed + loads_[1]->completed);
  EXPECT_EQ(client->disconnected_calls, 0u);
}

TEST_F(LentPermits, TheyStayWhereTheyAreOverRestartsOfTheServer) {
  connect();
  make_slow();
  add_load(0, kDepth);
  start_loads();
  ASSERT_TRUE(until([&] { return of(0).permits > kDepth * 3 / 4; }));
  for (unsigned i = 1; i <= 3; ++i) {
    kill_server();
    start_server();
    ASSERT_TRUE(until([&] { return client->restored_calls == i; }));
    pass(20 * kMillisecond);
  }
  EXPECT_GT(of(0).permits, kDepth * 3 / 4);
  end_loads();
}

TEST_F(LentPermits, AnOlderServerHasItsChunksUsedByTheirOwnConnections) {
  adjust_server = [](ServerOptions& options) {
    options.queue_depth = kDepth + kAdmin;
    options.features = kAllFeatures & ~wire::kFeatureLentPermits;
  };
  connect();
  make_slow();
  add_load(0, kDepth);
  start_loads();
  pass(100 * kMillisecond);
  EXPECT_EQ(of(0).permits, kDepth / 2);
  EXPECT_EQ(of(0).permits_borrowed, 0u);
  EXPECT_TRUE(server->server->statistics().breaches.empty());
  end_loads();
}

TEST_F(LentPermits, AServerThatComesBackWithoutIsRefusedInWords) {
  connect();
  kill_server();
  adjust_server = [](ServerOptions& options) {
    options.queue_depth = kDepth + kAdmin;
    options.features = kAllFeatures & ~wire::kFeatureLentPermits;
  };
  start_server();
  ASSERT_TRUE(until([&] {
    return client->session->explain().find("knows no lent permits") != std::string::npos;
  }));
}

TEST_F(LentPermits, WhoIsShortWhileHisRequestsHangGetsWhatOthersNeedNoMore) {
  connect();
  // Everything hangs: nothing comes back that could wake the one who waits.
  store.hold = true;
  Load& first = add_load(0, kDepth);
  Load& other = add_load(1, kDepth);
  start_loads();
  ASSERT_TRUE(until([&] { return server->held.size() == kDepth; }));
  other.stop();
  store.hold = false;
  // Those of the other reactor end alone.
  ASSERT_TRUE(until([&] { return of(1).permits == kDepth / 2; }));
  std::deque<ServerRequest*> of_first;
  while (!server->held.empty()) {
    ServerRequest* const next = server->held.front();
    server->held.pop_front();
    if (next->reactor == server_reactor_of(0)) {
      of_first.push_back(next);
    } else {
      next->answer(Errc::kOk);
    }
  }
  ASSERT_EQ(of_first.size(), kDepth / 2);
  // Sooner than a heartbeat would wake it.
  EXPECT_TRUE(until([&] { return of(0).permits > kDepth / 2; }, 20 * kMillisecond));
  EXPECT_EQ(first.completed, 0u);
  server->held = of_first;
  server->release();
  end_loads();
}

/// Reactors; each device has a queue of its own and they crowd the first reactors.
class FairPermits : public LentPermits, public ::testing::WithParamInterface<size_t> {
 protected:
  FairPermits() : LentPermits(GetParam()) {}
};

TEST_P(FairPermits, EachDeviceGetsTheSameWhereverItIs) {
  connect();
  make_slow();
  const size_t reactors = GetParam();
  // Five on the first reactor, one on each other.
  for (int i = 0; i < 5; ++i) add_load(0, kDepth);
  for (size_t i = 1; i < reactors; ++i) add_load(i, kDepth);
  start_loads();
  pass(100 * kMillisecond);  // until it has settled
  std::vector<uint64_t> before;
  for (auto& load : loads_) before.push_back(load->completed);
  pass(500 * kMillisecond);
  uint64_t least = UINT64_MAX, most = 0;
  for (size_t i = 0; i < loads_.size(); ++i) {
    const uint64_t got = loads_[i]->completed - before[i];
    least = std::min(least, got);
    most = std::max(most, got);
  }
  EXPECT_GT(least * 10, most * 8) << "least " << least << ", most " << most;
  end_loads();
}

INSTANTIATE_TEST_SUITE_P(Reactors, FairPermits, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace braid::trs
