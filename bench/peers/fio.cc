#include "bench/peers/fio_nbdkit.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/workload.h"

namespace braid::bench {
namespace {

constexpr int kStartMs = 10'000;
constexpr int kFillMs = 120'000;

class FioOnNbdkit : public Candidate {
 public:
  std::string name() const override { return "fio nbd engine on nbdkit memory, unix socket"; }
  std::string threads() const override { return "fio's job, nbdkit's default threads; all sleep"; }

  base::Status prepare(Bench& bench) override {
    const BlockWorkload work = block_workload(bench.options);
    const std::string ready = bench.scratch.path("nbdkit.pid");
    const Command command{.arguments = {"nbdkit", "-f", "-P", ready, "-U", socket(bench), "memory",
                                        std::to_string(work.store_bytes)},
                          .cpu = bench.cpus.server,
                          .output_file = bench.scratch.path("nbdkit.out")};
    BRAID_TRY(server_, Process::run(bench.interrupts, command));
    // nbdkit writes the file once it accepts connections.
    for (int waited_ms = 0; !std::filesystem::exists(ready); waited_ms += 5) {
      if (waited_ms >= kStartMs || !server_->running()) {
        return base::make_error(base::Errc::kTimedOut, "nbdkit did not start: {}",
                                last_lines(command.output_file));
      }
      BRAID_CHECK(bench.interrupts.pause_ms(5));
    }
    // Pages never written read as zeroes without being copied.
    return run_fio(bench, {"--rw=write", "--bs=1M", "--iodepth=4", "--refill_buffers"}, kFillMs);
  }

  base::Result<Sample> run(Bench& bench) override {
    const BlockWorkload work = block_workload(bench.options);
    const unsigned ramp_ms = bench.options.quick ? 0 : 500;
    const CpuMeter meter({server_->pid()});
    BRAID_CHECK(
        run_fio(bench,
                {"--rw=randread", "--bs=" + std::to_string(kBlockBytes), "--iodepth=1",
                 "--time_based", fmt::format("--runtime={}ms", work.run_ms),
                 fmt::format("--ramp_time={}ms", ramp_ms), "--randrepeat=0", "--norandommap"},
                static_cast<int>(work.run_ms + ramp_ms) + 30'000));
    std::ifstream in(result(bench));
    std::ostringstream text;
    text << in.rdbuf();
    BRAID_TRY(Sample sample, parse_fio(text.str()));
    // nbdkit also works during the ramp.
    const double operations = sample.value * (work.run_ms + ramp_ms) / 1000;
    *sample.cpu_ns += static_cast<double>(meter.used_ns()) / operations;
    return sample;
  }

 private:
  static std::string socket(const Bench& bench) { return bench.scratch.path("nbdkit.sock"); }
  static std::string result(const Bench& bench) { return bench.scratch.path("fio.json"); }

  base::Status run_fio(Bench& bench, const std::vector<std::string>& workload, int timeout_ms) {
    const BlockWorkload work = block_workload(bench.options);
    Command command{.arguments = {"fio", "--name=peer", "--ioengine=nbd",
                                  "--uri=nbd+unix:///?socket=" + socket(bench),
                                  fmt::format("--size={}", work.store_bytes), "--group_reporting",
                                  "--output-format=json", "--output=" + result(bench)},
                    .cpu = bench.cpus.client,
                    .output_file = bench.scratch.path("fio.out")};
    command.arguments.insert(command.arguments.end(), workload.begin(), workload.end());
    BRAID_TRY(Process fio, Process::run(bench.interrupts, command));
    const base::Status status = fio.wait(timeout_ms);
    if (!status.ok()) return status.error().with("fio: {}", last_lines(command.output_file));
    return base::ok_status();
  }

  std::optional<Process> server_;
};

}  // namespace

std::unique_ptr<Candidate> fio_on_nbdkit() {
  return std::make_unique<FioOnNbdkit>();
}

base::Result<Sample> parse_fio(const std::string& text) {
  // fio may put warnings in front of the document.
  const auto document =
      nlohmann::json::parse(text.substr(std::min(text.find('{'), text.size())), nullptr, false);
  try {
    const auto& job = document.at("jobs").at(0);
    if (job.at("error") != 0) {
      return base::make_error(base::Errc::kIo, "fio reports error {}", job["error"].dump());
    }
    const auto& read = job.at("read");
    const auto& percentiles = read.at("clat_ns").at("percentile");
    return Sample{.value = read.at("iops"),
                  .latencies = Latencies{.p50_ns = percentiles.at("50.000000"),
                                         .p99_ns = percentiles.at("99.000000"),
                                         .p999_ns = percentiles.at("99.900000")},
                  .cpu_ns = (job.at("usr_cpu").get<double>() + job.at("sys_cpu").get<double>()) *
                            1e7 / read.at("iops").get<double>()};
  } catch (const nlohmann::json::exception& e) {
    return base::make_error(base::Errc::kIo, "fio's output is not as expected: {}", e.what());
  }
}

}  // namespace braid::bench
