#include "bench/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "bench/spin.h"
#include "bench/stats.h"

namespace braid::bench {
namespace {

std::string read_file(const char* path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The CPUs of its core, as the kernel lists them: "0" or "0,32".
std::string siblings(int cpu) {
  const std::string path =
      fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu);
  const std::string text = read_file(path.c_str());
  return text.substr(0, text.find('\n'));
}

std::string cpu_model() {
  std::istringstream lines(read_file("/proc/cpuinfo"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "unknown";
}

struct PingPong {
  alignas(64) std::atomic<uint32_t> there{0};
  alignas(64) std::atomic<uint32_t> back{0};
};

void answer_pings(PingPong& lines, uint32_t last) {
  for (uint32_t i = 1; i <= last; ++i) {
    Spinner spinner;
    while (lines.there.load(std::memory_order_acquire) != i) spinner.turn();
    lines.back.store(i, std::memory_order_release);
  }
}

}  // namespace

Cpus choose_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  BRAID_ASSERT(sched_getaffinity(0, sizeof set, &set) == 0);
  std::vector<int> usable;
  for (int cpu = 0; cpu < CPU_SETSIZE && usable.size() < 2; ++cpu) {
    if (CPU_ISSET(cpu, &set)) usable.push_back(cpu);
  }
  return {.client = usable.front(), .server = usable.back()};
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  BRAID_ASSERT(sched_setaffinity(0, sizeof set, &set) == 0);
}

base::Result<CpuTimes> parse_cpu_times(std::string_view proc_stat, int cpu) {
  // cpuN user nice system idle iowait irq softirq steal guest guest_nice; guest is part of user.
  std::array<uint64_t, 8> fields{};
  const std::string name = fmt::format("\ncpu{} ", cpu);
  const size_t found = proc_stat.find(name);
  if (found == std::string_view::npos) {
    return base::make_error(base::Errc::kInvalid, "/proc/stat has no line of CPU {}", cpu);
  }
  const std::string_view line = proc_stat.substr(found + name.size());
  const char* at = line.data();
  const char* const end = line.data() + std::min(line.find('\n'), line.size());
  for (uint64_t& field : fields) {
    while (at != end && *at == ' ') ++at;
    const auto [next, error] = std::from_chars(at, end, field);
    if (error != std::errc()) {
      return base::make_error(base::Errc::kInvalid,
                              "/proc/stat: fewer than {} numbers in the line of CPU {}",
                              fields.size(), cpu);
    }
    at = next;
  }
  CpuTimes times{.idle = fields[3] + fields[4], .total = 0, .stolen = fields[7]};
  for (const uint64_t field : fields) times.total += field;
  return times;
}

double idle_fraction(const CpuTimes& before, const CpuTimes& after) {
  if (after.total <= before.total) return 1;
  return static_cast<double>(after.idle - before.idle) /
         static_cast<double>(after.total - before.total);
}

double measure_cache_line_ns(const Cpus& cpus, unsigned round_trips) {
  constexpr unsigned kBatches = 9;
  PingPong lines;
  const uint32_t last = kBatches * round_trips;
  cpu_set_t before;
  BRAID_ASSERT(sched_getaffinity(0, sizeof before, &before) == 0);
  std::thread answerer([&] {
    pin_to(cpus.server);
    answer_pings(lines, last);
  });
  pin_to(cpus.client);
  std::vector<double> one_way_ns;
  uint32_t i = 0;
  for (unsigned batch = 0; batch < kBatches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (unsigned k = 0; k < round_trips; ++k) {
      lines.there.store(++i, std::memory_order_release);
      Spinner spinner;
      while (lines.back.load(std::memory_order_acquire) != i) spinner.turn();
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    one_way_ns.push_back(took.count() / round_trips / 2);
  }
  answerer.join();
  BRAID_ASSERT(sched_setaffinity(0, sizeof before, &before) == 0);
  return summarise(one_way_ns)->median;
}

base::Result<Observation> observe(const Interrupts& interrupts, const Cpus& cpus,
                                  const GateOptions& options) {
  Observation seen;
  for (int waited_ms = 0;; waited_ms += options.window_ms) {
    const std::string text_before = read_file("/proc/stat");
    BRAID_CHECK(interrupts.pause_ms(options.window_ms));
    const std::string text_after = read_file("/proc/stat");
    seen.idle = true;
    for (const int cpu : {cpus.client, cpus.server}) {
      BRAID_TRY(const CpuTimes before, parse_cpu_times(text_before, cpu));
      BRAID_TRY(const CpuTimes after, parse_cpu_times(text_after, cpu));
      seen.idle = seen.idle && idle_fraction(before, after) >= options.idle_min;
    }
    const bool last = waited_ms + options.window_ms > options.wait_max_ms;
    if (!seen.idle && !last) continue;
    seen.cache_line_ns = measure_cache_line_ns(cpus, options.round_trips);
    if (quiet(seen, options) || last) return seen;
  }
}

nlohmann::json machine_facts(const Cpus& cpus) {
  utsname names{};
  uname(&names);
  const uint64_t memory_bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {{"kernel", names.release},
          {"architecture", names.machine},
          {"cpus", sysconf(_SC_NPROCESSORS_ONLN)},
          {"cpu_model", cpu_model()},
          {"client_cpu", cpus.client},
          {"server_cpu", cpus.server},
          {"client_core_shared_with", siblings(cpus.client)},
          {"memory_mib", memory_bytes >> 20}};
}

double load_1m() {
  double load = 0;
  getloadavg(&load, 1);
  return load;
}

}  // namespace braid::bench
