// A device that takes long to register memory, at the server: the paths of others do not notice,
// and a path that is lost meanwhile gives back what was registered for it.
#include "base/sim_charge.h"
#include "trs/forwarding_device.h"
#include "trs/hostile_client_rig.h"

namespace braid::trs::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Twice what a path may be silent.
constexpr uint64_t kRegistrationNs = 2 * kSecond;

/// What the device was asked for.
struct Registrations {
  uint64_t now_ns() const { return host->now_ns(); }
  void begin() {
    // Time stands still within a turn, and does not between turns.
    if (home->now_ns() != now_ns()) {
      ++by_workers;
      return;
    }
    ++by_home;
    busy_ns += kRegistrationNs;
  }
  base::sim::SimHost* host = nullptr;
  base::Reactor* home = nullptr;
  uint64_t by_home = 0, by_workers = 0;
  uint64_t busy_ns = 0;  // that the home reactor has not been charged for
};

class SlowPd final : public vhca::Pd {
 public:
  SlowPd(std::unique_ptr<vhca::Pd> behind, Registrations& all)
      : behind_(std::move(behind)), all_(all) {}
  base::Result<std::unique_ptr<vhca::Mr>> reg_mr(std::byte* address, uint64_t length_bytes,
                                                 int access) override {
    // A connection's few headers are no matter.
    if (length_bytes >= 64 << 10) all_.begin();
    return behind_->reg_mr(address, length_bytes, access);
  }
  void dereg_mr(std::unique_ptr<vhca::Mr> mr, std::shared_ptr<void> memory) override {
    behind_->dereg_mr(std::move(mr), std::move(memory));
  }
  base::Result<std::unique_ptr<vhca::Qp>> create_qp(const vhca::QpOptions& options) override {
    return behind_->create_qp(options);
  }
  base::Result<std::unique_ptr<vhca::Mw>> alloc_mw(ibv_mw_type type) override {
    return behind_->alloc_mw(type);
  }
  base::Result<std::unique_ptr<vhca::Srq>> create_srq(const vhca::SrqOptions& options) override {
    return behind_->create_srq(options);
  }

 private:
  const std::unique_ptr<vhca::Pd> behind_;
  Registrations& all_;
};

class SlowDevice final : public ForwardingDevice {
 public:
  SlowDevice(std::unique_ptr<vhca::Device> behind, Registrations& all)
      : ForwardingDevice(std::move(behind)), all_(all) {}
  base::Result<std::unique_ptr<vhca::Pd>> alloc_pd() override {
    BRAID_TRY(std::unique_ptr<vhca::Pd> pd, behind_->alloc_pd());
    return std::unique_ptr<vhca::Pd>(std::make_unique<SlowPd>(std::move(pd), all_));
  }

 private:
  Registrations& all_;
};

/// An honest client is connected; from then on what a worker does takes long.
class SlowRegistration : public HostileClient, public ::testing::WithParamInterface<ChunkGuard> {
 protected:
  void SetUp() override {
    adjust_server = [this](ServerOptions& options) {
      options.guard = GetParam();
      asked.host = server_host;
      asked.home = options.reactors.front();
    };
    process_size.registrations_max = 128;
    process_size.wrap = [](void* all, const std::string& ip, ProcessSize::Device device) {
      if (ip == kServerIp) {
        auto& registrations = *static_cast<Registrations*>(all);
        device = std::make_unique<SlowDevice>(std::move(device), registrations);
      }
      return device;
    };
    process_size.wrap_context = &asked;
    HostileClient::SetUp();
    base::sim::charge_turns(server->home(), [this] { return std::exchange(asked.busy_ns, 0); });
    asked.by_home = 0;  // what the server lends, before there was anybody
    asked.by_workers = 0;
    world.timing().work_min_ns = world.timing().work_max_ns = kRegistrationNs;
  }
  /// Until a worker has the memory of a path that begins.
  void begin_path() {
    handshake(conn_req(0, kAllFeatures), conn_req(1, kAllFeatures));
    send_info();
    world.run_for(kMillisecond);
    ASSERT_EQ(server->server->sessions().size(), 2u);
  }
  bool info_answered() {
    cid0->poll();
    return std::any_of(cid0->completions.begin(), cid0->completions.end(),
                       [](const vhca::Wc& wc) { return wc.opcode == IBV_WC_RECV; });
  }
  void drop_path() {
    cid0.reset();
    cid1.reset();
  }
  Registrations asked;
};

