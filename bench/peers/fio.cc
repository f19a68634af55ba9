#include "bench/peers/fio.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

namespace braid::bench {
namespace {

constexpr int kFioFillMs = 120'000;
constexpr unsigned kRampMs = 500;
constexpr int kFioCompareMs = 60'000;
constexpr const char* kFillBlock = "--bs=64k";  // a checksum each
constexpr std::string_view kTimed = "timed";

using Words = std::vector<std::string>;

std::string words_of(const BlockWork& work) {
  return std::string(work.sequential ? "" : "rand") + (work.write ? "write" : "read");
}

// Jobs of fio, each by itself when several are given. Pages never written read as zeroes without
// being copied, so all is filled first. One short write at a time: qemu-storage-daemon's FUSE
// export receives the next request into the buffer of a write that it has not done yet, and stores
// what is there then (7.2; a cure, "fuse: Copy write buffer content before polling", was proposed
// in February 2026).
const Words kFill = {"--name=fill", "--stonewall",      "--rw=write",      kFillBlock,
                     "--iodepth=1", "--refill_buffers", "--verify=crc32c", "--do_verify=0"};
/// The first blocks are what was filled in: after the timed pass.
const Words kCompare = {"--name=compare", "--stonewall",   "--rw=read",      kFillBlock,
                        "--iodepth=1",    "--io_size=16M", "--verify=crc32c"};

Words timed(const BlockWork& work, unsigned run_ms, unsigned ramp_ms) {
  return {fmt::format("--name={}", kTimed), "--stonewall", "--rw=" + words_of(work),
          fmt::format("--bs={}", work.block_bytes), fmt::format("--iodepth={}", work.depth),
          "--time_based", fmt::format("--runtime={}ms", run_ms),
          fmt::format("--ramp_time={}ms", ramp_ms), "--randrepeat=0", "--norandommap",
          // Of a whole request, its submission included, as the floors are timed.
          "--clat_percentiles=0", "--lat_percentiles=1"};
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
    if (bench.options.quick) return base::ok_status();
    return run_fio(bench, {kFill}, kFioFillMs);
  }

  base::Result<Sample> run(Bench& bench) override {
    return bench.options.quick ? run_at_once(bench) : run_alone(bench);
  }

 private:
  /// A start of fio takes longer than a quick run: one for all jobs.
  base::Result<Sample> run_at_once(Bench& bench) {
    std::vector<Words> jobs = {kFill, timed(work_, block_workload(bench.options).run_ms, 0)};
    if (!work_.write) jobs.push_back(kCompare);
    BRAID_CHECK(run_fio(bench, jobs, kFioFillMs));
    return sample(bench);
  }

  base::Result<Sample> run_alone(Bench& bench) {
    const unsigned run_ms = block_workload(bench.options).run_ms, all_ms = run_ms + kRampMs;
    const CpuMeter meter(target_->servers());
    BRAID_CHECK(run_fio(bench, {timed(work_, run_ms, kRampMs)}, static_cast<int>(all_ms) + 30'000));
    BRAID_TRY(Sample taken, sample(bench));
    // The servers also work during the ramp.
    const double operations = taken.value / in_unit_of(work_, 1) * all_ms / 1000;
    *taken.cpu_ns += static_cast<double>(meter.used_ns()) / operations;
    if (work_.write) return taken;
    const base::Status same = run_fio(bench, {kCompare}, kFioCompareMs);
    if (!same.ok()) return same.error().with("a compare of what was written before");
    return taken;
  }

  base::Result<Sample> sample(const Bench& bench) const {
    std::ifstream in(result(bench));
    std::ostringstream text;
    text << in.rdbuf();
    return parse_fio(text.str(), work_);
  }
  static std::string result(const Bench& bench) { return bench.scratch.path("fio.json"); }

  base::Status run_fio(Bench& bench, const std::vector<Words>& jobs, int timeout_ms) {
    const uint64_t store_bytes = block_workload(bench.options).store_bytes;
    Command command{
        .arguments = {"fio", fmt::format("--size={}", store_bytes), "--verify_state_save=0",
                      "--output-format=json", "--output=" + result(bench)},
        .environment = target_->environment(),
        .cpus = {bench.cpus.client},
        .output_file = bench.scratch.path("fio.out")};
    const auto add = [&](const Words& words) {
      command.arguments.insert(command.arguments.end(), words.begin(), words.end());
    };
    add(target_->engine());
    for (const Words& job : jobs) add(job);
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
    const auto& jobs = document.at("jobs");
    for (const auto& job : jobs) {
      if (job.at("error") == 0) continue;
      return base::make_error(base::Errc::kIo, "fio's job \"{}\" reports error {}",
                              job.at("jobname").get<std::string>(), job["error"].dump());
    }
    const auto timed = std::find_if(jobs.begin(), jobs.end(),
                                    [](const auto& job) { return job.at("jobname") == kTimed; });
    if (timed == jobs.end()) {
      return base::make_error(base::Errc::kIo, "fio's output has no job \"{}\"", kTimed);
    }
    const auto& job = *timed;
    const auto& done = job.at(work.write ? "write" : "read");
    const auto& percentiles = done.at("lat_ns").at("percentile");
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
