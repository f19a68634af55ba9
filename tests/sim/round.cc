#include "tests/sim/round.h"

#include <fmt/core.h>

#include <memory>

#include "tests/sim/checkers/progress.h"
#include "tests/sim/client.h"
#include "tests/sim/injector.h"
#include "tests/sim/judge.h"
#include "tests/sim/plan.h"
#include "tests/sim/server.h"

namespace braid::sim {

using base::kSecond;
using base::sim::SimDisk;
using base::sim::SimHost;
using base::sim::SimMachine;
using base::sim::SimWorld;

namespace {

// After healing: a silent peer is noticed (< 1 s), the longest back-off and one attempt pass (2 s
// and 5 s), a client that was killed finds its device held until its old session has ended.
constexpr uint64_t kProgressBoundNs = 60 * kSecond;

/// Lines with the time of the world.
class TimedSink : public base::LogSink {
 public:
  void write(base::LogLevel level, std::string_view name, std::string_view message) override {
    const uint64_t now_ns = world == nullptr ? 0 : world->now_ns();
    fmt::print(stderr, "{:4}.{:09} {:7} {}: {}\n", now_ns / kSecond, now_ns % kSecond,
               base::to_string(level), name, message);
  }
  const SimWorld* world = nullptr;
};

// Until paths that were lost in the last moment are found to be lost, and are made again.
constexpr uint64_t kSettleNs = 10 * kSecond;
constexpr uint64_t kCalmPhaseNs = 300 * base::kMillisecond;

base::sim::SimWorldOptions world_options(const RoundOptions& options,
                                         const std::shared_ptr<TimedSink>& sink) {
  base::sim::SimWorldOptions world;
  world.seed = options.seed;
  world.mutants = options.mutants;
  world.log_sink = sink;
  world.log_level = options.log_level;
  world.trace = options.trace;
  return world;
}

class Round : private Victims {
 public:
  explicit Round(const RoundOptions& options);
  RoundReport run();

 private:
  struct Process {
    SimMachine* machine = nullptr;
    SimHost* host = nullptr;  // null while it is down
  };
  struct Client : Process {
    ClientProgram* program = nullptr;
  };

  SimHost* server() override { return server_.host; }
  SimHost* client(size_t index) override { return clients_[index].host; }
  SimDisk* disk(size_t device) override { return disks_[device]; }
  void kill_server(bool power) override;
  void start_server() override;
  void kill_client(size_t index, bool power) override;
  void start_client(size_t index) override;
  void disk_may_fail(size_t device, bool on) override { judge_.disk_may_fail(device, on); }

  void build();
  void set_activity(Activity activity);
  template <typename Predicate>
  bool wait_for_clients(Predicate predicate);
  std::string explain() const;
  void come_to_rest();
  RoundReport report();