TEST_P(SlowRegistration, HoldsUpNoRequestOfOthers) {
  begin_path();
  const uint64_t began_ns = world.now_ns();
  uint64_t others = 0;
  auto io = client->make_io(Direction::kWrite, 0, 4096);
  while (!info_answered()) {
    ASSERT_LT(world.now_ns() - began_ns, 30 * kSecond);
    client->submit(*io);
    ASSERT_TRUE(until([&] { return io->done; }));
    ASSERT_EQ(io->status, Errc::kOk);
    ++others;
    world.run_for(kMillisecond);
  }
  EXPECT_GE(world.now_ns() - began_ns, kRegistrationNs) << "the test was about what takes long";
  EXPECT_GT(others, kRegistrationNs / (2 * kMillisecond));
  EXPECT_EQ(asked.by_home, 0u);
  EXPECT_GE(asked.by_workers, GetParam() == ChunkGuard::kNone ? 2u : 3u) << "and lent memory";
  EXPECT_EQ(client->disconnected_calls, 0u);
}

/// However often somebody asks, and gives up.
TEST_P(SlowRegistration, OfLentMemoryGoesOnWhenNobodyWaitsForItAnyMore) {
  ServerSession& session = *server->server->sessions().front();
  const auto more = std::move(*server->server->register_memory(store.bytes.data(), 64 << 10));
  unsigned asked_in_vain = 0;
  bool used = false;
  const auto ask = [&]() -> base::Task<void> {
    while (!used) {
      base::Task<base::Status> use = session.use_memory(*more);
      const std::optional<base::Status> status =
          co_await server->home().with_timeout(std::move(use), kRegistrationNs / 8);
      if (!status) ++asked_in_vain;
      used = status && status->ok();
    }
  };
  server->home().spawn(ask());
  server->home().wake();
  uint64_t others = 0;
  auto io = client->make_io(Direction::kWrite, 0, 4096);
  const uint64_t began_ns = world.now_ns();
  while (!used) {
    ASSERT_LT(world.now_ns() - began_ns, 2 * kRegistrationNs);
    client->submit(*io);
    ASSERT_TRUE(until([&] { return io->done; }));
    ASSERT_EQ(io->status, Errc::kOk);
    ++others;
    world.run_for(kMillisecond);
  }
  EXPECT_GE(asked_in_vain, 6u);
  EXPECT_GT(others, kRegistrationNs / (2 * kMillisecond));
  EXPECT_EQ(asked.by_workers, 1u);
  EXPECT_EQ(asked.by_home, 0u);
  EXPECT_TRUE(session.uses_memory(*more));
}

TEST_P(SlowRegistration, OfAPathThatIsLostIsGivenBack) {
  for (uint64_t i = 0; i < 150; ++i) {
    ASSERT_NO_FATAL_FAILURE(begin_path()) << "round " << i;
    drop_path();
    world.run_for(kRegistrationNs / 2);
    EXPECT_EQ(store.closed, i) << "it ended before what it had asked for had come back";
    ASSERT_TRUE(until([&] { return store.closed == i + 1; }, kRegistrationNs)) << "round " << i;
    EXPECT_EQ(asked.by_workers, i + 1) << "a path that ends asks for no more";
  }
}

/// Of a server that ends, which its honest client does notice.
class SlowRegistrationAtTheEnd : public SlowRegistration {
 protected:
  void TearDown() override { drop_path(); }
};

TEST_P(SlowRegistrationAtTheEnd, IsWaitedForByAServerThatStops) {
  begin_path();
  std::vector<base::Status> ends;
  const auto stop = [&]() -> base::Task<void> {
    base::Status status = co_await server->server->stop_within(kRegistrationNs / 2);
    ends.push_back(std::move(status));
  };
  for (size_t times = 1; times <= 2; ++times) {
    server->home().spawn(stop());
    server->home().wake();
    ASSERT_TRUE(until([&] { return ends.size() == times; }));
  }
  EXPECT_EQ(ends[0].code(), Errc::kTimedOut);
  EXPECT_THAT(ends[0].error().message(), HasSubstr("its memory is being registered"));
  EXPECT_TRUE(ends[1].ok()) << ends[1].error().message();
}

