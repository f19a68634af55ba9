#include "bench/peers/fio.h"

#include <fstream>
#include <sstream>

namespace braid::bench {
namespace {

constexpr int kFioFillMs = 120'000;
constexpr unsigned kRampMs = 500;
constexpr int kFioCompareMs = 60'000;
constexpr const char* kFillBlock = "--bs=64k";  // a checksum each

std::string words_of(const BlockWork& work) {
  return std::string(work.sequential ? "" : "rand") + (work.write ? "write" : "read");
}

class FioJob : public Candidate {
 public:
  FioJob(std::unique_ptr<FioTarget> target, const BlockWork& work)
      : target_(std::move(target)), work_(work) {}
  std::string name() const override { return target_->name(); }
  std::string threads() const override { return target_->threads(); }

  base::Status prepare(Bench& bench) override {
    if (find_program("fio").empty()) {
      return base::make_error(base::Errc::kNotFound, "fio: not installed");
    }
    BRAID_CHECK(target_->start(bench, block_workload(bench.options).store_bytes));
    // Pages never written read as zeroes without being copied. One short write at a time:
    // qemu-storage-daemon's FUSE export receives the next request into the buffer of a write that
    // it has not done yet, and stores what is there then (7.2; a cure, "fuse: Copy write buffer
    // content before polling", was proposed in February 2026).
    return run_fio(bench,
                   {"--rw=write", kFillBlock, "--iodepth=1", "--refill_buffers", "--verify=crc32c",
                    "--do_verify=0"},
                   kFioFillMs);
  }

  base::Result<Sample> run(Bench& bench) override {
    const BlockWorkload sizes = block_workload(bench.options);
    const unsigned ramp_ms = bench.options.quick ? 0 : kRampMs;
    const CpuMeter meter(target_->servers());
    BRAID_CHECK(
        run_fio(bench,
                {"--rw=" + words_of(work_), fmt::format("--bs={}", work_.block_bytes),
                 fmt::format("--iodepth={}", work_.depth), "--time_based",
                 fmt::format("--runtime={}ms", sizes.run_ms),
                 fmt::format("--ramp_time={}ms", ramp_ms), "--randrepeat=0", "--norandommap"},
                static_cast<int>(sizes.run_ms + ramp_ms) + 30'000));
    std::ifstream in(result(bench));
    std::ostringstream text;
    text << in.rdbuf();
    BRAID_TRY(Sample sample, parse_fio(text.str(), work_));
    // The servers also work during the ramp.
    const double per_second = sample.value / in_unit_of(work_, 1);
    const double operations = per_second * (sizes.run_ms + ramp_ms) / 1000;
    *sample.cpu_ns += static_cast<double>(meter.used_ns()) / operations;
    if (!work_.write) BRAID_CHECK(compare(bench));
    return sample;
  }

 private:
  /// The first blocks are what was filled in: after the timed pass.
  base::Status compare(Bench& bench) {
    const base::Status same =
        run_fio(bench, {"--rw=read", kFillBlock, "--iodepth=1", "--io_size=16M", "--verify=crc32c"},
                kFioCompareMs);
    if (!same.ok()) return same.error().with("a compare of what was written before");
    return same;
  }
  static std::string result(const Bench& bench) { return bench.scratch.path("fio.json"); }

  base::Status run_fio(Bench& bench, const std::vector<std::string>& workload, int timeout_ms) {
    const uint64_t store_bytes = block_workload(bench.options).store_bytes;
    Command command{.arguments = {"fio", "--name=job", fmt::format("--size={}", store_bytes),
                                  "--group_reporting", "--verify_state_save=0",
                                  "--output-format=json", "--output=" + result(bench)},
                    .environment = target_->environment(),
                    .cpu = bench.cpus.client,
                    .output_file = bench.scratch.path("fio.out")};
    for (const auto& more : {target_->engine(), workload}) {
      command.arguments.insert(command.arguments.end(), more.begin(), more.end());
    }
    BRAID_TRY(Process fio, Process::run(bench.interrupts, command));
    const base::Status status = fio.wait(timeout_ms);
    if (!status.ok()) return status.error().with("fio: {}", last_lines(command.output_file));
    return base::ok_status();
  }

  const std::unique_ptr<FioTarget> target_;
  const BlockWork work_;
};

}  // namespace

std::unique_ptr<Candidate> fio_job(std::unique_ptr<FioTarget> target, const BlockWork& work) {
  return std::make_unique<FioJob>(std::move(target), work);
}

base::Result<Sample> parse_fio(const std::string& text, const BlockWork& work) {
  // fio may put warnings in front of the document.
  const auto document =
      nlohmann::json::parse(text.substr(std::min(text.find('{'), text.size())), nullptr, false);
  try {
    const auto& job = document.at("jobs").at(0);
    if (job.at("error") != 0) {
      return base::make_error(base::Errc::kIo, "fio reports error {}", job["error"].dump());
    }
    const auto& done = job.at(work.write ? "write" : "read");
    const auto& percentiles = done.at("clat_ns").at("percentile");
    const double per_second = done.at("iops");
    return Sample{.value = in_unit_of(work, per_second),
                  .latencies = Latencies{.p50_ns = percentiles.at("50.000000"),
                                         .p99_ns = percentiles.at("99.000000"),
                                         .p999_ns = percentiles.at("99.900000")},
                  .cpu_ns = (job.at("usr_cpu").get<double>() + job.at("sys_cpu").get<double>()) *
                            1e7 / per_second};
  } catch (const nlohmann::json::exception& e) {
    return base::make_error(base::Errc::kIo, "fio's output is not as expected: {}", e.what());
  }
}

}  // namespace braid::bench
