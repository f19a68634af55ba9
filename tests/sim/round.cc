#include "tests/sim/round.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>

#include "tests/sim/board.h"
#include "tests/sim/checkers/progress.h"
#include "tests/sim/client.h"
#include "tests/sim/injector.h"
#include "tests/sim/judge.h"
#include "tests/sim/mutants.h"
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
  explicit TimedSink(base::LogLevel shown) : shown_(shown) {}
  void write(base::LogLevel level, std::string_view name, std::string_view message) override {
    if (level < shown_) return;
    const uint64_t now_ns = world == nullptr ? 0 : world->now_ns();
    fmt::print(stderr, "{:4}.{:09} {:7} {}: {}\n", now_ns / kSecond, now_ns % kSecond,
               base::to_string(level), name, message);
  }
  const SimWorld* world = nullptr;

 private:
  const base::LogLevel shown_;
};

// Until paths that were lost in the last moment are found to be lost, and are made again.
constexpr uint64_t kSettleNs = 10 * kSecond;
constexpr uint64_t kOnTheWayNs = base::kMillisecond;      // a message that no fault delays
constexpr uint64_t kListenNs = 100 * base::kMillisecond;  // less than silence takes to be noticed
constexpr uint64_t kCalmPhaseNs = 300 * base::kMillisecond;

base::sim::SimWorldOptions world_options(const RoundOptions& options,
                                         const std::shared_ptr<TimedSink>& sink) {
  base::sim::SimWorldOptions world;
  world.seed = options.seed;
  world.mutants = options.mutants;
  world.log_sink = sink;
  // Lines that are bounded set timers (base/limited_log.h): they are said in each round, shown or
  // not, so that it is the same round.
  world.log_level = std::min(options.log_level, base::LogLevel::kInfo);
  world.trace = options.trace;
  return world;
}

std::string path_of(const DevicePlan& device) {
  return std::string(kExportRoot) + "/" + device.name;
}

class Round : private Victims {
 public:
  explicit Round(const RoundOptions& options);
  /// What the processes hold on to goes after them.
  ~Round() override;
  RoundReport run();

 private:
  struct Process {
    SimMachine* machine = nullptr;
    SimHost* host = nullptr;  // null while it is down
  };
  struct Server : Process {
    ServerProgram* program = nullptr;
    uint64_t deaths = 0;
    std::vector<bool> heard_late;  // by client: what came after its last death
    bool upgraded = false;
  };
  struct Client : Process {
    ClientProgram* program = nullptr;
    uint64_t starts = 0;
    bool upgraded = false;
  };

  SimHost* server(size_t index) override { return servers_[index].host; }
  SimHost* client(size_t index) override { return clients_[index].host; }
  SimDisk* disk(size_t device) override { return disks_[device]; }
  void kill_server(size_t index, bool power) override;
  void start_server(size_t index) override;
  void kill_client(size_t index, bool power) override;
  void start_client(size_t index) override;
  void disk_may_fail(size_t device, bool on) override { judge_.disk_may_fail(device, on); }
  void marks_may_fail(size_t device) override { judge_.marks_may_fail(device); }
  void disk_may_fill(size_t device, bool on) override { judge_.disk_may_fill(device, on); }
  void disk_may_lie(size_t device, bool on) override { judge_.disk_may_lie(device, on); }
  void operator_closes(size_t device) override {
    judge_.operator_closes(device);
    servers_[plan_.devices[device].server].program->force_close({plan_.devices[device].name, ""});
  }
  void resize(size_t device, uint64_t sectors, std::function<void()> hit) override;
  bool resize_away(size_t device, uint64_t sectors) override;
  void restore_size(size_t device) override;
  void replace_file(size_t device) override;
  base::sim::SimDiskOptions disk_options(const DevicePlan& device) const;
  void watch_disk(size_t device);
  void disks_work_again(size_t device) {
    judge_.disk_may_fail(device, false);
    judge_.disk_may_fill(device, false);
    judge_.disk_may_lie(device, false);
  }
  void operator_closes_session(size_t server, size_t client) override;
  void set_keys(size_t server, std::optional<size_t> without) override {
    servers_[server].program->set_keys(plan_, without);
  }
  void fail_adapter(bool of_server, size_t index, vhca::DeviceFault fault, uint64_t which,
                    std::function<void()> hit) override;
  bool reconnecting_to(size_t server) override;
  size_t requests_at(size_t server) const override { return judge_.requests_at(server); }
  size_t requests_of(size_t client) const override { return judge_.requests_of(client); }
  size_t requests_between(size_t client, size_t server) const override {
    return judge_.requests_between(client, server);
  }
  void check_silence_noticed(size_t server, const std::vector<size_t>& waiting) override;
  uint64_t heard_ns(size_t client, size_t server);

