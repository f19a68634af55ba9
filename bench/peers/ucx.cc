#include "bench/peers/ucx.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include "bench/peers/free_port.h"
#include "bench/workload.h"

namespace braid::bench {
namespace {

constexpr int kUcxStartMs = 10'000;
constexpr int kUcxRunMs = 60'000;

// By the kernel's table, since a trial connection would be taken for the client.
bool somebody_listens(uint16_t port) {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(table);
    for (std::string line; std::getline(in, line);) {
      std::istringstream fields(line);
      std::string slot, local, remote, state;
      fields >> slot >> local >> remote >> state;
      if (state == "0A" && local.ends_with(fmt::format(":{:04X}", port))) return true;
    }
  }
  return false;
}

class UcxActiveMessage : public Candidate {
 public:
  std::string name() const override { return "ucx_perftest ucp_am_lat, shared memory"; }

  base::Status prepare(Bench&) override {
    if (find_program("ucx_perftest").empty()) {
      return base::make_error(base::Errc::kNotFound, "ucx_perftest: not installed");
    }
    return base::ok_status();
  }

  std::string threads() const override { return "one a side; both spin, no yield"; }

  base::Result<Sample> run(Bench& bench) override {
    const bool quick = bench.options.quick;
    const Job whole{.messages = quick ? 50u : 1'000'000u, .percentile = 50};
    const Job tail{.messages = quick ? 20u : 200'000u, .percentile = 99};
    BRAID_TRY(const Outcome all, run_job(bench, whole));
    BRAID_TRY(const Outcome slowest, run_job(bench, tail));
    Sample sample = all.sample;
    sample.latencies->p99_ns = slowest.sample.latencies->p50_ns;
    // What both spend on starting is the same; the rest is for the messages.
    if (all.cpu_ns > slowest.cpu_ns) {
      sample.cpu_ns = static_cast<double>(all.cpu_ns - slowest.cpu_ns) /
                      static_cast<double>(messages_sent(whole) - messages_sent(tail));
    }
    return sample;
  }

 private:
  struct Job {
    unsigned messages = 0;  // round trips that are timed; a tenth as many warm up
    unsigned percentile = 50;
    unsigned warm_up() const { return messages / 10; }
  };
  struct Outcome {
    Sample sample;  // p50 is the percentile asked for
    uint64_t cpu_ns = 0;
  };
  static uint64_t messages_sent(const Job& job) {
    return 2 * (uint64_t{job.messages} + job.warm_up());
  }

  static base::Result<Outcome> run_job(Bench& bench, const Job& job) {
    // Another program may take the port between the choice and its use.
    for (int attempt = 1;; ++attempt) {
      auto outcome = run_once(bench, job);
      if (outcome.ok() || outcome.code() == base::Errc::kCanceled || attempt == 3) return outcome;
    }
  }

  static base::Result<Outcome> run_once(Bench& bench, const Job& job) {
    BRAID_TRY(const uint16_t port, free_port());
    Command server{
        .arguments = {"ucx_perftest", "-p", std::to_string(port), "-t", "ucp_am_lat", "-s", "8",
                      "-n", std::to_string(job.messages), "-w", std::to_string(job.warm_up()), "-R",
                      std::to_string(job.percentile)},
        .environment = {"UCX_TLS=posix,cma,self"},
        .cpus = {bench.cpus.server},
        .output_file = bench.scratch.path("ucx-server.out")};
    BRAID_TRY(Process serving, Process::run(bench.interrupts, server));
    for (int waited_ms = 0; !somebody_listens(port); waited_ms += 5) {
      if (waited_ms >= kUcxStartMs || !serving.running()) {
        return base::make_error(base::Errc::kTimedOut, "ucx_perftest does not listen: {}",
                                last_lines(server.output_file));
      }
      BRAID_CHECK(bench.interrupts.pause_ms(5));
    }
    Command client = server;
    client.arguments.insert(client.arguments.end(), {"-f", "-v", "127.0.0.1"});
    client.cpus = {bench.cpus.client};
    client.output_file = bench.scratch.path(fmt::format("ucx-{}.out", port));
    BRAID_TRY(Process asking, Process::run(bench.interrupts, client));
    for (Process* side : {&asking, &serving}) {
      const base::Status status = side->wait(kUcxRunMs);
      if (!status.ok()) {
        return status.error().with("ucx_perftest: {}", last_lines(client.output_file));
      }
    }
    BRAID_TRY(const Sample sample, parse_ucx(last_lines(client.output_file)));
    return Outcome{.sample = sample, .cpu_ns = asking.cpu_ns() + serving.cpu_ns()};
  }
};

}  // namespace

std::unique_ptr<Candidate> ucx_active_message() {
  return std::make_unique<UcxActiveMessage>();
}

base::Result<Sample> parse_ucx(const std::string& text) {
  // iterations,50.0_percentile_lat,avg_lat,overall_lat,...; the last line is the result, in us one
  // way.
  std::istringstream lines(text);
  std::string line, last;
  while (std::getline(lines, line)) last = line;
  std::istringstream fields(last);
  double iterations = 0, percentile_us = 0, average_us = 0, overall_us = 0;
  char c1 = 0, c2 = 0, c3 = 0;
  fields >> iterations >> c1 >> percentile_us >> c2 >> average_us >> c3 >> overall_us;
  if (!fields || c1 != ',' || c2 != ',' || c3 != ',' || overall_us <= 0) {
    return base::make_error(base::Errc::kIo, "ucx_perftest's output is not as expected: \"{}\"",
                            last);
  }
  return Sample{
      .value = overall_us * 1000,
      .latencies = Latencies{.p50_ns = static_cast<uint64_t>(percentile_us * 1000 + 0.5)}};
}

}  // namespace braid::bench
