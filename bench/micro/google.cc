#include "bench/micro/google.h"

#include "bench/workload.h"

namespace braid::bench {
namespace {

// Takes the one result and prints nothing.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.error_occurred) error = run.error_message;
      if (run.iterations > 0) {
        ns_per_iteration = run.real_accumulated_time * 1e9 / static_cast<double>(run.iterations);
      }
    }
  }
  double ns_per_iteration = 0;
  std::string error;
};

class BenchmarkLoop : public Candidate {
 public:
  BenchmarkLoop(std::string name, std::function<void(benchmark::State&)> loop)
      : name_(std::move(name)), loop_(std::move(loop)) {}
  std::string name() const override { return name_; }
  std::string threads() const override { return "one, which runs all the time"; }
  base::Status prepare(Bench&) override { return base::ok_status(); }

  base::Result<Sample> run(Bench& bench) override {
    const double seconds_min = bench.options.quick ? 0.001 : 0.2;
    BRAID_TRY(Process child,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                benchmark::RegisterBenchmark(name_.c_str(), [this](benchmark::State& state) {
                  loop_(state);
                })->MinTime(seconds_min);
                Collector collector;
                benchmark::RunSpecifiedBenchmarks(&collector, ".*");
                if (!collector.error.empty()) throw std::runtime_error(collector.error);
                channel.send(to_json(Sample{.value = collector.ns_per_iteration}));
              }));
    BRAID_TRY(const auto message, child.receive(60'000));
    return sample_from_json(message);
  }

 private:
  std::string name_;
  std::function<void(benchmark::State&)> loop_;
};

}  // namespace

std::unique_ptr<Candidate> benchmark_loop(std::string name,
                                          std::function<void(benchmark::State&)> loop) {
  return std::make_unique<BenchmarkLoop>(std::move(name), std::move(loop));
}

}  // namespace braid::bench