  void check_give_ups_later(size_t server);
  void check_gave_up(size_t server, size_t client, uint64_t killed_ns);
  void listen_for_late_words(size_t server, uint64_t death, uint64_t killed_ns);
  void build();
  bool mutant(std::string_view name) const;
  void set_activity(Activity activity);
  /// False: it took too long, which is a violation.
  template <typename Predicate>
  bool reach(std::string_view what, Predicate predicate);
  std::string explain() const;
  void check_servers(bool all_closed);
  void come_to_rest();
  RoundReport report();
  FaultCounts count_faults();
  std::map<std::string, uint64_t> count_refused() const;

  const std::shared_ptr<TimedSink> sink_;
  base::Logger log_;
  SimWorld world_;
  base::sim::SimRandom random_;
  const Plan plan_;
  Judge judge_;
  Board board_{plan_};
  ProgressChecker progress_{judge_.violations(), kProgressBoundNs};
  std::vector<Server> servers_;
  std::vector<Client> clients_;
  std::vector<SimDisk*> disks_;
  std::vector<SimDisk*> replaced_disks_;
  bool restored_ = false;  // all files have their planned sizes, or get them next
  uint64_t rest_after_ns_ = 0;
  uint64_t upgrades_ = 0;
  Injector injector_;
};

Round::Round(const RoundOptions& options)
    : sink_(std::make_shared<TimedSink>(options.log_level)),
      log_(sink_, "sim", options.log_level),
      world_(world_options(options, sink_)),
      random_(world_.random().fork()),
      plan_(Plan::draw(random_, options.fault_phase_ns)),
      judge_(world_, plan_, log_),
      injector_(world_, plan_, board_, *this, log_) {
  sink_->world = &world_;
  judge_.on_begin = [this](size_t client, size_t device) {
    injector_.request_begins(client, device);
  };
  judge_.disturbed = [this](size_t client, uint64_t since_ns) {
    const SimHost* const host = clients_[client].host;
    return host == nullptr || host->disturbed_since(since_ns);
  };
  build();
}

bool Round::mutant(std::string_view name) const {
  const std::vector<std::string>& on = world_.options().mutants;
  return std::find(on.begin(), on.end(), name) != on.end();
}

Round::~Round() {
  for (const Server& server : servers_)
    if (server.host != nullptr) server.host->kill(true);
  for (const Client& client : clients_)
    if (client.host != nullptr) client.host->kill(true);
}

void Round::build() {
  for (const ServerPlan& plan : plan_.servers) {
    Server server;
    server.machine = &world_.add_machine(plan.name);
    world_.fabric().add_port(*server.machine, plan.ip);
    world_.fabric().add_port(*server.machine, plan.second_ip);
    servers_.push_back(server);
  }
  for (const DevicePlan& device : plan_.devices) {
    SimMachine& machine = *servers_[device.server].machine;
    disks_.push_back(device.memory ? nullptr
                                   : &machine.add_disk(path_of(device), disk_options(device)));
  }
  for (size_t d = 0; d < disks_.size(); ++d) watch_disk(d);
  for (const ClientPlan& plan : plan_.clients) {
    Client client;
    client.machine = &world_.add_machine(plan.name);
    world_.fabric().add_port(*client.machine, plan.ip);
    if (!plan.second_ip.empty()) world_.fabric().add_port(*client.machine, plan.second_ip);
    clients_.push_back(client);
  }
  for (size_t i = 0; i < servers_.size(); ++i) start_server(i);
  for (size_t i = 0; i < clients_.size(); ++i) start_client(i);
}

void Round::watch_disk(size_t device) {
  if (disks_[device] == nullptr) return;
  disks_[device]->on_write = [this, device](uint64_t offset, std::span<const std::byte> data) {
    judge_.disk_stores(device, offset / kSectorBytes, data);
  };
}

