// The file backend alone under kills, power losses and disk faults: the same workload and checkers
// as for remote devices, with nothing between.
#include <gtest/gtest.h>

#include <memory>

#include "base/reactor.h"
#include "base/sim.h"
#include "bnbd/backends.h"
#include "tests/sim/device_run.h"
#include "tests/sim/judge.h"
#include "tests/sim/plan.h"

namespace braid::sim {
namespace {

using base::kMillisecond;
using base::kSecond;
using base::Reactor;
using base::sim::SimHost;
using base::sim::SimMachine;
using base::sim::SimWorld;

Plan local_plan() {
  Plan plan;
  plan.clients.push_back({.name = "local", .ip = "", .depth = 8, .pause_max_ns = kMillisecond});
  plan.servers.push_back({.name = "local", .ip = ""});
  plan.devices.push_back({.name = "disk", .sectors = 512, .heir = {}, .readers = {}});
  return plan;
}

class LocalProgram : public base::sim::SimProgram {
 public:
  LocalProgram(SimHost& host, const Plan& plan, Judge& judge, uint64_t seed)
      : judge_(judge), board_(plan) {
    const Reactor::Options options{.name = "home"};
    reactor_ = std::move(*Reactor::create(host, options));
    context_.emplace(
        WorkContext{host, *reactor_, judge, board_, plan, 0, base::sim::SimRandom(seed)});
    run_ = std::make_unique<DeviceRun>(*context_, 0, true);
    host.drive(*reactor_);
    reactor_->spawn(open());
  }
  void set_activity(Activity activity) {
    context_->activity = activity;
    reactor_->post([this] { run_->activity_changed(); });
  }
  DeviceRun& run() { return *run_; }

 private:
  base::Task<void> open() {
    for (;;) {
      bnbd::FileDeviceOptions options;
      options.root = "/d";
      options.name = "disk";
      auto device = co_await bnbd::open_file_device(*reactor_, options);
      if (device.ok()) {
        judge_.opened(0, 0, Wish::kWrite, asked());
        EXPECT_TRUE(run_->opened(std::move(*device)).ok());
        co_return;
      }
      // The last process's writes are still landing.
      EXPECT_EQ(device.code(), base::Errc::kBusy) << device.error().message();
      co_await reactor_->sleep_ns(kMillisecond);
    }
  }
  /// Without a session: one way, and nothing that could be lost but the disk.
  static Judge::Asked asked() {
    Judge::Asked asked;
    asked.losses = [] { return uint64_t{0}; };
    asked.ways = [] { return UntoldLosses::Ways{.connections = 1, .there = 1, .reopened = 0}; };
    return asked;
  }
  Judge& judge_;
  Board board_;
  std::unique_ptr<Reactor> reactor_;
  std::optional<WorkContext> context_;
  std::unique_ptr<DeviceRun> run_;
};

/// Some lives of one machine; returns what the judge found and counts completions.
struct Verdict {
  std::string text;
  uint64_t violations = 0, completed = 0, failed = 0;
};

Verdict run_lives(uint64_t seed, bool lying) {
  base::sim::SimWorldOptions options;
  options.seed = seed;
  SimWorld world(options);
  SimMachine& machine = world.add_machine("m");
  const Plan plan = local_plan();
  Judge judge(world, plan, base::Logger(base::make_null_sink(), "sim", base::LogLevel::kOff));
  base::sim::SimDiskOptions disk_options;
  disk_options.size_bytes = plan.devices[0].sectors * kSectorBytes;
  disk_options.lying = lying;
  base::sim::SimDisk& disk = machine.add_disk("/d/disk", disk_options);
  for (int life = 0; life < 6; ++life) {
    SimHost& host = machine.start_process("p");
    auto program = std::make_unique<LocalProgram>(host, plan, judge, world.random().next());
    LocalProgram& its = *program;
    host.run(std::move(program));
    world.run_for(world.random().below(200 * kMillisecond));
    disk.faults.errors_per_million = 50'000;
    judge.disk_may_fail(0, true);
    world.run_for(world.random().below(50 * kMillisecond));
    disk.faults.errors_per_million = 0;
    judge.disk_may_fail(0, false);
    world.run_for(world.random().below(200 * kMillisecond));
    if (life == 5) {
      its.set_activity(Activity::kRest);
      EXPECT_TRUE(world.run_until([&] { return its.run().idle(); }, kSecond));
      its.set_activity(Activity::kVerify);
      EXPECT_TRUE(world.run_until([&] { return its.run().verified(); }, kSecond));
      judge.completions().at_rest();
      break;
    }
    judge.client_dies(0);
    if (world.random().one_in(2)) {
      machine.power_loss();
      judge.server_lost_power(0);
      machine.power_on();
    } else {
      host.kill();
    }
  }
  judge.finish();
  Verdict verdict;
  for (const std::string& text : judge.violations().texts()) verdict.text += text + "\n";
  verdict.violations = judge.violations().count();
  verdict.completed = judge.completions().completed_count();
  verdict.failed = judge.failed_operations();
  return verdict;
}

TEST(LocalFileDevice, KeepsItsPromisesThroughKillsAndPowerLosses) {
  uint64_t failed = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const Verdict verdict = run_lives(seed, false);
    EXPECT_EQ(verdict.violations, 0u) << "seed " << seed << "\n" << verdict.text;
    EXPECT_GT(verdict.completed, 1000u);
    failed += verdict.failed;
  }
  EXPECT_GT(failed, 0u);
}

TEST(LocalFileDevice, ALyingDiskIsFoundOut) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) found += run_lives(seed, true).violations != 0;
  EXPECT_GT(found, 4);
}

}  // namespace
}  // namespace braid::sim