TEST_P(SlowRegistrationAtTheEnd, EndsWithAProcessThatIsKilled) {
  begin_path();
  kill_server();
  world.run_for(2 * kRegistrationNs);
}

/// Its honest client is disturbed.
class SlowToComeBack : public SlowRegistration {
 protected:
  void TearDown() override {}
  bool connected() const { return client->session->paths()[0].connected; }
  std::string told() const { return client->session->explain(); }
  void come_back() {
    ASSERT_TRUE(client->session->disconnect_path(0).ok());
    ASSERT_TRUE(until([this] { return !connected(); }));
    ASSERT_TRUE(client->session->reconnect_path(0).ok());
    client->home().wake();
  }
};

/// However long it takes: longer than a server may take that gives no sign of life.
TEST_P(SlowToComeBack, ButLetIn) {
  world.timing().work_min_ns = world.timing().work_max_ns = 4 * kRegistrationNs;
  ASSERT_GT(4 * kRegistrationNs, ReconnectOptions().attempt_timeout_ns);
  come_back();
  EXPECT_TRUE(until([this] { return connected(); }, 40 * kSecond)) << told();
}

TEST_P(SlowToComeBack, ButNotWaitedForWhenCutOff) {
  world.timing().work_min_ns = world.timing().work_max_ns = 60 * kSecond;
  come_back();
  world.run_for(2 * ReconnectOptions().attempt_timeout_ns);
  EXPECT_THAT(told(), HasSubstr("it may register much memory"));
  world.fabric().set_black_hole(kClientIp, kServerIp, true);
  EXPECT_TRUE(
      until([this] { return told().find("may register") == std::string::npos; }, 10 * kSecond));
  world.timing().work_min_ns = world.timing().work_max_ns = kRegistrationNs;
  world.fabric().set_black_hole(kClientIp, kServerIp, false);
  EXPECT_TRUE(until([this] { return connected(); }, 120 * kSecond)) << told();
}

/// Over TCP the machine of a server that stands still takes what we send, and nobody answers.
class SlowOverTcp : public SlowToComeBack {
 protected:
  void SetUp() override {
    process_size.tcp = true;
    SlowToComeBack::SetUp();
  }
};

TEST_P(SlowOverTcp, AServerThatStandsStillIsWaitedForAsLong) {
  come_back();
  ASSERT_TRUE(until([this] { return asked.by_workers > 0; }));
  server_host->pause();
  for (int second = 0; second < 100; ++second) {
    world.run_for(kSecond);
    ASSERT_THAT(told(), Not(HasSubstr("was lost"))) << "after " << second << " s";
  }
  EXPECT_THAT(told(), HasSubstr("it may register much memory"));
  server_host->resume();
  EXPECT_TRUE(until([this] { return connected(); }, 10 * kSecond)) << told();
}

constexpr ChunkGuard kRegisteredGuards[] = {ChunkGuard::kNone, ChunkGuard::kCopy,
                                            ChunkGuard::kWindows};
const auto kGuardName = [](const auto& each) { return std::string(to_string(each.param)); };
INSTANTIATE_TEST_SUITE_P(Guard, SlowRegistration, ::testing::ValuesIn(kRegisteredGuards),
                         kGuardName);
INSTANTIATE_TEST_SUITE_P(Guard, SlowOverTcp, ::testing::Values(ChunkGuard::kNone), kGuardName);
INSTANTIATE_TEST_SUITE_P(Guard, SlowToComeBack, ::testing::ValuesIn(kRegisteredGuards), kGuardName);
INSTANTIATE_TEST_SUITE_P(Guard, SlowRegistrationAtTheEnd, ::testing::ValuesIn(kRegisteredGuards),
                         kGuardName);

}  // namespace
}  // namespace braid::trs::testing