base::sim::SimDiskOptions Round::disk_options(const DevicePlan& device) const {
  base::sim::SimDiskOptions options;
  options.size_bytes = device.sectors * kSectorBytes;
  options.erases = device.erases;
  options.lying = mutant(kLyingMutant);
  options.misdirecting = mutant(kMisdirectingMutant);
  options.reverting = mutant(kRevertingMutant);
  return options;
}

// --- victims

void Round::start_server(size_t index) {
  Server& server = servers_[index];
  if (!server.machine->powered()) server.machine->power_on();
  server.host = &server.machine->start_process("braidd");
  const ServerPlan& plan = plan_.servers[index];
  uint32_t features = plan.features;
  if (server.deaths > 0 && plan.upgraded) {
    upgrades_ += features != trs::kAllFeatures && !server.upgraded;
    server.upgraded = true;
    features = trs::kAllFeatures;
  }
  auto program = std::make_unique<ServerProgram>(*server.host, plan_, index, features);
  server.program = program.get();
  server.host->run(std::move(program));
}

void Round::kill_server(size_t index, bool power) {
  Server& server = servers_[index];
  server.program->check_no_breach(judge_.violations());
  if (power) {
    server.machine->power_loss();
    judge_.server_lost_power(index);
    for (size_t d = 0; d < disks_.size(); ++d)
      if (plan_.devices[d].server == index) disks_work_again(d);
  } else {
    server.host->kill();
    judge_.server_died(index);
  }
  server.host = nullptr;
  server.program = nullptr;
  check_give_ups_later(index);
}

void Round::check_give_ups_later(size_t server) {
  const uint64_t death = ++servers_[server].deaths;
  const uint64_t killed_ns = world_.now_ns();
  servers_[server].heard_late.assign(clients_.size(), false);
  listen_for_late_words(server, death, killed_ns);
  for (size_t i = 0; i < clients_.size(); ++i) {
    const uint64_t limit_ns = plan_.clients[i].held_max_ns();
    if (limit_ns == base::kNever) continue;
    world_.after(limit_ns + GiveUpChecker::kSlackNs, [this, server, death, killed_ns, i] {
      const Server& its = servers_[server];
      if (its.host == nullptr && its.deaths == death) check_gave_up(server, i, killed_ns);
    });
  }
}

/// What it had sent before may be delayed: who hears that takes it for alive.
void Round::listen_for_late_words(size_t server, uint64_t death, uint64_t killed_ns) {
  world_.after(kListenNs, [this, server, death, killed_ns] {
    Server& its = servers_[server];
    if (its.host != nullptr || its.deaths != death) return;
    for (size_t i = 0; i < clients_.size(); ++i)
      if (heard_ns(i, server) > killed_ns + kOnTheWayNs) its.heard_late[i] = true;
    listen_for_late_words(server, death, killed_ns);
  });
}

void Round::check_gave_up(size_t server, size_t client, uint64_t killed_ns) {
  const Client& its = clients_[client];
  if (its.program == nullptr || its.host->disturbed_since(killed_ns)) return;
  if (servers_[server].heard_late[client]) return;
  judge_.check_gave_up(client, server);
}

bool Round::reconnecting_to(size_t server) {
  return std::any_of(clients_.begin(), clients_.end(), [server](const Client& client) {
    return client.program != nullptr && client.program->reconnecting_to(server);
  });
}

void Round::start_client(size_t index) {
  Client& client = clients_[index];
  if (!client.machine->powered()) client.machine->power_on();
  client.host = &client.machine->start_process("user");
  const ClientPlan& plan = plan_.clients[index];
  uint32_t features = plan.features;
  if (client.starts++ > 0 && plan.upgraded) {
    upgrades_ += features != trs::kAllFeatures && !client.upgraded;
    client.upgraded = true;
    features = trs::kAllFeatures;
  }
  auto program = std::make_unique<ClientProgram>(*client.host, plan_, index, features, judge_,
                                                 board_, random_.next());
  client.program = program.get();
  client.host->run(std::move(program));
}

void Round::operator_closes_session(size_t server, size_t client) {
  for (size_t d = 0; d < plan_.devices.size(); ++d)
    if (plan_.devices[d].server == server && plan_.devices[d].used_by(client))
      judge_.operator_closes(d);
  servers_[server].program->force_close({"", plan_.clients[client].name});
}