  const std::shared_ptr<TimedSink> sink_;
  base::Logger log_;
  SimWorld world_;
  base::sim::SimRandom random_;
  const Plan plan_;
  Judge judge_;
  ProgressChecker progress_{judge_.violations(), kProgressBoundNs};
  Process server_;
  ServerProgram* server_program_ = nullptr;
  std::vector<Client> clients_;
  std::vector<SimDisk*> disks_;
  Injector injector_;
};

Round::Round(const RoundOptions& options)
    : sink_(std::make_shared<TimedSink>()),
      log_(sink_, "sim", options.log_level),
      world_(world_options(options, sink_)),
      random_(world_.random().fork()),
      plan_(Plan::draw(random_, options.fault_phase_ns)),
      judge_(world_, plan_, log_),
      injector_(world_, plan_, *this, log_) {
  sink_->world = &world_;
  build();
}

void Round::build() {
  server_.machine = &world_.add_machine("server");
  world_.fabric().add_port(*server_.machine, plan_.server_ip);
  for (const DevicePlan& device : plan_.devices) {
    base::sim::SimDiskOptions options;
    options.size_bytes = device.sectors * kSectorBytes;
    const std::string path = std::string(kExportRoot) + "/" + device.name;
    disks_.push_back(device.memory ? nullptr : &server_.machine->add_disk(path, options));
  }
  for (const ClientPlan& plan : plan_.clients) {
    Client client;
    client.machine = &world_.add_machine(plan.name);
    world_.fabric().add_port(*client.machine, plan.ip);
    clients_.push_back(client);
  }
  start_server();
  for (size_t i = 0; i < clients_.size(); ++i) start_client(i);
}

// --- victims

void Round::start_server() {
  if (!server_.machine->powered()) server_.machine->power_on();
  server_.host = &server_.machine->start_process("braidd");
  auto program = std::make_unique<ServerProgram>(*server_.host, plan_);
  server_program_ = program.get();
  server_.host->run(std::move(program));
}

void Round::kill_server(bool power) {
  if (power) {
    server_.machine->power_loss();
    judge_.server_lost_power();
  } else {
    server_.host->kill();
  }
  server_.host = nullptr;
  server_program_ = nullptr;
}

void Round::start_client(size_t index) {
  Client& client = clients_[index];
  if (!client.machine->powered()) client.machine->power_on();
  client.host = &client.machine->start_process("user");
  auto program =
      std::make_unique<ClientProgram>(*client.host, plan_, index, judge_, random_.next());
  client.program = program.get();
  client.host->run(std::move(program));
}

void Round::kill_client(size_t index, bool power) {
  Client& client = clients_[index];
  judge_.client_dies(index);
  if (power) {
    client.machine->power_loss();
  } else {
    client.host->kill();
  }
  client.host = nullptr;
  client.program = nullptr;
}

// --- phases

void Round::set_activity(Activity activity) {
  for (Client& client : clients_)
    if (client.program != nullptr) client.program->set_activity(activity);
}

template <typename Predicate>
bool Round::wait_for_clients(Predicate predicate) {
  progress_.faults_stopped(world_.now_ns());
  // Not after every event: that would cost more than the events.
  for (uint64_t waited = 0; waited < progress_.bound_ns(); waited += base::kMillisecond * 5) {
    bool all = true;
    for (const Client& client : clients_) all = all && predicate(*client.program);
    if (all) return true;
    world_.run_for(base::kMillisecond * 5);
  }
  return false;
}

std::string Round::explain() const {
  std::string text;
  for (const Client& client : clients_) text += client.program->explain() + ". ";
  return text;
}

void Round::come_to_rest() {
  const bool rested = wait_for_clients([](ClientProgram& c) { return c.at_rest(); });
  progress_.ended(world_.now_ns(),
                  rested ? 0 : std::max<uint64_t>(1, judge_.completions().outstanding()),
                  explain());
  if (!rested) return;
  judge_.completions().at_rest();
  world_.run_for(kSettleNs);
  judge_.calm_begins();
  set_activity(Activity::kWork);
  world_.run_for(kCalmPhaseNs);
  set_activity(Activity::kRest);
  if (!wait_for_clients([](ClientProgram& c) { return c.at_rest(); })) {
    progress_.ended(world_.now_ns(), judge_.completions().outstanding(), explain());
    return;
  }
  judge_.completions().at_rest();
  set_activity(Activity::kVerify);
  if (!wait_for_clients([](ClientProgram& c) { return c.verified(); })) {
    progress_.ended(world_.now_ns(), judge_.completions().outstanding(), explain());
    return;
  }
  for (Client& client : clients_) client.program->check_permits();
  set_activity(Activity::kClose);
  if (!wait_for_clients([](ClientProgram& c) { return c.closed(); }))
    judge_.violations().add("a client did not close within its bound: {}", explain());
  server_program_->stop();
  if (!world_.run_until([this] { return server_program_->stopped(); }, kProgressBoundNs))
    judge_.violations().add("the server did not stop within its bound");
}

RoundReport Round::run() {
  injector_.start();
  world_.run_for(plan_.fault_phase_ns);
  injector_.stop_and_heal();
  log_.info("faults stopped, everything healed");
  set_activity(Activity::kRest);
  come_to_rest();
  return report();
}

RoundReport Round::report() {
  RoundReport report;
  report.violations = judge_.violations().texts();
  report.violation_count = judge_.violations().count();
  report.trace_hash = world_.trace_hash();
  report.simulated_ns = world_.now_ns();
  report.completed = judge_.completions().completed_count();
  report.failed = judge_.failed_operations();
  report.events = world_.counters().events;
  report.turns = world_.counters().turns;
  report.faults = injector_.counts();
  report.faults[static_cast<size_t>(FaultKind::kLateReactor)] = world_.counters().late_turns;
  for (size_t i = 0; i < plan_.devices.size(); ++i)
    report.losses_reported += judge_.history(i).losses_reported();
  return report;
}

}  // namespace

RoundReport run_round(const RoundOptions& options) {
  return Round(options).run();
}

}  // namespace braid::sim
