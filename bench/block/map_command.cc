#include "bench/block/map_command.h"

#include <unistd.h>

#include "bench/block/braid_program.h"
#include "bench/block/remote_server.h"
#include "bench/workload.h"

namespace braid::bench {
namespace {

constexpr int kCommandMs = 10'000;
constexpr uint64_t kMappedBytes = 16 << 20;

std::string disk_name(unsigned index) {
  return fmt::format("disk{}", index);
}

/// Runs a command `count` times, and tells how long each took.
class CommandCandidate : public Candidate {
 public:
  explicit CommandCandidate(unsigned count) : count_(count) {}

  base::Status prepare(Bench& bench) override {
    if (braid_program().empty()) return base::make_error(base::Errc::kNotFound, "braid: not built");
    if (bench.options.quick) count_ = std::min(count_, 5u);
    return base::ok_status();
  }

 protected:
  /// `fails`: the command is to end badly.
  base::Result<Sample> time_each(Bench& bench, const std::string& node, uint16_t port, bool fails) {
    const std::string output = bench.scratch.path("map.out");
    std::vector<uint64_t> durations_ns;
    for (unsigned i = 0; i < count_; ++i) {
      const Command command{
          .arguments = {braid_program(), "--control", node, "map", "--front-end", "fuse",
                        fmt::format("127.0.0.1:{}/{}", port, disk_name(i))},
          .cpus = cpus_of(bench.cpus, Placement::kEither),
          .output_file = output};
      const uint64_t begin_ns = clock_ns();
      BRAID_TRY(Process process, Process::run(bench.interrupts, command));
      const base::Status ended = process.wait(kCommandMs);
      durations_ns.push_back(clock_ns() - begin_ns);
      if (!fails && !ended.ok()) return ended.error().with("{}", last_lines(output));
      if (fails && ended.ok())
        return base::make_error(base::Errc::kIo, "braid map did without a daemon");
    }
    if (count_ > 1) durations_ns.erase(durations_ns.begin());
    Sample sample{.latencies = latencies(durations_ns)};
    sample.value = static_cast<double>(durations_ns.back()) / 1e6;  // sorted now: the longest
    return sample;
  }
  unsigned count() const { return count_; }

 private:
  unsigned count_;
};

class MapCommand : public CommandCandidate {
 public:
  using CommandCandidate::CommandCandidate;
  std::string name() const override {
    return fmt::format("braid map, {} disks, FUSE + loop", count());
  }
  std::string threads() const override {
    return "the command's one; the daemon and the server sleep when nobody asks";
  }
  base::Result<Sample> run(Bench& bench) override {
    ServeOptions options;
    for (unsigned i = 0; i < count(); ++i) options.stores.push_back({disk_name(i), kMappedBytes});
    BRAID_TRY(server_, start_server(bench, options));
    const std::string node = fmt::format("bench.{}.{}", ::getpid(), ++runs_);
    BRAID_TRY(const BraidProgram daemon, start_braid(bench, cpus_of(bench.cpus, Placement::kEither),
                                                     {"--node-name", node}, "braidd"));
    BRAID_TRY(const Sample mapped, time_each(bench, node, server_->port, /*fails=*/false));
    return with_all_mapped(bench, daemon.process.pid(), mapped);
  }

 protected:
  /// What is told; `mapped`: how long it took.
  virtual base::Result<Sample> with_all_mapped(Bench& /*bench*/, pid_t /*daemon*/,
                                               const Sample& mapped) {
    return mapped;
  }
  pid_t server() const { return server_->process.pid(); }

 private:
  std::optional<ServerProcess> server_;  // of the last run
  int runs_ = 0;
};

class MappedIdle : public MapCommand {
 public:
  using MapCommand::MapCommand;
  std::string name() const override {
    return fmt::format("braidd with {} disks by FUSE + loop, and their server", count());
  }
  std::string threads() const override { return "all sleep when nobody asks"; }

 protected:
  base::Result<Sample> with_all_mapped(Bench& bench, pid_t daemon,
                                       const Sample& /*mapped*/) override {
    BRAID_CHECK(bench.interrupts.pause_ms(bench.options.quick ? 1 : 500));
    const CpuMeter meter({daemon, server()});
    const uint64_t begin_ns = clock_ns();
    BRAID_CHECK(bench.interrupts.pause_ms(bench.options.quick ? 20 : 4000));
    const auto passed_ns = static_cast<double>(clock_ns() - begin_ns);
    return Sample{.value = 100 * static_cast<double>(meter.used_ns()) / passed_ns};
  }
};

class CommandAlone : public CommandCandidate {
 public:
  using CommandCandidate::CommandCandidate;
  std::string name() const override { return "braid map without a daemon: the program's start"; }
  std::string threads() const override { return "one"; }
  base::Result<Sample> run(Bench& bench) override {
    return time_each(bench, fmt::format("bench.{}.none", ::getpid()), 1, /*fails=*/true);
  }
};

}  // namespace

std::unique_ptr<Candidate> braid_map_command(unsigned count) {
  return std::make_unique<MapCommand>(count);
}
std::unique_ptr<Candidate> braid_mapped_idle(unsigned count) {
  return std::make_unique<MappedIdle>(count);
}
std::unique_ptr<Candidate> braid_command_alone(unsigned count) {
  return std::make_unique<CommandAlone>(count);
}

}  // namespace braid::bench