void Round::resize(size_t device, uint64_t sectors, std::function<void()> hit) {
  if (!judge_.resize_begins(device, sectors)) return;
  const DevicePlan& plan = plan_.devices[device];
  const bool in_use = judge_.requests_at(plan.server) != 0;
  const auto ended = [this, device, in_use, hit = std::move(hit)](bool done) {
    judge_.resize_ended(device, done);
    if (done && in_use) hit();
    if (restored_) restore_size(device);
  };
  servers_[plan.server].program->resize(plan.name, sectors * kSectorBytes, ended);
}

bool Round::resize_away(size_t device, uint64_t sectors) {
  if (!judge_.resized_away(device, sectors)) return false;
  disks_[device]->resize(sectors * kSectorBytes);
  return true;
}

void Round::restore_size(size_t device) {
  restored_ = true;
  if (disks_[device] == nullptr || judge_.being_resized(device)) return;
  judge_.size_restored(device);
  disks_[device]->resize(plan_.devices[device].sectors * kSectorBytes);
}

void Round::replace_file(size_t device) {
  const DevicePlan& plan = plan_.devices[device];
  replaced_disks_.push_back(disks_[device]);
  disks_[device] = &servers_[plan.server].machine->replace_disk(path_of(plan), disk_options(plan));
  watch_disk(device);
  judge_.disk_may_lie(device, false);  // it was the old one that lied
  judge_.file_replaced(device);
}

void Round::fail_adapter(bool of_server, size_t index, vhca::DeviceFault fault, uint64_t which,
                         std::function<void()> hit) {
  if (of_server) {
    servers_[index].program->fail_adapter(fault, which, std::move(hit));
  } else {
    clients_[index].program->fail_adapter(fault, which, std::move(hit));
  }
}

void Round::kill_client(size_t index, bool power) {
  Client& client = clients_[index];
  judge_.client_dies(index);
  board_.client_died(index);
  if (power) {
    client.machine->power_loss();
  } else {
    client.host->kill();
  }
  client.host = nullptr;
  client.program = nullptr;
}

/// What the server had sent before may come late, or be repeated by its machine.
uint64_t Round::heard_ns(size_t client, size_t server) {
  const ClientPlan& at = plan_.clients[client];
  const ServerPlan& from = plan_.servers[server];
  return std::max(world_.fabric().last_heard_ns(at.ip, from.ip),
                  world_.fabric().last_heard_ns(at.second_ip, from.second_ip));
}

void Round::check_silence_noticed(size_t server, const std::vector<size_t>& waiting) {
  for (const size_t i : waiting) {
    const Client& client = clients_[i];
    const uint64_t silent_since_ns = world_.now_ns() - kSilenceNoticedNs;
    if (client.program == nullptr || client.host->disturbed_since(silent_since_ns) ||
        heard_ns(i, server) > silent_since_ns + kOnTheWayNs)
      continue;
    if (client.program->connected_to(server))
      judge_.violations().add("client {} has not noticed that server {} is silent for {} ms", i,
                              server, kSilenceNoticedNs / base::kMillisecond);
  }
}

// --- phases

void Round::set_activity(Activity activity) {
  for (Client& client : clients_)
    if (client.program != nullptr) client.program->set_activity(activity);
}

template <typename Predicate>
bool Round::reach(std::string_view what, Predicate predicate) {
  bool all = false;
  uint64_t waited_ns = 0;
  // Not after every event: that would cost more than the events.
  for (; waited_ns <= progress_.bound_ns(); waited_ns += base::kMillisecond * 5) {
    all = true;
    for (const Client& client : clients_) all = all && predicate(*client.program);
    if (all) break;
    world_.run_for(base::kMillisecond * 5);
  }
  progress_.waited(what, all, waited_ns, judge_.completions().outstanding(), all ? "" : explain());
  return all;
}

std::string Round::explain() const {
  std::string text;
  for (const Client& client : clients_) text += client.program->explain() + ". ";
  return text;
}

/// Of what clients had there, nothing may be left at the servers but what is in use.
void Round::check_servers(bool all_closed) {
  for (size_t i = 0; i < servers_.size(); ++i) {
    size_t sessions = 0;
    if (!all_closed)
      for (const Client& client : clients_) sessions += client.program->connected_to(i);
    servers_[i].program->check_at_rest(judge_.violations(), sessions);
  }
}

/// Everything ends; work in the calm; what is there is read and judged; everything is closed.
void Round::come_to_rest() {
  const auto rests = [](const ClientProgram& client) { return client.at_rest(); };
  set_activity(Activity::kRest);
  const uint64_t healed_ns = world_.now_ns();
  if (!reach("rest", rests)) return;
  rest_after_ns_ = world_.now_ns() - healed_ns;
  judge_.completions().at_rest();
  world_.run_for(kSettleNs);
  judge_.calm_begins();
  set_activity(Activity::kWork);
  world_.run_for(kCalmPhaseNs);
  set_activity(Activity::kRest);
  if (!reach("rest after the calm", rests)) return;
  judge_.completions().at_rest();
  set_activity(Activity::kVerify);
  if (!reach("a look at everything", [](const ClientProgram& c) { return c.verified(); })) return;
  judge_.completions().at_rest();
  for (Client& client : clients_) client.program->check_permits();
  check_servers(false);
  set_activity(Activity::kClose);
  if (!reach("closing", [](const ClientProgram& c) { return c.closed(); })) return;
  world_.run_for(kSecond);
  judge_.finish();
  check_servers(true);
  for (Server& server : servers_) {
    server.program->check_no_breach(judge_.violations());
    server.program->stop();
    if (!world_.run_until([&] { return server.program->stopped(); }, kProgressBoundNs))
      judge_.violations().add("a server did not stop within its bound");
  }
  world_.run_for(kSecond);
  for (const std::string& end : world_.fabric().open_ends())
    judge_.violations().add("a channel is left after everything was closed: {}", end);
}

RoundReport Round::run() {
  if (mutant(kCrashMutant)) world_.after(base::kSecond, [] { std::abort(); });
  injector_.start();
  world_.run_for(plan_.fault_phase_ns);
  injector_.stop_and_heal();
  log_.info("faults stopped, everything healed");
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
  report.rest_after_ns = rest_after_ns_;
  report.losses_reported = judge_.losses_reported();
  report.faults = count_faults();
  report.refused = count_refused();
  return report;
}

FaultCounts Round::count_faults() {
  FaultCounts counts = injector_.counts();
  const auto set = [&counts](FaultKind kind, uint64_t n) { counts[static_cast<size_t>(kind)] = n; };
  const BoardCounters& did = board_.counters;
  set(FaultKind::kDeviceRemapped, did.devices_remapped);
  set(FaultKind::kSessionRemapped, did.sessions_remapped);
  set(FaultKind::kSessionLost, did.sessions_lost);
  set(FaultKind::kHandedOver, did.handed_over);
  set(FaultKind::kContested, did.contested);
  set(FaultKind::kTakenOver, did.superseded);
  set(FaultKind::kTakenAway, did.taken_away);
  set(FaultKind::kPathTaken, did.paths_taken);
  set(FaultKind::kMemoryReplaced, did.replaced);
  set(FaultKind::kGaveUp, judge_.give_ups().count());
  uint64_t lost = 0, late = 0;
  const auto add = [&](const SimDisk* disk) {
    if (disk == nullptr) return;
    lost += disk->counters().sectors_lost;
    late += disk->counters().late_writes;
  };
  for (const SimDisk* disk : disks_) add(disk);
  for (const SimDisk* disk : replaced_disks_) add(disk);
  set(FaultKind::kWritesLost, lost);
  set(FaultKind::kLateWrites, late);
  set(FaultKind::kLateReactor, world_.counters().late_turns);
  set(FaultKind::kUpgraded, upgrades_);
  return counts;
}

std::map<std::string, uint64_t> Round::count_refused() const {
  std::map<std::string, uint64_t> counts;
  const auto add = [&counts](std::string_view who, const Process& process) {
    for (const auto& host : process.machine->processes())
      for (const auto& [what, times] : host->refused())
        counts[fmt::format("{}: {}", who, what)] += times;
  };
  for (const Client& client : clients_) add("client", client);
  for (const Server& server : servers_) add("server", server);
  return counts;
}

}  // namespace

RoundReport run_round(const RoundOptions& options) {
  return Round(options).run();
}

}  // namespace braid::sim
